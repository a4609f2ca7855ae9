"""Stand-alone evaluator: evaluates each new checkpoint of a model."""

import logging
import os
import time
from typing import Any, Callable, Collection, Dict, Iterable, List, Optional, Set

from ..._task_commons import get_task_key
from ...lifecycle import run_task
from ...training_end import TrainingEnd
from . import tf_task_common
from .keras_checkpoints import checkpoint_step, keras_checkpoints, load_checkpoint

logger = logging.getLogger(__name__)

IDLE_SECONDS = 1200
"""Ends after this time without a new checkpoint."""
KERAS_SECONDS = 30
"""Pause between two looks at the checkpoints of a Keras model, which has no `throttle_secs`."""
MIN_PAUSE_SECONDS = 1.0
MAX_LOAD_FAILURES = 3
"""A checkpoint that is being written cannot be read yet; after so many failures it is broken."""

StopCondition = Optional[Callable[[], bool]]
Pause = Callable[[float], Any]

_get_step = checkpoint_step


def _get_all_checkpoints(model_dir: str) -> List[str]:
    """Returns the checkpoints in TensorFlow's list."""
    import tensorflow as tf

    state = tf.train.get_checkpoint_state(model_dir)
    return [] if state is None else list(state.all_model_checkpoint_paths)


def _get_evaluated_checkpoint(eval_dir: str) -> Set[int]:
    """Returns the evaluated steps in the event files of a directory."""
    from ..metrics import evaluated_steps

    return evaluated_steps(eval_dir)


def get_initial_evaluated_checkpoints(eval_dir: str) -> Set[int]:
    """Returns the steps that an earlier evaluator has evaluated."""
    import tensorflow as tf

    if not tf.io.gfile.exists(eval_dir) or not tf.io.gfile.listdir(eval_dir):
        return set()
    return set(_get_evaluated_checkpoint(eval_dir))


def pending(checkpoints: Iterable[str], evaluated: Collection[int]) -> List[str]:
    """Returns the checkpoints to evaluate, oldest first."""
    return sorted((name for name in checkpoints if _get_step(name) not in evaluated), key=_get_step)


def get_ckpt_to_eval(model_dir: str, evaluated_checkpoints: Collection[int]) -> List[str]:
    """Returns the checkpoints of an Estimator to evaluate, oldest first."""
    return pending(_get_all_checkpoints(model_dir), evaluated_checkpoints)


class IdleTimeout:
    """Timeout for new checkpoints, none without `seconds`."""

    def __init__(self, seconds: Optional[float]) -> None:
        self.seconds, self.since = seconds, time.monotonic()

    def reset(self) -> None:
        self.since = time.monotonic()

    def is_expired(self) -> bool:
        expired = self.seconds is not None and time.monotonic() - self.since > self.seconds
        if expired:
            logger.info("no new checkpoint for %s s", self.seconds)
        return expired


def evaluate(
    experiment: Any, stop_cond: StopCondition = None, timeout_in_secs: Optional[float] = None, pause: Optional[Pause] = None
) -> None:
    """Evaluates the checkpoints of an Estimator until the last step, until `stop_cond` returns True, or until no new one appears
    for `timeout_in_secs`. Checkpoints that exist when `stop_cond` returns True are still evaluated."""
    estimator, train, spec = experiment.estimator, experiment.train_spec, experiment.eval_spec
    done = get_initial_evaluated_checkpoints(estimator.eval_dir(spec.name))
    if _is_complete(train, done):
        logger.info("all checkpoints up to step %s have been evaluated", train.max_steps)
        return
    time.sleep(spec.start_delay_secs or 0)
    idle = IdleTimeout(timeout_in_secs)
    while True:
        stops = stop_cond is not None and stop_cond()
        started = time.monotonic()
        for checkpoint in get_ckpt_to_eval(estimator.model_dir, done):
            _evaluate_checkpoint(experiment, checkpoint)
            done.add(_get_step(checkpoint))
            idle.reset()
        if stops or _is_complete(train, done) or idle.is_expired():
            return
        rest = (spec.throttle_secs or 0) - (time.monotonic() - started)
        (pause or time.sleep)(max(MIN_PAUSE_SECONDS, rest))


def _is_complete(train: Any, done: Set[int]) -> bool:
    return train.max_steps is not None and bool(done) and max(done) >= train.max_steps


