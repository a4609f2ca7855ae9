"""Alias of `ydl.compat.skein`.

A module and not a package: if skein is installed, Python finds its package first, and neither overwrites the other.
"""

from ydl.compat.alias import alias

alias("skein", "ydl.compat.skein")
