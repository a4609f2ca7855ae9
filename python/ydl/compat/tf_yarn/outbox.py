"""What a task tells everybody, told beside its work: a store that is away for a while delays no training and loses no word."""

import collections
import logging
import threading
import time
from typing import Any, MutableMapping, Optional, Union

logger = logging.getLogger(__name__)

WAITING_MAX = 1000
"""So many keys may wait to be written; a newer value of a key takes the place of an older one."""


class Outbox:
    """A `client` whose `kv` takes words at once, and writes them in their order in a thread of its own."""

    def __init__(self, client: Any) -> None:
        self.kv = self
        self._store: MutableMapping[str, bytes] = client.kv
        self._wake = threading.Condition()
        self._waiting: "collections.OrderedDict[str, bytes]" = collections.OrderedDict()
        self._writing = False
        self._thread: Optional[threading.Thread] = None

    def __setitem__(self, key: str, value: Union[bytes, str]) -> None:
        with self._wake:
            if key not in self._waiting and len(self._waiting) >= WAITING_MAX:
                logger.warning("`%s` is not told: too much waits for the job's store", key)
                return
            self._waiting[key] = value.encode() if isinstance(value, str) else value
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tf_yarn-outbox", daemon=True)
                self._thread.start()
            self._wake.notify_all()

    def flush(self, seconds: float) -> bool:
        """Waits until all is written, so long at most; whether it is."""
        end = time.monotonic() + seconds
        with self._wake:
            while self._waiting or self._writing:
                left = end - time.monotonic()
                if left <= 0:
                    logger.warning("the job's store has not taken: %s", ", ".join(self._waiting) or "the last word")
                    return False
                self._wake.wait(left)
            return True

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._waiting:
                    self._wake.wait()
                key, value = self._waiting.popitem(last=False)
                self._writing = True
            try:
                self._store[key] = value
            except Exception as failure:  # whatever is wrong with a word, the training goes on
                logger.warning("the job's store did not take `%s`: %s", key, getattr(failure, "message", failure))
            with self._wake:
                self._writing = False
                self._wake.notify_all()
