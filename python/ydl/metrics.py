"""Metrics that programs report: the latest value of each shows in `ydl status` and in :meth:`ydl.Run.metrics`.

A report costs a training loop a lock and a few assignments. A thread sends what has changed, once a second at most, and
everything again when the master was away: it keeps them in its memory only. What cannot be sent is dropped, because the
next report replaces it; what the master refuses is said once in the log, and nothing else suffers for it.
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
from .wire import Master

#: The master takes no more names of a task, and no longer ones.
NAMES_MAX = 64
NAME_BYTES_MAX = 64
#: Between two sendings.
_PACE_S = 1.0
#: What has not changed is said again after so long, for a master that has been replaced meanwhile.
_ANEW_S = 30.0
#: How long the end of a program may be held up by what was last reported. A training's last numbers are those that people
#: want most, and a busy machine may take seconds to take them.
_AT_EXIT_S = 10.0
#: The master counts steps in 64 bits.
_STEP_MAX = (1 << 63) - 1

LOG = logging.getLogger("ydl")


class Reporter:
    """What this process has reported and when it was sent."""

    def __init__(self) -> None:
        self._forget()
        # A child has its own numbers and no thread.
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._latest: Dict[str, Tuple[float, Optional[int], int]] = {}
        self._changed: Dict[str, None] = {}
        self._version = 0
        self._sent = 0
        self._refused = False
        self._complained = False
        self._thread: Optional[threading.Thread] = None
        self._ending = False

    def report(self, step: Optional[int], values: Dict[str, Any]) -> None:
        """Takes values in. They are sent later."""
        known = {_named(name): _number(name, value) for name, value in values.items()}
        now = int(time.time() * 1000)
        with self._lock:
            for name, value in known.items():
                if name not in self._latest and len(self._latest) >= NAMES_MAX:
                    raise Error(
                        f"a task can report {NAMES_MAX} metrics, and `{name}` is one more",
                        "names that count something up are better one metric whose value does",
                    )
                self._latest[name] = (value, step, now)
                self._changed[name] = None
            self._version += 1
            if self._thread is None and not self._ending:
                run = threading.Thread(target=self._run, args=(Master(),), name="ydl-report", daemon=True)
                self._thread = run
                self._thread.start()
                atexit.register(self.flush, _AT_EXIT_S)
            self._wake.notify_all()

    def flush(self, timeout: float = 5.0) -> bool:
        """Waits until all that was reported is with the master; whether it is. What was refused is not."""
        end = time.monotonic() + timeout
        with self._lock:
            wanted = self._version
            self._ending = True
            self._wake.notify_all()
            while self._sent < wanted and self._thread is not None:
                left = end - time.monotonic()
                if left <= 0 or not self._wake.wait(left):
                    break
            self._ending = False
            return self._sent >= wanted and not self._refused

    def _run(self, master: Master) -> None:
        anew = True
        said_all = 0.0
        while True:
            with self._lock:
                while self._version == self._sent and time.monotonic() - said_all < _ANEW_S:
                    self._wake.wait(_ANEW_S)
                anew = anew or time.monotonic() - said_all >= _ANEW_S
                names = list(self._latest if anew else self._changed)
                body = [_told(name, *self._latest[name]) for name in names]
                self._changed = {}
                version = self._version
            sent, refused = self._send(master, body)
            with self._lock:
                if sent:
                    self._sent, self._refused = version, refused
                    said_all = time.monotonic() if anew else said_all
                anew = not sent
                self._wake.notify_all()
                end = time.monotonic() + _PACE_S
                while not (self._ending and sent) and time.monotonic() < end:
                    self._wake.wait(max(0.0, end - time.monotonic()))

    def _send(self, master: Master, body: List[Dict[str, Any]]) -> Tuple[bool, bool]:
        """Whether it need not be said again, and whether the master refused something of it."""
        try:
            master.call("POST", "/v1/metrics", body=json.dumps({"metrics": body}).encode("utf-8"), patience=0.0)
            return True, False
        except Unreachable:
            return False, False
        except Exception as error:
            # Said again it would be refused again. The master has taken the rest, and whatever is wrong with a report is no
            # reason to disturb the program that made it.
            if not self._complained:
                self._complained = True
                LOG.warning("a report was refused, and further refusals are not told: %s", error)
            return True, True


def _told(name: str, value: float, step: Optional[int], at: int) -> Dict[str, Any]:
    # JSON has no numbers that are none; a loss that has become one is worth seeing.
    told: Dict[str, Any] = {"name": name, "at": at, "value": value if math.isfinite(value) else str(value)}
    if step is not None:
        told["step"] = step
    return told


def _named(name: str) -> str:
    name = str(name)
    # The processes of a task share its numbers; all but the first say which they are.
    rank = os.environ.get("YDL_LOCAL_RANK", "0")
    name = name if rank in ("", "0") else f"{name}[{rank}]"
    fits = name.isprintable() and " " not in name
    if not name or len(name.encode("utf-8")) > NAME_BYTES_MAX or not fits:
        raise Error(f"`{name}` cannot be the name of a metric", f"letters, digits and signs, {NAME_BYTES_MAX} at most")
    return name


def _number(name: str, value: Any) -> float:
    try:
        # Tensors and arrays of one element, too.
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise Error(f"the metric `{name}` is `{value!r}`, which is no number") from None


def _counted(step: Any) -> int:
    try:
        number = int(step)
    except (TypeError, ValueError, OverflowError):
        number = -1
    if not 0 <= number <= _STEP_MAX:
        raise Error(f"`{step!r}` is no step: they count from 0")
    return number


_REPORTER = Reporter()


def report(step: Optional[int] = None, **metrics: Any) -> None:
    """Reports metrics of this task: `ydl.report(step=100, loss=0.3)`. It neither waits nor fails when the master is away.

    Outside of a task nothing happens, so that a program runs anywhere.
    """
    values = dict(metrics)
    if step is not None:
        step = _counted(step)
    if in_task() and os.environ.get("YDL_MASTER"):
        _REPORTER.report(step, values)
    else:
        for name, value in values.items():
            _number(_named(name), value)


def report_flush(timeout: float = 5.0) -> bool:
    """Waits until what was reported is with the master; whether it is. At the end of a program this happens by itself."""
    return _REPORTER.flush(timeout)
