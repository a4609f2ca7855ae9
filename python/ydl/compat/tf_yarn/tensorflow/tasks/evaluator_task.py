"""Stand-alone evaluator: evaluates each new checkpoint of a model."""

import logging
import os
import re
import time
from typing import Any, Iterable, List, Optional, Set

from ..._task_commons import get_task_key
from ...lifecycle import run_task
from ..cluster import own_address
from . import tf_task_common

logger = logging.getLogger(__name__)

IDLE_SECONDS = 1200
"""Ends after this time without a new checkpoint."""
KERAS_SECONDS = 30


def step_of(checkpoint: str) -> int:
    """Returns the training step in the name of a checkpoint: `…/model.ckpt-300`."""
    found = re.search(r"-(\d+)(?:\.index|\.keras|\.h5|\.weights\.h5)?$", checkpoint)
    if found is None:
        raise ValueError("`{}` is not the name of a checkpoint: the training step is missing".format(checkpoint))
    return int(found.group(1))


def _get_all_checkpoints(model_dir: str) -> Set[str]:
    """Returns the checkpoints in TensorFlow's list that exist."""
    import tensorflow as tf

    state = tf.train.get_checkpoint_state(model_dir)
    return set() if state is None else set(state.all_model_checkpoint_paths)


def pending(checkpoints: Iterable[str], evaluated: Iterable[int]) -> List[str]:
    """Returns the checkpoints to evaluate, oldest first."""
    done = set(evaluated)
    return sorted((name for name in checkpoints if step_of(name) not in done), key=step_of)


class IdleTimeout:
    """Timeout for new checkpoints."""

    def __init__(self, seconds: float = IDLE_SECONDS) -> None:
        self.seconds, self.since = seconds, time.monotonic()

    def reset(self) -> None:
        self.since = time.monotonic()

    def is_expired(self) -> bool:
        return time.monotonic() - self.since > self.seconds


def evaluate(experiment: Any, idle: Optional[IdleTimeout] = None) -> None:
    """Evaluates until the last step, or until no new checkpoint appears."""
    from ..metrics import EvaluatedSteps

    estimator, train, spec = experiment.estimator, experiment.train_spec, experiment.eval_spec
    idle = idle or IdleTimeout()
    done: Set[int] = set()
    evaluated = EvaluatedSteps(estimator.eval_dir(spec.name))
    time.sleep(spec.start_delay_secs or 0)
    exporters = spec.exporters
    exporters = [] if exporters is None else list(exporters) if hasattr(exporters, "__iter__") else [exporters]
    while True:
        done.update(evaluated.steps())
        started = time.monotonic()
        for checkpoint in pending(_get_all_checkpoints(estimator.model_dir), done):
            step = step_of(checkpoint)
            logger.info("evaluating the checkpoint of step %s", step)
            result = estimator.evaluate(
                spec.input_fn, steps=spec.steps, hooks=spec.hooks, name=spec.name, checkpoint_path=checkpoint
            )
            last = train.max_steps is not None and step >= train.max_steps
            for exporter in exporters:
                path = os.path.join(str(estimator.model_dir), "export", exporter.name)
                exporter.export(estimator, path, checkpoint, result, last)
            done.add(step)
            idle.reset()
        if train.max_steps is not None and done and max(done) >= train.max_steps:
            return
        if idle.is_expired():
            logger.info("no new checkpoint for %s s", idle.seconds)
            return
        time.sleep(max(1.0, (spec.throttle_secs or 0) - (time.monotonic() - started)))


def evaluate_keras(experiment: Any, idle: Optional[IdleTimeout] = None, pause: float = KERAS_SECONDS) -> None:
    """Evaluates a Keras model, whose checkpoints are `model.ckpt-<step>` in its directory."""
    import tensorflow as tf

    if experiment.validation_data_fn is None:
        raise ValueError("cannot evaluate a KerasExperiment without validation_data_fn")
    idle = idle or IdleTimeout()
    done: Set[int] = set()
    data = experiment.validation_data_fn()
    writer = tf.summary.create_file_writer(os.path.join(experiment.model_dir, "eval"))
    while not idle.is_expired():
        names = tf.io.gfile.listdir(experiment.model_dir) if tf.io.gfile.isdir(experiment.model_dir) else []
        found = {name[: -len(".index")] for name in names if re.match(r"model\.ckpt-\d+\.index$", name)}
        for checkpoint in pending(found, done):
            experiment.model.load_weights(os.path.join(experiment.model_dir, checkpoint))
            values = experiment.model.evaluate(data, return_dict=True, verbose=0)
            logger.info("%s: %s", checkpoint, values)
            with writer.as_default(step=step_of(checkpoint)):
                for name, value in values.items():
                    tf.summary.scalar(name, value)
            writer.flush()
            done.add(step_of(checkpoint))
            idle.reset()
        time.sleep(pause)


def evaluator_fn() -> None:
    from ..keras_experiment import KerasExperiment

    # It communicates with no other task, and TensorFlow rejects an evaluator in a cluster without training tasks.
    os.environ.pop("TF_CONFIG", None)
    experiment = tf_task_common.experiment()
    (evaluate_keras if isinstance(experiment, KerasExperiment) else evaluate)(experiment)


def main() -> None:
    tf_task_common.prepare()
    if get_task_key().type == "evaluator":
        run_task(evaluator_fn)
    else:
        run_task(lambda: tf_task_common.train_and_evaluate(tf_task_common.experiment()), own_address())


if __name__ == "__main__":
    main()
