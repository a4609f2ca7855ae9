"""The job's key-value store and its events: inside of a task over the master's door, outside through the binary."""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union
from urllib.parse import quote

from . import program
from .errors import Conflict, Error, KeyMissing, Unreachable, WaitTimeout
from .wire import ANSWER_MAX_S, PATIENCE_S, Master

Value = Union[str, bytes]

#: How long one question waits; longer waits are several questions.
_WAIT_S = 20.0
#: Between two tries to reach a master that is not there.
_AGAIN_S = 0.5
_MISSING: Any = object()


@dataclass(frozen=True)
class Entry:
    """A key, its value, and the store's revision that it came with."""

    key: str
    value: bytes
    revision: int
    #: The container with which the key goes away.
    owner: Optional[str] = None


@dataclass(frozen=True)
class Change:
    """What became of a key: `put` or `deleted`."""

    kind: str
    key: str
    value: Optional[bytes]
    revision: int


@dataclass(frozen=True)
class Event:
    """Something that a program wanted to be known."""

    #: Counts from 1, over all names.
    sequence: int
    name: str
    data: bytes
    #: The container it came from; none if it was a person's command.
    by: Optional[str] = None

    @property
    def text(self) -> str:
        """Its data as text."""
        return self.data.decode("utf-8", "replace")


class KeyValue:
    """The job's key-value store. A key has at most 512 bytes, a value 1 MiB."""

    def get(self, key: str, default: Any = _MISSING) -> Any:
        """The value of a key as bytes; :class:`KeyMissing` where there is none and no default is given."""
        try:
            return self.entry(key).value
        except KeyMissing:
            if default is _MISSING:
                raise
            return default

    def get_text(self, key: str, default: Any = _MISSING) -> Any:
        """The same as text."""
        value = self.get(key, default)
        return value.decode("utf-8") if isinstance(value, bytes) else value

    def wait(self, key: str, timeout: Optional[float] = None) -> bytes:
        """The value of a key, as soon as it is there; :class:`WaitTimeout` if that takes longer."""
        raise NotImplementedError

    def entry(self, key: str) -> Entry:
        """A key with its value and revision."""
        raise NotImplementedError

    def put(self, key: str, value: Value, *, owned: bool = False) -> int:
        """Sets a key; the store's new revision. An owned key goes away with this task's container."""
        return self._put(key, value, owned, None)

    def put_if(
        self, key: str, value: Value, *, absent: bool = False, revision: Optional[int] = None, owned: bool = False
    ) -> int:
        """Sets a key only if there is none, or if its revision is still that; otherwise :class:`Conflict`."""
        if absent == (revision is not None):
            raise Error("a key is set if it is absent or if it has a revision: say one of these")
        return self._put(key, value, owned, "absent" if absent else str(revision))

    def delete(self, key: str) -> bool:
        """Deletes a key; whether it was there."""
        raise NotImplementedError

    def delete_prefix(self, prefix: str) -> int:
        """Deletes all keys that begin so; how many these were."""
        raise NotImplementedError

    def list(self, prefix: str = "") -> Dict[str, bytes]:
        """Keys that begin so, and their values."""
        return {entry.key: entry.value for entry in self.entries(prefix)}

    def entries(self, prefix: str = "") -> List[Entry]:
        """The same with revisions and owners."""
        raise NotImplementedError

    def watch(
        self, prefix: str = "", *, after: Optional[int] = None, timeout: Optional[float] = None
    ) -> Iterator[Change]:
        """Changes as they come; without `after` what is there comes first. With a timeout it ends when nothing has
        changed for so long."""
        raise NotImplementedError

    def _put(self, key: str, value: Value, owned: bool, only_if: Optional[str]) -> int:
        raise NotImplementedError


