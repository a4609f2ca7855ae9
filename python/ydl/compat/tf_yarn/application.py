"""A job as its hooks see it: an object with a mapping `kv`, which the tasks of a try share.

tf-yarn gave every try an application, and so a store, of its own. Here tries are rounds of one job: what the first one writes
has its own names, and what later ones write lies below `try-1/`, `try-2/`, … so that nobody reads what is not true any more.
"""

import os
import re
import sys
from typing import Any, Iterator, MutableMapping, Optional, Sequence, Tuple, Union

from .bundle import EXPERIMENT
from .constants import KV_EXPERIMENT_FN

if sys.version_info >= (3, 9):
    _Mapping = MutableMapping[str, bytes]
else:
    _Mapping = MutableMapping


def of_try(n_try: int) -> str:
    """What the keys of a try begin with."""
    return "try-{}/".format(n_try) if n_try > 0 else ""


def try_and_key(key: str) -> Tuple[int, str]:
    """Which try a key of the job's store is of, and its name there."""
    found = re.match(r"^try-(\d{1,9})/", key)
    return (int(found.group(1)), key[found.end() :]) if found else (0, key)


class Store(_Mapping):  # type: ignore[misc]
    """Keys and values of a try: texts to bytes. `wait` waits for a key to come."""

    def __init__(self, native: Any, below: str = "") -> None:
        self._native, self._below = native, below

    def __getitem__(self, key: str) -> bytes:
        if key == KV_EXPERIMENT_FN and os.path.exists(EXPERIMENT):
            return self._experiment()
        return bytes(self._native.get(self._below + key))  # KeyMissing is a KeyError

    def __setitem__(self, key: str, value: Union[bytes, str]) -> None:
        self._native.put(self._below + key, value)

    def __delitem__(self, key: str) -> None:
        if not self._native.delete(self._below + key):
            raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter([key[len(self._below) :] for key in self._native.list(self._below)])

    def __len__(self) -> int:
        return len(self._native.list(self._below))

    def wait(self, key: str, timeout: Optional[float] = None) -> bytes:
        """The key's value, once it is there."""
        if key == KV_EXPERIMENT_FN and os.path.exists(EXPERIMENT):
            return self._experiment()
        return bytes(self._native.wait(self._below + key, timeout))

    @staticmethod
    def _experiment() -> bytes:
        """What task modules of users read as any other key is a file of the job: everybody in it can write to the store."""
        with open(EXPERIMENT, "rb") as file:
            return file.read()

    def clear_prefix(self, prefix: str) -> int:
        return int(self._native.delete_prefix(self._below + prefix))


class Application:
    """What hooks were given as skein's ApplicationClient: its `kv` is all of it that tf-yarn's tasks use."""

    def __init__(self, native: Any, id: str, n_try: int = 0) -> None:
        self.kv = Store(native, of_try(n_try))
        self.id = id

    @classmethod
    def from_current(cls, patience: Optional[float] = None) -> "Application":
        """The job in whose task this runs. With `patience` a store that is away is not waited for any longer."""
        import ydl

        task = ydl.task()
        native = ydl.kv if patience is None else ydl.TaskStore(patience=patience, answer_max=patience)
        return cls(native, task.job, task.round - 1)

    def __enter__(self) -> "Application":
        return self

    def __exit__(self, *_: object) -> None:
        return None


class ACLs:
    """Who may see an application, and who may change it, as skein writes it. `*` is everybody."""

    def __init__(
        self,
        enable: bool = False,
        view_users: Sequence[str] = (),
        view_groups: Sequence[str] = (),
        modify_users: Sequence[str] = (),
        modify_groups: Sequence[str] = (),
        ui_users: Sequence[str] = (),
    ) -> None:
        self.enable = enable
        self.view_users = list(view_users)
        self.view_groups = list(view_groups)
        self.modify_users = list(modify_users)
        self.modify_groups = list(modify_groups)
        self.ui_users = list(ui_users)
