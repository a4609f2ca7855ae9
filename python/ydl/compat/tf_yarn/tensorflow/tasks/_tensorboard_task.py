"""TensorBoard, until everybody else has ended and a while longer."""

import logging
import os
import time
from typing import Any, List

from ..._task_commons import get_task_key, load_experiment_fn, roles, setup_logging
from ...application import Application
from ...life import live, over_key
from ...tensorboard import get_termination_timeout, start_tf_board

logger = logging.getLogger(__name__)


def model_dir() -> str:
    """What it shows: as it was told, or where the experiment keeps what it learns."""
    told = os.environ.get("TB_MODEL_DIR")
    if told:
        return told
    experiment = load_experiment_fn()()
    for found in (getattr(experiment, "model_dir", None), getattr(experiment, "tensorboard_hdfs_dir", None)):
        if found:
            return str(found)
    return str(experiment.estimator.model_dir)


def others() -> List[str]:
    """Those whose end is waited for. Servers of parameters end with the job alone."""
    mine = get_task_key().type
    counted = [role for role in roles() if role["role"] not in (mine, "ps")]
    return ["{}:{}".format(role["role"], number) for role in counted for number in range(role["instances"])]


def show(client: Any) -> None:
    start_tf_board(client, model_dir())
    for task in others():
        client.kv.wait(over_key(task))
    seconds = get_termination_timeout()
    logger.info("everybody has ended; TensorBoard stays for %s s", seconds)
    time.sleep(seconds)


def main() -> None:
    setup_logging()
    # It is no part of TensorFlow's cluster, and an experiment that is made here must not look for its place in it.
    os.environ.pop("TF_CONFIG", None)
    client = Application.from_current()
    try:
        live(lambda: show(client), client=client)
    except Exception:
        # A picture that cannot be shown is no reason to stop learning.
        logger.exception("TensorBoard failed; the others go on without it")


if __name__ == "__main__":
    main()
