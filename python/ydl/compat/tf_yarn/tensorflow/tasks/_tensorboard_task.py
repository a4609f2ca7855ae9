"""TensorBoard, which ends some time after the other tasks."""

import logging
import os
import time
from typing import Any, List

from ..._task_commons import get_task_key, load_experiment_fn, roles, setup_logging
from ...application import Application
from ...lifecycle import run_task, end_key
from ...tensorboard import get_termination_timeout, start_tf_board

logger = logging.getLogger(__name__)


def model_dir() -> str:
    """Returns the directory to show: the given one, or the model directory of the experiment."""
    configured = os.environ.get("TB_MODEL_DIR")
    if configured:
        return configured
    experiment = load_experiment_fn()()
    for found in (getattr(experiment, "model_dir", None), getattr(experiment, "tensorboard_hdfs_dir", None)):
        if found:
            return str(found)
    return str(experiment.estimator.model_dir)


def awaited_tasks() -> List[str]:
    """Returns the tasks to wait for. Parameter servers end only with the job."""
    own = get_task_key().type
    awaited = [role for role in roles() if role["role"] not in (own, "ps")]
    return ["{}:{}".format(role["role"], number) for role in awaited for number in range(role["instances"])]


def serve(client: Any) -> None:
    start_tf_board(client, model_dir())
    for task in awaited_tasks():
        client.kv.wait(end_key(task))
    seconds = get_termination_timeout()
    logger.info("all other tasks have ended; TensorBoard continues for %s s", seconds)
    time.sleep(seconds)


def main() -> None:
    setup_logging()
    # The experiment must not read `TF_CONFIG`, since this task is not part of TensorFlow's cluster.
    os.environ.pop("TF_CONFIG", None)
    client = Application.from_current()
    try:
        run_task(lambda: serve(client), client=client)
    except Exception:
        # An error of TensorBoard must not stop the training.
        logger.exception("TensorBoard failed; the other tasks continue")


if __name__ == "__main__":
    main()
