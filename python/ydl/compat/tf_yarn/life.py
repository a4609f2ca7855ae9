"""The life of a task: it says that it is there, runs its work in a thread, says how that ended, and ends so itself.

A task that fails ends at once; nobody waits for those who wait for it. Whether others go on is ydl's business.
"""

import functools
import json
import logging
import os
import signal
import sys
import threading
from typing import Any, Callable, Optional

from . import event
from ._internal import MonitoredThread
from ._task_commons import cluster_instances, get_task_key, logs_url
from .application import Application
from .outbox import Outbox

logger = logging.getLogger(__name__)

TERMINATED = 128 + signal.SIGTERM
LAST_WORDS_SECONDS = 20.0
"""How long a task that has done its work stays for a store that does not answer. Its agent has nobody to tell of its end then,
either."""


def over_key(task: str) -> str:
    """The key that says that a task has ended in this try."""
    return "over/" + task


@functools.lru_cache(maxsize=None)
def _outbox() -> Outbox:
    """All that this process tells goes one way, so that its end waits for all of it."""
    return Outbox(Application.from_current())


class Life:
    """What a task tells everybody. A store that cannot be reached costs a line in the log, never the training."""

    said_over = False
    """Whether a task of this process has said that it is over."""

    def __init__(self, client: Any = None) -> None:
        self.client = Outbox(client) if client is not None else _outbox()
        self.task = get_task_key()
        self.speaks = os.environ.get("YDL_LOCAL_RANK", "0") == "0"

    def say(self, tell: Callable[..., None], *words: Any) -> None:
        """Tells it, now or as soon as somebody listens."""
        if self.speaks:
            tell(self.client, *words)

    def begin(self, address: str) -> None:
        self.say(event.broadcast_container_start_time, self.task)
        self.say(event.logs_event, self.task, logs_url())
        self.say(event.broadcast, "cluster_instances", json.dumps(cluster_instances()))
        self.say(event.init_event, self.task, address)

    def end(self, failure: Optional[BaseException]) -> None:
        # Of several processes the one that failed has something to say.
        self.speaks = self.speaks or failure is not None
        self.say(event.broadcast_train_eval_stop_timer, self.task)
        self.say(event.broadcast_container_stop_time, self.task)
        self.say(event.stop_event, self.task, failure)
        self.say(event.broadcast, over_key(self.task.to_kv_str()))
        Life.said_over = True
        self.client.flush(LAST_WORDS_SECONDS)


def live(work: Callable[[], None], address: str = "127.0.0.1:0", client: Any = None) -> None:
    """Runs a task's work to its end, and raises what it raised."""
    life = Life(client)
    told = threading.Event()
    terminated = []

    def on_term(*_: object) -> None:
        terminated.append(True)
        if told.is_set():
            # The work is over, and nobody waits for `told` any more: what is left to say is not worth a SIGKILL.
            os._exit(TERMINATED)
        told.set()

    def watched() -> None:
        try:
            work()
        finally:
            told.set()

    before = signal.signal(signal.SIGTERM, on_term)
    try:
        life.begin(address)
        # What runs in C++ for ever, as servers do, cannot be interrupted by a signal; whoever waits for a thread can.
        thread = MonitoredThread(target=watched, name="training", daemon=True)
        life.say(event.start_event, life.task)
        life.say(event.broadcast_train_eval_start_timer, life.task)
        thread.start()
        told.wait()
        if terminated:
            _leave(life)
        thread.join()
        failure = thread.exception
        life.end(None if isinstance(failure, SystemExit) and not failure.code else failure)
        _flush()
    finally:
        # None is a handler that was not set from Python.
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
    if failure is not None:
        raise failure


def _leave(life: Life) -> None:
    """ydl ends the task. A server of parameters has done its work then; of any other nobody knows."""
    if life.task.type == "ps":
        life.end(None)
    _flush()
    # The thread that trains may never come back.
    os._exit(TERMINATED)


def _flush() -> None:
    import ydl

    ydl.report_flush(2.0)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
