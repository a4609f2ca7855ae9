"""Metrics of evaluators, logged by the caller and to MLflow."""

import logging
import sys
from typing import Any, Dict, Iterable, Optional, Tuple

from . import mlflow
from .event import Task, task_name

logger = logging.getLogger(__name__)

MONITORED_METRICS = {
    "awake_time_ratio": "Awake/idle ratio",
    "eval_step_mean_duration": "Eval step mean duration (in sec)",
    "last_training_step": "Training step of last checkpoint",
    "nb_eval_steps": "Number of evaluation steps done",
}

Thresholds = Dict[str, Tuple[Optional[float], Optional[float]]]


class EvaluatorMetricsLogger:
    """Stores the latest metrics of evaluators. `log` writes changed values within their thresholds, both inclusive."""

    def __init__(
        self,
        evaluator_list: Iterable[Task],
        app: object = None,
        log_thresholds: Optional[Thresholds] = None,
        n_try: int = 0,
    ) -> None:
        self.evaluators = [task_name(task) for task in evaluator_list]
        self.app = app
        self.n_try = n_try
        self.thresholds: Dict[str, Tuple[float, float]] = {}
        for metric, (low, high) in (log_thresholds or {}).items():
            if metric not in MONITORED_METRICS:
                logger.warning("unknown metric `%s` of an evaluator; the metrics are %s", metric, ", ".join(MONITORED_METRICS))
                continue
            self.thresholds[metric] = (0.0 if low is None else low, sys.float_info.max if high is None else high)
        self.latest: Dict[str, Dict[str, str]] = {task: {} for task in self.evaluators}
        self.logged: Dict[str, Dict[str, str]] = {task: {} for task in self.evaluators}

    def update(self, task: str, metric: str, value: str) -> None:
        """Handles a change of the store."""
        if task in self.latest and metric in MONITORED_METRICS:
            self.latest[task][metric] = value

    def log(self) -> None:
        """Writes one line for each evaluator with new values."""
        for task in self.evaluators:
            if self.app is not None:
                self._read(task)
            parts = []
            for metric, label in MONITORED_METRICS.items():
                value = self.latest[task].get(metric)
                if value is None or value == self.logged[task].get(metric):
                    continue
                self.logged[task][metric] = value
                if not self._within(metric, value):
                    continue
                parts.append("{}: {}".format(label, value))
                mlflow.log_metric("{}_{}_{}".format(task, metric, self.n_try), float(value))
            if parts:
                logger.info("Statistics for %s: %s", task, " ".join(parts))

    def _within(self, metric: str, value: str) -> bool:
        try:
            number = float(value)
        except ValueError:
            return False
        low, high = self.thresholds.get(metric, (-sys.float_info.max, sys.float_info.max))
        return low <= number <= high

    def _read(self, task: str) -> None:
        for metric in MONITORED_METRICS:
            value = self.app.kv.get("{}/{}".format(task, metric))  # type: ignore[attr-defined]
            if value is not None:
                self.latest[task][metric] = value.decode() if isinstance(value, bytes) else value


def __getattr__(name: str) -> Any:
    """Resolves names of the older layout that need TensorFlow."""
    if name in ("EvalMonitorHook", "add_monitor_to_experiment"):
        from .tensorflow import metrics

        return metrics.EvalMonitorHook if name == "EvalMonitorHook" else metrics.add_monitoring_hooks
    raise AttributeError("module `{}` has no `{}`".format(__name__, name))
