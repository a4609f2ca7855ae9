"""Writes reports of a task in the background: an unreachable store delays no training and loses no report."""

import collections
import logging
import threading
import time
from typing import Any, MutableMapping, Optional, Union

logger = logging.getLogger(__name__)

MAX_PENDING = 1000
"""Maximum number of unwritten keys. A newer value of a key replaces an older one."""


class Outbox:
    """Client whose `kv` accepts values at once, and writes them in order in its own thread."""

    def __init__(self, client: Any) -> None:
        self.kv = self
        self._store: MutableMapping[str, bytes] = client.kv
        self._wake = threading.Condition()
        self._pending: "collections.OrderedDict[str, bytes]" = collections.OrderedDict()
        self._writing = False
        self._thread: Optional[threading.Thread] = None

    def __setitem__(self, key: str, value: Union[bytes, str]) -> None:
        with self._wake:
            if key not in self._pending and len(self._pending) >= MAX_PENDING:
                logger.warning("`%s` is not reported: too many reports are waiting for the job's store", key)
                return
            self._pending[key] = value.encode() if isinstance(value, str) else value
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tf_yarn-outbox", daemon=True)
                self._thread.start()
            self._wake.notify_all()

    def flush(self, seconds: float) -> bool:
        """Waits until all values are written. Returns False after `seconds`."""
        end = time.monotonic() + seconds
        with self._wake:
            while self._pending or self._writing:
                left = end - time.monotonic()
                if left <= 0:
                    logger.warning("not written to the job's store: %s", ", ".join(self._pending) or "the last report")
                    return False
                self._wake.wait(left)
            return True

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._pending:
                    self._wake.wait()
                key, value = self._pending.popitem(last=False)
                self._writing = True
            try:
                self._store[key] = value
            except Exception as failure:  # reports must not end the training
                logger.warning("cannot write `%s` to the job's store: %s", key, getattr(failure, "message", failure))
            with self._wake:
                self._writing = False
                self._wake.notify_all()
