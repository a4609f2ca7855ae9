"""Hooks that report the progress of an Estimator. Imported in tasks only, since it needs TensorFlow."""

import logging
import os
import time
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

import tensorflow as tf

from .. import event, mlflow
from .._task_commons import get_task_key, is_chief, n_try
from ..lifecycle import TaskLifecycle
from .experiment import Experiment
from .keras_experiment import KerasExperiment

logger = logging.getLogger(__name__)

REPORT_INTERVAL_SECONDS = 1.0
"""Minimum interval between reports of an evaluator, which makes many steps per second."""


class StepPerSecondHook(tf.estimator.StepCounterHook):
    """Reports the speed of the chief to MLflow and to `ydl status`. A training that is shorter than the interval reports its mean
    speed at its end."""

    def __init__(
        self,
        every_n_steps: Optional[int] = 100,
        every_n_secs: Optional[float] = None,
        output_dir: Optional[str] = None,
        summary_writer: Any = None,
    ) -> None:
        super().__init__(every_n_steps, every_n_secs, output_dir, summary_writer)
        self.background = mlflow.Background()
        self.has_reported = False
        self.first: Optional[Tuple[int, float]] = None
        """Step and time of the first call."""

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self.first is None:
            self.first = (int(run_values.results), time.monotonic())
        super().after_run(run_context, run_values)

    def _log_and_record(self, elapsed_steps: int, elapsed_time: float, global_step: int) -> None:
        if elapsed_time > 0 and is_chief():
            speed = elapsed_steps / elapsed_time
            self.has_reported = True
            self.background.log_metric("steps_per_sec_{}".format(n_try()), speed, int(global_step))
            import ydl

            ydl.report(step=int(global_step), steps_per_sec=speed)

    def end(self, session: Any) -> None:
        super().end(session)
        if self.first is not None and not self.has_reported:
            step, since = self.first
            last = int(session.run(self._global_step_tensor))
            if last > step:
                self._log_and_record(last - step, time.monotonic() - since, last)
        self.background.flush()


class EvalMonitorHook(tf.estimator.SessionRunHook):
    """Reports load and progress of the evaluator."""

    def __init__(self, client: Any = None) -> None:
        self.client = client
        self.lifecycle: Optional[TaskLifecycle] = None
        self.created = self.reported_at = time.monotonic()
        self.awake = 0.0
        self.steps = 0
        self.global_step = 0

    def begin(self) -> None:
        self.step = tf.compat.v1.train.get_global_step()
        self.reported_at = time.monotonic()

    def before_run(self, run_context: Any) -> Any:
        self.began = time.monotonic()
        return tf.estimator.SessionRunArgs(self.step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.awake += time.monotonic() - self.began
        self.steps += 1
        self.global_step = int(run_values.results)
        if time.monotonic() - self.reported_at >= REPORT_INTERVAL_SECONDS:
            self.report()

    def end(self, session: Any) -> None:
        self.report()

    def report(self) -> None:
        self.reported_at = time.monotonic()
        elapsed = max(self.reported_at - self.created, 1e-9)
        # Created in the task, since hooks are pickled.
        self.lifecycle = self.lifecycle or TaskLifecycle(self.client)
        for name, value in (
            ("awake_time_ratio", self.awake / elapsed),
            ("eval_step_mean_duration", self.awake / max(self.steps, 1)),
            ("last_training_step", self.global_step),
            ("nb_eval_steps", self.steps),
        ):
            self.lifecycle.report(event.broadcast, "{}/{}".format(get_task_key().to_kv_str(), name), str(value))


def _has(hooks: List[Any], kind: type) -> bool:
    return any(type(hook).__name__ == kind.__name__ for hook in hooks)


def add_monitoring_hooks(experiment: Any) -> Any:
    """Adds hooks to the experiment. A user's hook of the same name is kept."""
    if isinstance(experiment, KerasExperiment):
        return experiment
    if not isinstance(experiment, Experiment):
        kind = type(experiment).__name__
        raise ValueError("the experiment function returned a `{}`, expected an Experiment or a KerasExperiment".format(kind))
    training, every = list(experiment.train_spec.hooks), experiment.config.log_step_count_steps
    if every is not None and not _has(training, StepPerSecondHook):
        training.append(StepPerSecondHook(every))
    evaluation = list(experiment.eval_spec.hooks)
    if not _has(evaluation, EvalMonitorHook):
        evaluation.insert(0, EvalMonitorHook())
    return experiment._replace(
        train_spec=experiment.train_spec._replace(hooks=tuple(training)),
        eval_spec=experiment.eval_spec._replace(hooks=tuple(evaluation)),
    )


_add_monitor_to_experiment = add_monitoring_hooks


def get_all_metrics(model_path: str) -> Dict[str, List[Any]]:
    """Reads the event files of a directory into columns `step`, `name` and `value`."""
    columns: Dict[str, List[Any]] = {"step": [], "name": [], "value": []}
    for name in sorted(tf.io.gfile.listdir(model_path)):
        if ".tfevents." not in name:
            continue
        for event_record in _records(os.path.join(model_path, name)):
            for value in event_record.summary.value:
                number = _number(value)
                if number is not None:
                    for column, cell in (("step", int(event_record.step)), ("name", value.tag), ("value", number)):
                        columns[column].append(cell)
    return columns


def _number(value: Any) -> Optional[float]:
    """Returns the number in a value of a summary, if it is one. TensorFlow 2 writes tensors."""
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if value.HasField("tensor"):
        content = tf.make_ndarray(value.tensor)
        return float(content) if content.shape == () and content.dtype.kind in "fiu" else None
    return None


def evaluated_steps(directory: str) -> Set[int]:
    """Returns the evaluated steps in the event files of a directory."""
    names = tf.io.gfile.listdir(directory) if tf.io.gfile.isdir(directory) else []
    paths = [os.path.join(directory, name) for name in names if ".tfevents." in name]
    return {step for path in paths for step in _steps_in(path)}


def _steps_in(path: str) -> Set[int]:
    return {int(event_record.step) for event_record in _records(path) if event_record.HasField("summary")}


def _records(path: str) -> Iterator[Any]:
    try:
        yield from tf.compat.v1.train.summary_iterator(path)
    except tf.errors.DataLossError:
        # The last record is incomplete because the file is being written.
        pass
