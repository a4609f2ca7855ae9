"""Where tf-yarn's modules are."""

OWN = "ydl.compat."


def real_name(module: str) -> str:
    """The module that has the program: tf-yarn's own are here."""
    return OWN + module if module.split(".")[0] == "tf_yarn" else module
