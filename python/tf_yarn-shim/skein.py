"""The name that tf-yarn's programs import beside it; all of it is `ydl.compat.skein`.

A file and not a package: where skein itself is installed its package is found first, and neither replaces the other.
"""

from ydl.compat.alias import alias

alias("skein", "ydl.compat.skein")
