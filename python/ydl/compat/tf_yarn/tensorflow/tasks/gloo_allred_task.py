"""Horovod over Gloo: chief and workers are its ranks, and ydl's master serves the rendezvous.

`hvd.init()` is called before the experiment function, which can then read its rank and wrap its optimizer.
"""

import logging
import shutil
import tempfile
from typing import Any, Iterable, List

from ..._task_commons import get_task_key
from ...lifecycle import run_task
from ...training_end import TrainingEnd
from ..keras_experiment import KerasExperiment
from . import tf_task_common
from .evaluator_task import evaluator_fn

logger = logging.getLogger(__name__)


def train() -> None:
    import horovod.tensorflow as hvd

    hvd.init()
    logger.info("Horovod: rank %s of %s", hvd.rank(), hvd.size())
    experiment = tf_task_common.experiment()
    if isinstance(experiment, KerasExperiment):
        train_keras(experiment, hvd.rank())
    else:
        train_estimator(experiment, hvd.rank())
    hvd.shutdown()


def train_keras(experiment: KerasExperiment, rank: int) -> None:
    """Calls `fit` with the parameters of the experiment and its data. Only rank 0 writes checkpoints. The validation data are for
    the evaluator."""
    params = dict(experiment.train_params)
    if rank != 0 and params.get("callbacks"):
        params["callbacks"] = without_checkpoints(params["callbacks"])
    for name, make in (("x", experiment.input_data_fn), ("y", experiment.target_data_fn)):
        if make is not None:
            params[name] = make()
    experiment.model.fit(**params)


def without_checkpoints(callbacks: Iterable[Any]) -> List[Any]:
    """Returns the callbacks that write no checkpoints."""
    import tensorflow as tf

    return [callback for callback in callbacks if not isinstance(callback, tf.keras.callbacks.ModelCheckpoint)]


def train_estimator(experiment: Any, rank: int) -> None:
    """Trains until the last step. Only rank 0 writes checkpoints and summaries; the others get its variables."""
    estimator, spec = experiment.estimator, experiment.train_spec
    directory = None
    if rank != 0:
        # Several writers in one directory would corrupt the checkpoints.
        directory = estimator._model_dir = tempfile.mkdtemp(prefix="rank-{}-".format(rank))
        estimator._config = estimator.config.replace(
            save_summary_steps=None, save_checkpoints_steps=None, save_checkpoints_secs=None, log_step_count_steps=None
        )
    try:
        estimator.train(spec.input_fn, hooks=spec.hooks, max_steps=spec.max_steps)
    finally:
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    tf_task_common.prepare()
    is_evaluator = get_task_key().type == "evaluator"
    run_task((lambda: evaluator_fn(training=TrainingEnd())) if is_evaluator else train)


if __name__ == "__main__":
    main()
