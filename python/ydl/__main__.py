"""`python -m ydl …` runs `ydl …`."""

import os
import sys

from .errors import Error
from .program import binary


def main() -> int:
    """Replaces this process by the binary."""
    try:
        program = binary()
    except Error as error:
        print(f"error: {error}", file=sys.stderr)
        return 123
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
