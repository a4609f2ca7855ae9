"""Alias of `ydl.compat.tf_yarn`."""

from ydl.compat.alias import alias

alias("tf_yarn", "ydl.compat.tf_yarn")
