"""Lifecycle of a task: reports its start, runs its work in a thread, reports the result, and ends with it.

A task that fails ends at once, without waiting for other tasks. ydl decides whether they continue.
"""

import functools
import json
import logging
import os
import signal
import sys
import threading
import traceback
from typing import Any, Callable, Optional

from . import event
from ._internal import MonitoredThread
from ._task_commons import cluster_instances, get_task_key, logs_url
from .application import Application
from .outbox import Outbox

logger = logging.getLogger(__name__)

TERMINATED = 128 + signal.SIGTERM
FLUSH_SECONDS = 20.0
"""Maximum wait of a finished task for a store that does not respond. Its agent cannot report the end either then."""


def end_key(task: str) -> str:
    """Returns the key that reports the end of a task in this try."""
    return "ended/" + task


@functools.lru_cache(maxsize=None)
def _outbox() -> Outbox:
    """Returns the outbox of this process. All reports use it, so that the exit can wait for all of them."""
    return Outbox(Application.from_current())


class TaskLifecycle:
    """Reports of a task to the others. An unreachable store causes a warning, and never ends the training."""

    end_reported = False
    """True if a task of this process has reported its end."""

    def __init__(self, client: Any = None) -> None:
        self.client = Outbox(client) if client is not None else _outbox()
        self.task = get_task_key()
        self.reports = os.environ.get("YDL_LOCAL_RANK", "0") == "0"

    def report(self, send: Callable[..., None], *arguments: Any) -> None:
        """Sends a report, which is retried while the store cannot be reached."""
        if self.reports:
            send(self.client, *arguments)

    def begin(self, address: str) -> None:
        self.report(event.broadcast_container_start_time, self.task)
        self.report(event.logs_event, self.task, logs_url())
        self.report(event.broadcast, "cluster_instances", json.dumps(cluster_instances()))
        self.report(event.init_event, self.task, address)

    def end(self, failure: Optional[BaseException]) -> None:
        # Of several processes the first one reports, and each that failed.
        self.reports = self.reports or failure is not None
        self.report(event.broadcast_train_eval_stop_timer, self.task)
        self.report(event.broadcast_container_stop_time, self.task)
        self.report(event.stop_event, self.task, failure)
        self.report(event.broadcast, end_key(self.task.to_kv_str()))
        TaskLifecycle.end_reported = True
        self.client.flush(FLUSH_SECONDS)


def run_task(work: Callable[[], None], address: str = "127.0.0.1:0", client: Any = None) -> None:
    """Runs the work of a task to its end, and raises its exception."""
    lifecycle = TaskLifecycle(client)
    done = threading.Event()
    terminated = []
    pid = os.getpid()

    def on_term(*_: object) -> None:
        if os.getpid() != pid:
            # A forked process inherits this handler, and its parent ends it by this signal.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        terminated.append(True)
        if done.is_set():
            # The work has ended. Exit before SIGKILL, even if reports are pending.
            os._exit(_print_failure(thread.exception))
        done.set()

    def watched_work() -> None:
        try:
            work()
        finally:
            done.set()

    # C++ code that never returns, as in servers, cannot be interrupted by a signal. Waiting for a thread can.
    thread = MonitoredThread(target=watched_work, name="training", daemon=True)
    previous = signal.signal(signal.SIGTERM, on_term)
    try:
        lifecycle.begin(address)
        lifecycle.report(event.start_event, lifecycle.task)
        lifecycle.report(event.broadcast_train_eval_start_timer, lifecycle.task)
        thread.start()
        done.wait()
        if terminated:
            _handle_termination(lifecycle)
        thread.join()
        failure = thread.exception
        lifecycle.end(None if isinstance(failure, SystemExit) and not failure.code else failure)
        _flush()
    finally:
        # None means that the handler was not set from Python.
        signal.signal(signal.SIGTERM, signal.SIG_DFL if previous is None else previous)
    if failure is not None:
        raise failure


def _print_failure(failure: Optional[BaseException]) -> int:
    """Prints a failure that nothing else will print. Returns the exit code of a task that is ended after its work."""
    if failure is None or isinstance(failure, SystemExit):
        return TERMINATED
    traceback.print_exception(type(failure), failure, failure.__traceback__)
    sys.stderr.flush()
    return 1


def _handle_termination(lifecycle: TaskLifecycle) -> None:
    """Handles SIGTERM from ydl. Only a parameter server reports success then."""
    if lifecycle.task.type == "ps":
        lifecycle.end(None)
    _flush()
    # The training thread may never return.
    os._exit(TERMINATED)


def _flush() -> None:
    import ydl

    ydl.report_flush(2.0)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
