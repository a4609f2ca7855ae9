"""Metrics of programs: `ydl status` and :meth:`ydl.Run.metrics` show the latest value of each.

A report costs a training loop a lock and a few assignments. A thread sends changed values, at most once a second, and all
values again after a connection failure, because the master keeps them in memory only. Values that cannot be sent are
replaced by the next report. Values that the master rejects are logged once, and the others are kept.
"""

from __future__ import annotations

import atexit
import json
import logging
import math
import os
import threading
import time
from typing import Any, Dict, List, Optional, Tuple

from .errors import Error, Unreachable
from .tasks import in_task
from .master_client import MasterClient

#: Limits of the master for the names of a task.
NAMES_MAX = 64
NAME_BYTES_MAX = 64
#: Minimum interval between requests.
_SEND_INTERVAL_S = 1.0
#: Unchanged values are sent again after this time, in case the master was replaced.
_RESEND_INTERVAL_S = 30.0
#: Maximum delay of a program's exit for its last values, which matter most. A busy machine may need seconds.
_EXIT_FLUSH_S = 10.0
#: The master counts steps in 64 bits.
_STEP_MAX = (1 << 63) - 1

LOG = logging.getLogger("ydl")


class Reporter:
    """Reported values of this process and their transfer."""

    def __init__(self) -> None:
        self._reset()
        # A forked child has its own values and no thread.
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._latest: Dict[str, Tuple[float, Optional[int], int]] = {}
        self._changed: Dict[str, None] = {}
        self._version = 0
        self._sent = 0
        self._rejected = False
        self._warned = False
        self._thread: Optional[threading.Thread] = None
        self._flushing = False

    def report(self, step: Optional[int], values: Dict[str, Any]) -> None:
        """Stores values, which are sent later."""
        checked = {_metric_name(name): _number(name, value) for name, value in values.items()}
        now = int(time.time() * 1000)
        with self._lock:
            for name, value in checked.items():
                if name not in self._latest and len(self._latest) >= NAMES_MAX:
                    raise Error(
                        f"a task can report at most {NAMES_MAX} metrics: `{name}` exceeds the limit",
                        "do not put counters into names; report them as values",
                    )
                self._latest[name] = (value, step, now)
                self._changed[name] = None
            self._version += 1
            if self._thread is None and not self._flushing:
                run = threading.Thread(target=self._run, args=(MasterClient(),), name="ydl-report", daemon=True)
                self._thread = run
                self._thread.start()
                atexit.register(self.flush, _EXIT_FLUSH_S)
            self._wake.notify_all()

    def flush(self, timeout: float = 5.0) -> bool:
        """Waits until the master has all reported values. Returns False after the timeout, or if it rejected some."""
        end = time.monotonic() + timeout
        with self._lock:
            target = self._version
            self._flushing = True
            self._wake.notify_all()
            while self._sent < target and self._thread is not None:
                left = end - time.monotonic()
                if left <= 0 or not self._wake.wait(left):
                    break
            self._flushing = False
            return self._sent >= target and not self._rejected

    def _run(self, master: MasterClient) -> None:
        send_all = True
        all_sent_at = 0.0
        while True:
            with self._lock:
                while self._version == self._sent and time.monotonic() - all_sent_at < _RESEND_INTERVAL_S:
                    self._wake.wait(_RESEND_INTERVAL_S)
                send_all = send_all or time.monotonic() - all_sent_at >= _RESEND_INTERVAL_S
                names = list(self._latest if send_all else self._changed)
                body = [_as_json(name, *self._latest[name]) for name in names]
                self._changed = {}
                version = self._version
            sent, rejected = self._send(master, body)
            with self._lock:
                if sent:
                    self._sent, self._rejected = version, rejected
                    all_sent_at = time.monotonic() if send_all else all_sent_at
                send_all = not sent
                self._wake.notify_all()
                end = time.monotonic() + _SEND_INTERVAL_S
                while not (self._flushing and sent) and time.monotonic() < end:
                    self._wake.wait(max(0.0, end - time.monotonic()))

    def _send(self, master: MasterClient, body: List[Dict[str, Any]]) -> Tuple[bool, bool]:
        """Sends values. Returns True if they need not be sent again, and True if the master rejected some."""
        try:
            master.call("POST", "/v1/metrics", body=json.dumps({"metrics": body}).encode("utf-8"), retry_timeout=0.0)
            return True, False
        except Unreachable:
            return False, False
        except Exception as error:
            # A retry would be rejected, too. The master accepted the others. Reports must not disturb the program.
            if not self._warned:
                self._warned = True
                LOG.warning("a report was rejected; further rejections are not logged: %s", error)
            return True, True


def _as_json(name: str, value: float, step: Optional[int], at: int) -> Dict[str, Any]:
    # JSON has no NaN and infinity, which are important in a loss.
    metric: Dict[str, Any] = {"name": name, "at": at, "value": value if math.isfinite(value) else str(value)}
    if step is not None:
        metric["step"] = step
    return metric


def _metric_name(name: str) -> str:
    name = str(name)
    # The processes of a task share its metrics; all but the first append their rank.
    rank = os.environ.get("YDL_LOCAL_RANK", "0")
    name = name if rank in ("", "0") else f"{name}[{rank}]"
    fits = name.isprintable() and " " not in name
    if not name or len(name.encode("utf-8")) > NAME_BYTES_MAX or not fits:
        raise Error(f"invalid metric name `{name}`", f"use at most {NAME_BYTES_MAX} bytes of letters, digits and punctuation")
    return name


def _number(name: str, value: Any) -> float:
    try:
        # Also converts tensors and arrays of one element.
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise Error(f"metric `{name}` is `{value!r}`, which is not a number") from None


def _step(step: Any) -> int:
    try:
        number = int(step)
    except (TypeError, ValueError, OverflowError):
        number = -1
    if not 0 <= number <= _STEP_MAX:
        raise Error(f"invalid step `{step!r}`: steps count from 0")
    return number


_REPORTER = Reporter()


def report(step: Optional[int] = None, **metrics: Any) -> None:
    """Reports metrics of this task: `ydl.report(step=100, loss=0.3)`. Never blocks or fails because of the network.

    Outside of a task it has no effect, so that a program runs anywhere.
    """
    values = dict(metrics)
    if step is not None:
        step = _step(step)
    if in_task() and os.environ.get("YDL_MASTER"):
        _REPORTER.report(step, values)
    else:
        for name, value in values.items():
            _number(_metric_name(name), value)


def report_flush(timeout: float = 5.0) -> bool:
    """Waits until the master has all reported values. Returns False after the timeout. Programs call it at exit by default."""
    return _REPORTER.flush(timeout)