def _evaluate_checkpoint(experiment: Any, checkpoint: str) -> None:
    estimator, spec = experiment.estimator, experiment.eval_spec
    step = _get_step(checkpoint)
    logger.info("evaluating the checkpoint of step %s", step)
    result = estimator.evaluate(
        spec.input_fn, steps=spec.steps, hooks=spec.hooks, name=spec.name, checkpoint_path=checkpoint
    )
    exporters = spec.exporters or ()
    for exporter in exporters if isinstance(exporters, (list, tuple)) else [exporters]:
        # In the model's directory, unlike `train_and_evaluate`, which has `export` between.
        path = os.path.join(str(estimator.model_dir), exporter.name)
        exporter.export(estimator, path, checkpoint, result, _is_complete(experiment.train_spec, {step}))


def keras_evaluate(
    experiment: Any, stop_cond: StopCondition = None, timeout_in_secs: Optional[float] = None, pause: Optional[Pause] = None
) -> None:
    """Evaluates the checkpoints of a Keras model in its directory, until `stop_cond` returns True, or until no new one appears for
    `timeout_in_secs`. Checkpoints that exist when `stop_cond` returns True are still evaluated."""
    import tensorflow as tf

    if experiment.validation_data_fn is None:
        raise ValueError("cannot evaluate a KerasExperiment without validation_data_fn")
    eval_dir = os.path.join(experiment.model_dir, "eval")
    done = get_initial_evaluated_checkpoints(eval_dir)
    writer = tf.summary.create_file_writer(eval_dir)
    idle = IdleTimeout(timeout_in_secs)
    failures = 0
    while True:
        stops = stop_cond is not None and stop_cond()
        for checkpoint in pending(keras_checkpoints(experiment.model_dir), done):
            try:
                load_checkpoint(experiment.model, checkpoint)
            except (OSError, ValueError, tf.errors.OpError) as failure:
                failures += 1
                if stops or failures >= MAX_LOAD_FAILURES:
                    raise
                logger.warning("cannot read %s yet: %s", checkpoint, failure)
                break
            failures = 0
            step = _get_step(checkpoint)
            values = _evaluate_model(experiment)
            logger.info("%s: %s", checkpoint, values)
            _write_summary(writer, step, values)
            done.add(step)
            idle.reset()
        if stops or idle.is_expired():
            return
        (pause or time.sleep)(KERAS_SECONDS)


def _write_summary(writer: Any, step: int, values: Dict[str, float]) -> None:
    import tensorflow as tf

    # Part of TensorBoard, which may not be installed.
    write = getattr(tf.summary, "scalar", None)
    if write is None:
        return
    with writer.as_default(step=step):
        for name, value in values.items():
            write(name, value)
    writer.flush()


def _evaluate_model(experiment: Any) -> Any:
    # Called for each checkpoint, since a generator can be read once.
    data = experiment.validation_data_fn()
    arguments = data if isinstance(data, tuple) else (data,)
    return experiment.model.evaluate(*arguments, return_dict=True, verbose=0)


def evaluator_fn(client: Any = None, training: Optional[TrainingEnd] = None) -> None:
    """Evaluates the experiment of the job. With `training` it ends with the tasks that train, otherwise when no new checkpoint
    appears for a while."""
    from ..keras_experiment import KerasExperiment

    # It communicates with no other task, and TensorFlow rejects an evaluator in a cluster without training tasks.
    os.environ.pop("TF_CONFIG", None)
    experiment = tf_task_common.experiment()
    evaluates = keras_evaluate if isinstance(experiment, KerasExperiment) else evaluate
    stops, pause = (None, None) if training is None else (training.has_ended, training.wait)
    evaluates(experiment, stops, IDLE_SECONDS, pause)


def main() -> None:
    tf_task_common.prepare()
    if get_task_key().type == "evaluator":
        # No task trains.
        run_task(evaluator_fn)
    else:
        run_task(lambda: logger.info("%s: nothing to do", get_task_key().to_kv_str()))


def __getattr__(name: str) -> Any:
    """Resolves `tf`, which the module has in tf-yarn."""
    if name == "tf":
        import tensorflow

        return tensorflow
    raise AttributeError("module `{}` has no `{}`".format(__name__, name))


if __name__ == "__main__":
    main()
