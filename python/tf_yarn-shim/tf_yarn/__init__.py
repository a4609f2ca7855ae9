"""The name that programs know; all of it is `ydl.compat.tf_yarn`."""

from ydl.compat.alias import alias

alias("tf_yarn", "ydl.compat.tf_yarn")
