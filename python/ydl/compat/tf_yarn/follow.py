"""Reports of a job's tasks, received by the caller while it runs."""

import logging
import threading
from typing import Any, Dict, List, Optional

from .application import try_and_key
from .evaluator_metrics import EvaluatorMetricsLogger
from .metrics import OneShotMetricsLogger

logger = logging.getLogger(__name__)

RETRY_DELAY_SECONDS = 1.0
LAST_EVALUATION_KEY = "nb_eval_steps"
"""Last key that an evaluator writes in an evaluation, which is then logged as one line."""
CLOCK_SKEW_SECONDS = 60.0
FLUSH_SECONDS = 10.0
"""Maximum wait for the last reports after the end of a job."""


class Listener:
    """Follows the changes of a job's store in its own thread, and keeps the last reports of each task in its latest try."""

    def __init__(
        self, run: Any, tasks: List[str], evaluators: EvaluatorMetricsLogger, one_shot: OneShotMetricsLogger
    ) -> None:
        self.run = run
        self.tasks = set(tasks)
        self.n_try = 0
        self._tries: Dict[str, int] = {}
        self.events: Dict[str, Dict[str, str]] = {}
        self.evaluators = evaluators
        self.one_shot = one_shot
        self._ended = threading.Event()
        self._revision: Optional[int] = None
        self._changes: Any = None
        self._thread = threading.Thread(target=self._listen, name="tf_yarn-events", daemon=True)

    def __enter__(self) -> "Listener":
        self._thread.start()
        return self

    def __exit__(self, interrupted: Optional[type] = None, *_: object) -> None:
        self._ended.set()
        # The watch ends with the job's master, unless the caller is interrupted.
        if interrupted is None:
            self._thread.join(FLUSH_SECONDS)
        if self._changes is not None:
            self._changes.close()
        self._thread.join(FLUSH_SECONDS)

    def _listen(self) -> None:
        from ydl import Error

        while True:
            # The job's master cannot be reached before its start and after its end.
            try:
                self._changes = self.run.kv.watch("", after=self._revision)
                for change in self._changes:
                    self._revision = change.revision
                    self._handle(change)
            except Error as error:
                logger.debug("cannot read the reports of the tasks: %s", error)
            if self._ended.wait(RETRY_DELAY_SECONDS):
                return

    def _handle(self, change: Any) -> None:
        try:
            self.update(change.kind, change.key, change.value)
        except Exception:  # an invalid report must not stop the others
            logger.exception("invalid report `%s`", change.key)

    def update(self, kind: str, key: str, value: Optional[bytes]) -> None:
        """Handles one change of the store."""
        n_try, key = try_and_key(key)
        task, _, name = key.partition("/")
        if n_try < self._tries.get(task, 0) or task not in self.tasks or not name:
            return
        if n_try > self.n_try:
            self.n_try = self.evaluators.n_try = n_try
            self.one_shot.begin(n_try)
        if n_try > self._tries.get(task, 0):
            # The task has restarted. Side tasks may run through several tries.
            self._tries[task] = n_try
            self.events[task] = {}
        reports = self.events.setdefault(task, {})
        if kind != "put" or value is None:
            reports.pop(name, None)
            return
        text = value.decode("utf-8", "replace")
        reports[name] = text
        if name == "logs":
            logger.info("Logs of %s: %s", task, text)
        elif name == "stop" and text:
            logger.error("%s failed: %s", task, (text.strip().splitlines() or ["unknown error"])[-1])
        self.one_shot.update(key, text)
        self.evaluators.update(task, name, text)
        if name == LAST_EVALUATION_KEY:
            self.evaluators.log()

    def add_history(self, history: List[Dict[str, Any]]) -> None:
        """Adds the ends of tasks from the job's history, in case their last reports were lost with the job's master. Only the
        last event of a task counts, and only if it is its end."""
        last: Dict[str, Dict[str, Any]] = {}
        for event in history:
            kind = event.get("kind")
            for name in ("attempt-started", "attempt-ended"):
                details = kind.get(name) if isinstance(kind, dict) else None
                if isinstance(details, dict):
                    last[str(details.get("task"))] = {"ending": details.get("ending"), "at": event.get("at")}
        for task, found in last.items():
            reports = self.events.get(task)
            if reports is None or "stop" in reports or found["ending"] != "succeeded":
                continue
            seconds = float(found["at"] or 0) / 1000.0
            if _is_before(seconds, reports.get("container_start_time")):
                # It has restarted since, and the history does not contain that yet.
                continue
            reports["stop"] = ""
            reports.setdefault("container_stop_time", str(seconds))
            if "train_eval_start_time" in reports:
                reports.setdefault("train_eval_stop_time", str(seconds))


def _is_before(seconds: float, started: Optional[str]) -> bool:
    """Returns True if a time is before the start, even with clock skew between nodes."""
    try:
        return started is not None and seconds + CLOCK_SKEW_SECONDS < float(started)
    except ValueError:
        return False
