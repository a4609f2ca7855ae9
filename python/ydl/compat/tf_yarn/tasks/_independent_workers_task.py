"""Task in the older layout."""

from ..tensorflow.tasks._independent_workers_task import *  # noqa: F401,F403
from ..tensorflow.tasks._independent_workers_task import main

if __name__ == "__main__":
    main()