class TaskStore(KeyValue):
    """The store of the job whose task this process is. Nothing is asked before it is used."""

    def __init__(self, *, patience: float = PATIENCE_S, answer_max: float = ANSWER_MAX_S) -> None:
        self._master: Optional[Master] = None
        #: How long a master that is away is looked for, and how long one that is there may take.
        self._how = {"patience": patience, "answer_max": answer_max}

    def _call(self, method: str, path: str, query: Optional[Mapping[str, object]] = None, **more: Any) -> Any:
        if self._master is None:
            self._master = Master()
        return self._master.call(method, path, query, **{**self._how, **more})

    def entry(self, key: str) -> Entry:
        answer = self._call("GET", _path(key))
        return Entry(key, answer.body, int(answer.headers.get("ydl-revision", "0")))

    def wait(self, key: str, timeout: Optional[float] = None) -> bytes:
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _left(end)
            answer = self._call("GET", _path(key), {"wait_ms": int(left * 1000)}, wait=left)
            if answer.status != 204:
                return bytes(answer.body)
            if end is not None and time.monotonic() >= end:
                raise WaitTimeout(f"the key `{key}` did not come within {timeout} s")

    def _put(self, key: str, value: Value, owned: bool, only_if: Optional[str]) -> int:
        query: Dict[str, object] = {}
        if only_if is not None:
            query["if"] = only_if
        if owned:
            query["owned"] = "1"
        # A condition that was met before its answer was lost would be in its own way.
        answer = self._call("PUT", _path(key), query, body=_bytes(value), repeat=only_if is None)
        return int(answer.json()["revision"])

    def delete(self, key: str) -> bool:
        try:
            return int(self._call("DELETE", _path(key)).json()["keys"]) > 0
        except KeyMissing:
            return False

    def delete_prefix(self, prefix: str) -> int:
        return int(self._call("DELETE", "/v1/kv", {"prefix": prefix}).json()["keys"])

    def entries(self, prefix: str = "") -> List[Entry]:
        return self._picture(prefix)[0]

    def _picture(self, prefix: str) -> Tuple[List[Entry], int]:
        found: List[Entry] = []
        while True:
            query: Dict[str, object] = {"prefix": prefix}
            if found:
                query["after_key"] = found[-1].key
            page = self._call("GET", "/v1/kv", query).json()
            entries = [_entry(entry) for entry in page["entries"]]
            found += entries
            if not page.get("more") or not entries:
                return found, int(page["revision"])

    def watch(
        self, prefix: str = "", *, after: Optional[int] = None, timeout: Optional[float] = None
    ) -> Iterator[Change]:
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            if after is None:
                entries, after = self._picture(prefix)
                for entry in entries:
                    yield Change("put", entry.key, entry.value, entry.revision)
            left = _left(end)
            query = {"prefix": prefix, "after": after, "wait_ms": int(left * 1000)}
            answer = self._call("GET", "/v1/watch", query, wait=left)
            nothing: Dict[str, Any] = {"state": "current", "revision": after, "changes": []}
            told = nothing if answer.status == 204 else answer.json()
            if told["state"] == "resync":
                after = None
                continue
            after = int(told["revision"])
            for change in told["changes"]:
                yield _change(change)
            if told["changes"] and timeout is not None:
                end = time.monotonic() + timeout
            elif end is not None and time.monotonic() >= end:
                return


