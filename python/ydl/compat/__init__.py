"""Old systems' Python interfaces on top of ydl: `ydl.compat.tf_yarn` and `ydl.compat.cluster_pack`.

The distribution in `python/tf_yarn-shim` makes them importable under their old names.
"""
