"""Application for hooks: an object with a mapping `kv`, which the tasks of a try share.

In tf-yarn each try is an application with its own store. Here tries are rounds of one job: keys of the first try keep their
names, and those of later tries are below `try-1/`, `try-2/`, …, so that tasks never read values of an earlier try.
"""

import os
import re
import sys
from typing import Any, Iterator, MutableMapping, Optional, Tuple, Union

from ..skein.model import ACLs
from .bundle import EXPERIMENT, EXPERIMENT_FILE
from .constants import KV_EXPERIMENT_FN

if sys.version_info >= (3, 9):
    _Mapping = MutableMapping[str, bytes]
else:
    _Mapping = MutableMapping


def try_prefix(n_try: int) -> str:
    """Returns the prefix of the keys of a try."""
    return "try-{}/".format(n_try) if n_try > 0 else ""


def try_and_key(key: str) -> Tuple[int, str]:
    """Splits a key of the job's store into its try and its name in the try."""
    found = re.match(r"^try-(\d{1,9})/", key)
    return (int(found.group(1)), key[found.end() :]) if found else (0, key)


def _is_experiment(key: str) -> bool:
    """Returns True for the key of the experiment in a task. There it is never read from the store, which all tasks can write."""
    return key == KV_EXPERIMENT_FN and EXPERIMENT_FILE in os.environ


def read_experiment() -> bytes:
    """Reads the experiment of this task from a file of the job, also after the program changed the working directory."""
    with open(os.environ.get(EXPERIMENT_FILE, EXPERIMENT), "rb") as file:
        return file.read()


class Store(_Mapping):  # type: ignore[misc]
    """Mapping of the keys of a try to values in bytes. `wait` waits for a key."""

    def __init__(self, native: Any, prefix: str = "") -> None:
        self._native, self._prefix = native, prefix

    def __getitem__(self, key: str) -> bytes:
        if _is_experiment(key):
            return read_experiment()
        return bytes(self._native.get(self._prefix + key))  # KeyMissing is a KeyError

    def __setitem__(self, key: str, value: Union[bytes, str]) -> None:
        self._native.put(self._prefix + key, value)

    def __delitem__(self, key: str) -> None:
        if not self._native.delete(self._prefix + key):
            raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter([key[len(self._prefix) :] for key in self._native.list(self._prefix)])

    def __len__(self) -> int:
        return len(self._native.list(self._prefix))

    def wait(self, key: str, timeout: Optional[float] = None) -> bytes:
        """Waits for a key and returns its value."""
        if _is_experiment(key):
            return read_experiment()
        return bytes(self._native.wait(self._prefix + key, timeout))

    def clear_prefix(self, prefix: str) -> int:
        return int(self._native.delete_prefix(self._prefix + prefix))


class Application:
    """Replacement of skein's ApplicationClient with `kv`, which is all that tf-yarn's tasks use."""

    def __init__(self, native: Any, id: str, n_try: int = 0) -> None:
        self._store = Store(native, try_prefix(n_try))
        self.id = id

    @property
    def kv(self) -> Store:
        """Store of the try."""
        return self._store

    @classmethod
    def from_current(cls, retry_timeout: Optional[float] = None) -> "Application":
        """Returns the application of this task. `retry_timeout` limits retries while its store cannot be reached."""
        import ydl

        task = ydl.task()
        native = ydl.kv if retry_timeout is None else ydl.TaskStore(retry_timeout=retry_timeout, response_timeout=retry_timeout)
        return cls(native, task.job, task.round - 1)

    def __enter__(self) -> "Application":
        return self

    def __exit__(self, *_: object) -> None:
        return None


__all__ = ["ACLs", "Application", "Store", "try_and_key", "try_prefix"]
