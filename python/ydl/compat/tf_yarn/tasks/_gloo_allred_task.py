"""Task in the layout of tf-yarn 0.4."""

from ..tensorflow.tasks.gloo_allred_task import *  # noqa: F401,F403
from ..tensorflow.tasks.gloo_allred_task import main

if __name__ == "__main__":
    main()
