"""Durations of a job and its tasks, from the reports of tasks."""

import logging
from datetime import timedelta
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from . import mlflow
from .topologies import ContainerKey

logger = logging.getLogger(__name__)

Events = Mapping[str, Mapping[str, str]]
"""Latest reports by task (`chief:0`) and last part of the key."""


class Metrics(NamedTuple):
    """Durations, None if unknown. The keys of tasks have the type of the caller's version of tf-yarn."""

    total_training_duration: Optional[timedelta]
    total_eval_duration: Optional[timedelta]
    container_duration: Dict[Any, Optional[timedelta]]
    train_eval_time_per_node: Dict[Any, Optional[timedelta]]

    def log_mlflow(self, n_try: int) -> None:
        """Logs all durations to MLflow as one text."""
        content = "".join(line + "\n" for line in self.lines(n_try))
        mlflow.save_text_to_mlflow(content, "tf_yarn_duration_stats")

    def lines(self, n_try: int) -> List[str]:
        rows: List[Tuple[str, Optional[timedelta]]] = [
            ("total_training_duration_{}".format(n_try), self.total_training_duration),
            ("total_eval_duration_{}".format(n_try), self.total_eval_duration),
        ]
        for name in ("container_duration", "train_eval_time_per_node"):
            for task, duration in getattr(self, name).items():
                rows.append(("{}_{}_{}".format(name, mlflow.format_key(key_text(task)), n_try), duration))
        return ["{}: {} secs".format(name, d.total_seconds()) for name, d in rows if d is not None]


def key_text(task: Any) -> str:
    return task.to_kv_str() if isinstance(task, ContainerKey) else str(task)


def _time(reports: Mapping[str, str], name: str) -> Optional[float]:
    try:
        return float(reports[name])
    except (KeyError, ValueError):
        return None


def _span(reports: Mapping[str, str], begin: str, end: str) -> Optional[Tuple[float, float]]:
    first, last = _time(reports, begin), _time(reports, end)
    # An end before the start belongs to an earlier attempt.
    return None if first is None or last is None or last < first else (first, last)


def _total(events: Events, tasks: Iterable[str]) -> Optional[timedelta]:
    """Returns the time from the earliest start to the latest end; None if a task is missing or failed."""
    spans = []
    for task in tasks:
        reports = events.get(task, {})
        span = _span(reports, "train_eval_start_time", "train_eval_stop_time")
        if span is None or reports.get("stop"):
            return None
        spans.append(span)
    if not spans:
        return None
    return timedelta(seconds=max(last for _, last in spans) - min(first for first, _ in spans))


def status_of(reports: Optional[Mapping[str, str]]) -> str:
    """Returns the status of a task from its reports."""
    if not reports:
        return "REQUESTED"
    if "stop" in reports:
        return "FAILED" if reports["stop"] else "SUCCEEDED"
    return "KILLED"


def metrics_from(events: Events, tasks: Iterable[str], key: Callable[[str], Any] = str) -> Metrics:
    """Returns the metrics of a job with these tasks."""
    tasks = list(tasks)
    by_kind = {kind: [task for task in tasks if task.split(":")[0] == kind] for kind in ("chief", "worker", "evaluator")}
    durations: Dict[Any, Optional[timedelta]] = {}
    train_eval: Dict[Any, Optional[timedelta]] = {}
    for task in tasks:
        reports = events.get(task, {})
        for table, begin, end in (
            (durations, "container_start_time", "container_stop_time"),
            (train_eval, "train_eval_start_time", "train_eval_stop_time"),
        ):
            span = _span(reports, begin, end)
            table[key(task)] = None if span is None else timedelta(seconds=span[1] - span[0])
    training = _total(events, by_kind["chief"] + by_kind["worker"])
    return Metrics(training, _total(events, by_kind["evaluator"]), durations, train_eval)


class OneShotMetricsLogger:
    """Logs each of the keys `[(key, label)]` once when it appears. With an `app`, `log` reads the store."""

    def __init__(self, app: Any, events: Iterable[Tuple[str, str]], n_try: int = 0) -> None:
        self.app = app
        self.events = dict(events)
        self.begin(n_try)

    def begin(self, n_try: int) -> None:
        """Starts a new try, in which each key is logged again."""
        self.n_try = n_try
        self.pending = dict(self.events)

    def log(self) -> None:
        """Reads the keys from the store."""
        for key in list(self.pending):
            value = self.app.kv.get(key)
            if value is not None:
                self.update(key, value.decode() if isinstance(value, bytes) else value)

    def update(self, key: str, value: str) -> None:
        """Handles a change of the store."""
        label = self.pending.pop(key, None)
        if label is not None:
            logger.info("%s %s", label, value)
            mlflow.set_tag("{}_{}".format(mlflow.format_key(key), self.n_try), value)


def __getattr__(name: str) -> Any:
    """Resolves names of the older layout that need TensorFlow."""
    if name in ("StepPerSecondHook", "get_all_metrics"):
        from .tensorflow import metrics

        return getattr(metrics, name)
    raise AttributeError("module `{}` has no `{}`".format(__name__, name))
