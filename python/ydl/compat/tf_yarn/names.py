"""Names of tf-yarn's modules in this package."""

PREFIX = "ydl.compat."


def real_name(module: str) -> str:
    """Returns the real name of a module; those of tf-yarn are in this package."""
    return PREFIX + module if module.split(".")[0] == "tf_yarn" else module
