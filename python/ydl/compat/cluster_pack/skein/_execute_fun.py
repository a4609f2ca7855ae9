"""Program that calls a function of a file: `python _execute_fun.py FILE LOG_LEVEL`."""

import logging
import sys


def main(path: str, log_level: str) -> None:
    """Calls the function of a file with its arguments."""
    import cloudpickle

    logging.basicConfig(level=log_level)
    with open(path, "rb") as file:
        call = cloudpickle.load(file)
    call["func"](*call["args"])


if __name__ == "__main__":
    main(*sys.argv[1:])
