"""Name under which programs of tf-yarn import it; see `ydl.compat.skein`.

A file and not a package: where skein itself is installed its package is found first, and neither replaces the other.
"""

from ydl.compat.alias import alias

alias("skein", "ydl.compat.skein")
