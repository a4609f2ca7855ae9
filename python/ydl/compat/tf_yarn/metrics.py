"""How long a job and its tasks took, from what the tasks said."""

import logging
from datetime import timedelta
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from . import mlflow
from .topologies import ContainerKey

logger = logging.getLogger(__name__)

Events = Mapping[str, Mapping[str, str]]
"""By task (`chief:0`), what it said last, by the last word of the key."""


class Metrics(NamedTuple):
    """Durations; None where they are not known. Tasks are keys as the caller's generation of tf-yarn had them."""

    total_training_duration: Optional[timedelta]
    total_eval_duration: Optional[timedelta]
    container_duration: Dict[Any, Optional[timedelta]]
    train_eval_time_per_node: Dict[Any, Optional[timedelta]]

    def log_mlflow(self, n_try: int) -> None:
        """Sends all of it to MLflow as one text."""
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


def _time(said: Mapping[str, str], word: str) -> Optional[float]:
    try:
        return float(said[word])
    except (KeyError, ValueError):
        return None


def _span(said: Mapping[str, str], begin: str, end: str) -> Optional[Tuple[float, float]]:
    first, last = _time(said, begin), _time(said, end)
    # What ended before it began is of an attempt before.
    return None if first is None or last is None or last < first else (first, last)


def _whole(events: Events, tasks: Iterable[str]) -> Optional[timedelta]:
    """From the earliest start to the latest stop; nothing if somebody is missing or has failed."""
    spans = []
    for task in tasks:
        said = events.get(task, {})
        span = _span(said, "train_eval_start_time", "train_eval_stop_time")
        if span is None or said.get("stop"):
            return None
        spans.append(span)
    if not spans:
        return None
    return timedelta(seconds=max(last for _, last in spans) - min(first for first, _ in spans))


def status_of(said: Optional[Mapping[str, str]]) -> str:
    """How a task stands by what it has said."""
    if not said:
        return "REQUESTED"
    if "stop" in said:
        return "FAILED" if said["stop"] else "SUCCEEDED"
    return "KILLED"


def metrics_from(events: Events, tasks: Iterable[str], key: Callable[[str], Any] = str) -> Metrics:
    """The metrics of a job of these tasks."""
    tasks = list(tasks)
    of = {kind: [task for task in tasks if task.split(":")[0] == kind] for kind in ("chief", "worker", "evaluator")}
    durations: Dict[Any, Optional[timedelta]] = {}
    trained: Dict[Any, Optional[timedelta]] = {}
    for task in tasks:
        said = events.get(task, {})
        for table, begin, end in (
            (durations, "container_start_time", "container_stop_time"),
            (trained, "train_eval_start_time", "train_eval_stop_time"),
        ):
            span = _span(said, begin, end)
            table[key(task)] = None if span is None else timedelta(seconds=span[1] - span[0])
    training = _whole(events, of["chief"] + of["worker"])
    return Metrics(training, _whole(events, of["evaluator"]), durations, trained)


class OneShotMetricsLogger:
    """Logs each of these keys once, as soon as it is there: `[(key, words)]`. With an `app` it looks itself, at `log`."""

    def __init__(self, app: Any, events: Iterable[Tuple[str, str]], n_try: int = 0) -> None:
        self.app = app
        self.events = dict(events)
        self.begin(n_try)

    def begin(self, n_try: int) -> None:
        """A new try, in which each may come again."""
        self.n_try = n_try
        self.waited = dict(self.events)

    def log(self) -> None:
        """Looks which are there."""
        for key in list(self.waited):
            value = self.app.kv.get(key)
            if value is not None:
                self.told(key, value.decode() if isinstance(value, bytes) else value)

    def told(self, key: str, value: str) -> None:
        """Takes a change of the store."""
        label = self.waited.pop(key, None)
        if label is not None:
            logger.info("%s %s", label, value)
            mlflow.set_tag("{}_{}".format(mlflow.format_key(key), self.n_try), value)


def __getattr__(name: str) -> Any:
    """Where the older layout has what needs TensorFlow."""
    if name in ("StepPerSecondHook", "get_all_metrics"):
        from .tensorflow import metrics

        return getattr(metrics, name)
    raise AttributeError("module `{}` has no `{}`".format(__name__, name))
