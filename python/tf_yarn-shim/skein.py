"""Alias of `ydl.compat.skein`.

A module and not a package: if skein is installed, Python finds its package first, and neither overwrites the other.
"""

from ydl.compat.alias import alias

if __name__ == "__main__":
    # `python -m skein` runs this file.
    from ydl.compat.skein.cli import main

    main()
else:
    alias("skein", "ydl.compat.skein")
