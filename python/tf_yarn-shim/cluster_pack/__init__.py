"""The name that programs know; all of it is `ydl.compat.cluster_pack`."""

from ydl.compat.alias import alias

alias("cluster_pack", "ydl.compat.cluster_pack")
