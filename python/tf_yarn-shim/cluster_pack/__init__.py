"""Alias of `ydl.compat.cluster_pack`."""

from ydl.compat.alias import alias

alias("cluster_pack", "ydl.compat.cluster_pack")
