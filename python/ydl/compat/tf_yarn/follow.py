"""What a job's tasks say while it runs, heard by the caller."""

import logging
import threading
from typing import Any, Dict, List, Optional

from .application import try_and_key
from .evaluator_metrics import EvaluatorMetricsLogger
from .metrics import OneShotMetricsLogger

logger = logging.getLogger(__name__)

AGAIN_SECONDS = 1.0
LAST_OF_EVALUATION = "nb_eval_steps"
"""What an evaluator says last of each evaluation: one line for all of it."""
CLOCKS_SECONDS = 60.0
LAST_WORDS_SECONDS = 10.0
"""How long after the end of a job what its tasks said last may still be on its way."""


class Listener:
    """Hears the changes of a job's store in a thread of its own, and keeps what each task said last in its latest try."""

    def __init__(
        self, run: Any, tasks: List[str], evaluators: EvaluatorMetricsLogger, once: OneShotMetricsLogger
    ) -> None:
        self.run = run
        self.tasks = set(tasks)
        self.n_try = 0
        self._tries: Dict[str, int] = {}
        self.events: Dict[str, Dict[str, str]] = {}
        self.evaluators = evaluators
        self.once = once
        self._over = threading.Event()
        self._revision: Optional[int] = None
        self._changes: Any = None
        self._thread = threading.Thread(target=self._listen, name="tf_yarn-events", daemon=True)

    def __enter__(self) -> "Listener":
        self._thread.start()
        return self

    def __exit__(self, interrupted: Optional[type] = None, *_: object) -> None:
        self._over.set()
        # The watch ends with the job's master, unless somebody leaves before.
        if interrupted is None:
            self._thread.join(LAST_WORDS_SECONDS)
        if self._changes is not None:
            self._changes.close()
        self._thread.join(LAST_WORDS_SECONDS)

    def _listen(self) -> None:
        from ydl import Error

        while True:
            # Before the job's master is there nobody answers, and when it has gone nobody does any more.
            try:
                self._changes = self.run.kv.watch("", after=self._revision)
                for change in self._changes:
                    self._revision = change.revision
                    self._hear(change)
            except Error as away:
                logger.debug("nobody tells what the tasks of the job say: %s", away)
            if self._over.wait(AGAIN_SECONDS):
                return

    def _hear(self, change: Any) -> None:
        try:
            self.told(change.kind, change.key, change.value)
        except Exception:  # one word that is not understood must not make all others unheard
            logger.exception("`%s` was not understood", change.key)

    def told(self, kind: str, key: str, value: Optional[bytes]) -> None:
        """Takes one change of the store."""
        n_try, key = try_and_key(key)
        task, _, word = key.partition("/")
        if n_try < self._tries.get(task, 0) or task not in self.tasks or not word:
            return
        if n_try > self.n_try:
            self.n_try = self.evaluators.n_try = n_try
            self.once.begin(n_try)
        if n_try > self._tries.get(task, 0):
            # It begins anew; one that only looks may go on through several tries.
            self._tries[task] = n_try
            self.events[task] = {}
        said = self.events.setdefault(task, {})
        if kind != "put" or value is None:
            said.pop(word, None)
            return
        text = value.decode("utf-8", "replace")
        said[word] = text
        if word == "logs":
            logger.info("Logs of %s: %s", task, text)
        elif word == "stop" and text:
            logger.error("%s failed: %s", task, (text.strip().splitlines() or ["it did not say how"])[-1])
        self.once.told(key, text)
        self.evaluators.told(task, word, text)
        if word == LAST_OF_EVALUATION:
            self.evaluators.log()

    def fill_in(self, facts: List[Dict[str, Any]]) -> None:
        """The ends of tasks whose last words were lost with the job's master, from what the master itself wrote down: of each
        task the last fact counts, and only if it is its end."""
        last: Dict[str, Dict[str, Any]] = {}
        for fact in facts:
            kind = fact.get("kind")
            for name in ("attempt-started", "attempt-ended"):
                about = kind.get(name) if isinstance(kind, dict) else None
                if isinstance(about, dict):
                    last[str(about.get("task"))] = {"ending": about.get("ending"), "at": fact.get("at")}
        for task, found in last.items():
            said = self.events.get(task)
            if said is None or "stop" in said or found["ending"] != "succeeded":
                continue
            seconds = float(found["at"] or 0) / 1000.0
            if _is_long_before(seconds, said.get("container_start_time")):
                # It ended, and has begun again since: of that the facts say nothing yet.
                continue
            said["stop"] = ""
            said.setdefault("container_stop_time", str(seconds))
            if "train_eval_start_time" in said:
                said.setdefault("train_eval_stop_time", str(seconds))


def _is_long_before(seconds: float, begun: Optional[str]) -> bool:
    """Whether it cannot be later, however different the clocks of two nodes are."""
    try:
        return begun is not None and seconds + CLOCKS_SECONDS < float(begun)
    except ValueError:
        return False