class TaskEvents:
    """The events of the job whose task this process is."""

    def __init__(self, store: TaskStore) -> None:
        self._store = store

    def emit(self, name: str, data: Value = b"") -> int:
        """Tells everybody; the event's number."""
        answer = self._store._call("POST", f"/v1/events/{quote(name, safe='')}", body=_bytes(data), repeat=False)
        return int(answer.json()["sequence"])

    def list(self, name: Optional[str] = None, *, after: int = 0) -> List[Event]:
        """Those there are after that number. The newest 10,000 are kept."""
        found: List[Event] = []
        while True:
            query: Dict[str, object] = {"after": after}
            if name is not None:
                query["name"] = name
            page = self._store._call("GET", "/v1/events", query).json()
            found += [event_of(event) for event in page["events"]]
            if int(page["through"]) <= after:
                return found
            after = int(page["through"])

    def follow(
        self, name: Optional[str] = None, *, after: int = 0, timeout: Optional[float] = None
    ) -> Iterator[Event]:
        """Those after that number, and further ones as they come. With a timeout it ends when none has come for so
        long."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _left(end)
            query: Dict[str, object] = {"after": after, "wait_ms": int(left * 1000)}
            if name is not None:
                query["name"] = name
            answer = self._store._call("GET", "/v1/events", query, wait=left)
            events: List[Event] = []
            if answer.status != 204:
                page = answer.json()
                after = max(after, int(page["through"]))
                events = [event_of(event) for event in page["events"]]
                yield from events
            if events and timeout is not None:
                end = time.monotonic() + timeout
            elif end is not None and time.monotonic() >= end:
                return


class RunStore(KeyValue):
    """The store of a job that runs, for its owner. It goes with the job."""

    def __init__(self, job: str, cluster: Optional[str], env: Optional[Mapping[str, str]]) -> None:
        self._job = job
        self._how: Dict[str, Any] = {"cluster": cluster, "env": env}

    def _call(self, verb: Sequence[str], **more: Any) -> List[Dict[str, Any]]:
        return program.call(["kv", "--job", self._job, *verb], **self._how, **more)

    def entry(self, key: str) -> Entry:
        return _entry(self._one(["get", "--", key], KeyMissing))

    def wait(self, key: str, timeout: Optional[float] = None) -> bytes:
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                told = self._one(["get", f"--wait={int(_left(end) * 1000)}ms", "--", key], WaitTimeout)
                return _blob(told["value"])
            except WaitTimeout:
                if end is not None and time.monotonic() >= end:
                    raise
            except Unreachable:
                # Its master may not run yet, or not again yet.
                if self._is_over():
                    raise
                if end is not None and time.monotonic() >= end:
                    raise WaitTimeout(f"the key `{key}` did not come within {timeout} s") from None
                time.sleep(_AGAIN_S)

    def _is_over(self) -> bool:
        from .run import Run

        return Run(self._job, **self._how).over

    def _one(self, verb: Sequence[str], no: Any) -> Dict[str, Any]:
        """One answer; the binary ends with 1 where it is no."""
        try:
            answers = self._call(verb)
        except Error as error:
            if error.code == 1:
                raise no(error.message, error.hint, error.code) from None
            raise
        if not answers:
            raise Error(f"`ydl kv {verb[0]}` has answered nothing")
        return answers[0]

    def _put(self, key: str, value: Value, owned: bool, only_if: Optional[str]) -> int:
        if owned:
            raise Error("only a task can own a key, which goes away with its container")
        condition = []
        if only_if is not None:
            condition = ["--if-absent"] if only_if == "absent" else [f"--if-revision={only_if}"]
        try:
            answers = self._call(["put", *condition, "--", key], input=_bytes(value))
        except Error as error:
            if error.code == 1:
                raise Conflict(error.message, error.hint, error.code) from None
            raise
        return int(answers[0]["revision"])

    def delete(self, key: str) -> bool:
        try:
            return int(self._one(["rm", "--", key], KeyMissing)["keys"]) > 0
        except KeyMissing:
            return False

    def delete_prefix(self, prefix: str) -> int:
        return int(self._one(["rm", "--prefix", "--", prefix], KeyMissing)["keys"])

    def entries(self, prefix: str = "") -> List[Entry]:
        return [_entry(entry) for entry in self._call(["ls", "--", prefix])]

    def watch(
        self, prefix: str = "", *, after: Optional[int] = None, timeout: Optional[float] = None
    ) -> Iterator[Change]:
        if timeout is not None:
            raise Error("a watch from outside of tasks has no timeout: leave the loop")
        since = [] if after is None else [f"--after={after}"]
        return Changes(program.stream(["kv", "--job", self._job, "watch", *since, "--", prefix], **self._how))


class Changes(Iterator[Change]):
    """Changes as they come. :meth:`close` ends them, from any thread."""

    def __init__(self, told: "program.Stream") -> None:
        self._told = told

    def __next__(self) -> Change:
        return _change(next(self._told))

    def close(self) -> None:
        """Ends it."""
        self._told.close()

    def __del__(self) -> None:
        self.close()


def _left(end: Optional[float]) -> float:
    return _WAIT_S if end is None else max(0.0, min(_WAIT_S, end - time.monotonic()))


def _path(key: str) -> str:
    return f"/v1/kv/{quote(key, safe='')}"


def _bytes(value: Value) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise Error(f"a value is text or bytes, not a `{type(value).__name__}`")


def _blob(told: Mapping[str, str]) -> bytes:
    return told["text"].encode("utf-8") if "text" in told else base64.b64decode(told["base64"])


def _entry(told: Mapping[str, Any]) -> Entry:
    return Entry(str(told["key"]), _blob(told["value"]), int(told["revision"] or 0), told.get("owner"))


def _change(told: Mapping[str, Any]) -> Change:
    if "put" in told:
        entry = _entry(told["put"])
        return Change("put", entry.key, entry.value, entry.revision)
    return Change("deleted", str(told["deleted"]["key"]), None, int(told["deleted"]["revision"]))


def event_of(told: Mapping[str, Any]) -> Event:
    """An event as it travels."""
    return Event(int(told["sequence"]), str(told["name"]), _blob(told["data"]), told.get("by"))
