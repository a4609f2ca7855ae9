"""Metrics of evaluators, logged by the caller and to MLflow."""

import logging
import sys
from typing import Any, Dict, Iterable, Optional, Tuple

from . import mlflow
from .event import Task, task_name
from .topologies import ContainerTask

logger = logging.getLogger(__name__)

MONITORED_METRICS = {
    "awake_time_ratio": "Awake/idle ratio",
    "eval_step_mean_duration": "Eval step mean duration (in sec)",
    "last_training_step": "Training step of last checkpoint",
    "nb_eval_steps": "Number of evaluation steps done",
}

Thresholds = Dict[str, Tuple[Optional[float], Optional[float]]]


class EvaluatorMetricsLogger:
    """Stores the latest metrics of evaluators. `log` writes changed values within their thresholds, both inclusive, and sends all
    changed values to MLflow."""

    def __init__(
        self,
        evaluator_list: Iterable[Task],
        app: object = None,
        log_thresholds: Optional[Thresholds] = None,
        n_try: int = 0,
    ) -> None:
        self.evaluator_list = list(evaluator_list)
        self.app = app
        self.n_try = n_try
        self.log_thresholds: Dict[str, Tuple[float, float]] = {}
        for metric, (low, high) in (log_thresholds or {}).items():
            if metric not in MONITORED_METRICS:
                logger.warning("unknown metric `%s` of an evaluator; the metrics are %s", metric, ", ".join(MONITORED_METRICS))
                continue
            self.log_thresholds[metric] = (low or 0.0, high or sys.float_info.max)
        self.latest: Dict[str, Dict[str, float]] = {task_name(task): {} for task in self.evaluator_list}
        self.last_metrics: Dict[Any, Dict[str, Optional[float]]] = {
            _key(task): {metric: None for metric in MONITORED_METRICS} for task in self.evaluator_list
        }
        """Values of the last log."""

    def update(self, task: str, metric: str, value: str) -> None:
        """Handles a change of the store."""
        if task not in self.latest or metric not in MONITORED_METRICS:
            return
        try:
            self.latest[task][metric] = float(value)
        except ValueError:
            logger.debug("`%s` is no value of %s", value, metric)

    def log(self) -> None:
        """Writes one line for each evaluator with new values."""
        for evaluator in self.evaluator_list:
            task, last = task_name(evaluator), self.last_metrics[_key(evaluator)]
            if self.app is not None:
                self._read(task)
            parts = []
            for metric, label in MONITORED_METRICS.items():
                value = self.latest[task].get(metric)
                if value is None or value == last[metric]:
                    continue
                last[metric] = value
                low, high = self.log_thresholds.get(metric, (-sys.float_info.max, sys.float_info.max))
                if low <= value <= high:
                    parts.append("{}: {}".format(label, value))
                mlflow.log_metric("{}_{}_{}".format(task, metric, self.n_try), value)
            if parts:
                logger.info("Statistics for {}: {}".format(task, " ".join(parts)))

    def _read(self, task: str) -> None:
        for metric in MONITORED_METRICS:
            value = self.app.kv.get("{}/{}".format(task, metric))  # type: ignore[attr-defined]
            if value is not None:
                self.update(task, metric, value.decode() if isinstance(value, bytes) else value)


def _key(task: Task) -> Any:
    """Returns the key of an evaluator in `last_metrics`: that of its container, or the name by which the caller has it."""
    return task.to_container_key() if isinstance(task, ContainerTask) else task


def __getattr__(name: str) -> Any:
    """Resolves names of the older layout that need TensorFlow."""
    if name in ("EvalMonitorHook", "add_monitor_to_experiment"):
        from .tensorflow import metrics

        return metrics.EvalMonitorHook if name == "EvalMonitorHook" else metrics.add_monitoring_hooks
    raise AttributeError("module `{}` has no `{}`".format(__name__, name))
