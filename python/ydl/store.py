"""Key-value store and events of a job: inside of a task through the master's HTTP API, outside through the binary."""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union
from urllib.parse import quote

from . import program
from .errors import Conflict, Error, KeyMissing, Unreachable, WaitTimeout
from .master_client import RESPONSE_TIMEOUT_S, RETRY_TIMEOUT_S, MasterClient

Value = Union[str, bytes]

#: Maximum wait of one request.
_WAIT_S = 20.0
#: Delay between retries while the master cannot be reached.
_RETRY_DELAY_S = 0.5
_MISSING: Any = object()


@dataclass(frozen=True)
class Entry:
    """Key with its value and the revision of its last change."""

    key: str
    value: bytes
    revision: int
    #: Container at whose end the key is deleted.
    owner: Optional[str] = None


@dataclass(frozen=True)
class Change:
    """Change of a key: `put` or `deleted`."""

    kind: str
    key: str
    value: Optional[bytes]
    revision: int


@dataclass(frozen=True)
class Event:
    """Event that a program emitted."""

    #: Number of the event over all names, from 1.
    sequence: int
    name: str
    data: bytes
    #: Container of the sender; None if a command emitted it.
    container: Optional[str] = None

    @property
    def text(self) -> str:
        """Data as text."""
        return self.data.decode("utf-8", "replace")


class KeyValue:
    """Key-value store of a job. Limits: 512 bytes for a key, 1 MiB for a value."""

    def get(self, key: str, default: Any = _MISSING) -> Any:
        """Returns the value of a key as bytes, or the default. Raises :class:`KeyMissing` without a default."""
        try:
            return self.entry(key).value
        except KeyMissing:
            if default is _MISSING:
                raise
            return default

    def get_text(self, key: str, default: Any = _MISSING) -> Any:
        """Returns the value of a key as text, or the default."""
        value = self.get(key, default)
        return value.decode("utf-8") if isinstance(value, bytes) else value

    def wait(self, key: str, timeout: Optional[float] = None) -> bytes:
        """Waits for a key and returns its value. Raises :class:`WaitTimeout` after the timeout."""
        raise NotImplementedError

    def entry(self, key: str) -> Entry:
        """Returns a key with its value and revision."""
        raise NotImplementedError

    def put(self, key: str, value: Value, *, owned: bool = False) -> int:
        """Sets a key and returns the new revision. An owned key is deleted at the end of this task's container."""
        return self._put(key, value, owned, None)

    def put_if(
        self, key: str, value: Value, *, absent: bool = False, revision: Optional[int] = None, owned: bool = False
    ) -> int:
        """Sets a key if it is absent, or if its revision matches. Raises :class:`Conflict` otherwise."""
        if absent == (revision is not None):
            raise Error("pass either `absent=True` or `revision`")
        return self._put(key, value, owned, "absent" if absent else str(revision))

    def delete(self, key: str) -> bool:
        """Deletes a key. Returns True if it existed."""
        raise NotImplementedError

    def delete_prefix(self, prefix: str) -> int:
        """Deletes all keys with a prefix and returns their number."""
        raise NotImplementedError

    def list(self, prefix: str = "") -> Dict[str, bytes]:
        """Returns keys with a prefix and their values."""
        return {entry.key: entry.value for entry in self.entries(prefix)}

    def entries(self, prefix: str = "") -> List[Entry]:
        """Returns keys with a prefix, with revisions and owners."""
        raise NotImplementedError

    def watch(
        self, prefix: str = "", *, after: Optional[int] = None, timeout: Optional[float] = None
    ) -> Iterator[Change]:
        """Yields changes; without `after` existing keys come first. Ends if nothing changes within the timeout."""
        raise NotImplementedError

    def _put(self, key: str, value: Value, owned: bool, only_if: Optional[str]) -> int:
        raise NotImplementedError


class TaskStore(KeyValue):
    """Store of this task's job. It connects at the first call.

    `retry_timeout` limits retries while the master cannot be reached, `response_timeout` limits one request.
    """

    def __init__(self, *, retry_timeout: float = RETRY_TIMEOUT_S, response_timeout: float = RESPONSE_TIMEOUT_S) -> None:
        self._master: Optional[MasterClient] = None
        self._timeouts = {"retry_timeout": retry_timeout, "response_timeout": response_timeout}

    def _call(self, method: str, path: str, query: Optional[Mapping[str, object]] = None, **options: Any) -> Any:
        if self._master is None:
            self._master = MasterClient()
        return self._master.call(method, path, query, **{**self._timeouts, **options})

    def entry(self, key: str) -> Entry:
        response = self._call("GET", _path(key))
        return Entry(key, response.body, int(response.headers.get("ydl-revision", "0")))

    def wait(self, key: str, timeout: Optional[float] = None) -> bytes:
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _left(end)
            response = self._call("GET", _path(key), {"wait_ms": int(left * 1000)}, wait=left)
            if response.status != 204:
                return bytes(response.body)
            if end is not None and time.monotonic() >= end:
                raise WaitTimeout(f"key `{key}` was not set within {timeout} s")

    def _put(self, key: str, value: Value, owned: bool, only_if: Optional[str]) -> int:
        query: Dict[str, object] = {}
        if only_if is not None:
            query["if"] = only_if
        if owned:
            query["owned"] = "1"
        # Not repeated with a condition: if the response was lost, the condition no longer holds.
        response = self._call("PUT", _path(key), query, body=_bytes(value), repeat=only_if is None)
        return int(response.json()["revision"])

    def delete(self, key: str) -> bool:
        try:
            return int(self._call("DELETE", _path(key)).json()["keys"]) > 0
        except KeyMissing:
            return False

    def delete_prefix(self, prefix: str) -> int:
        return int(self._call("DELETE", "/v1/kv", {"prefix": prefix}).json()["keys"])

    def entries(self, prefix: str = "") -> List[Entry]:
        return self._snapshot(prefix)[0]

    def _snapshot(self, prefix: str) -> Tuple[List[Entry], int]:
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
                entries, after = self._snapshot(prefix)
                for entry in entries:
                    yield Change("put", entry.key, entry.value, entry.revision)
            left = _left(end)
            query = {"prefix": prefix, "after": after, "wait_ms": int(left * 1000)}
            response = self._call("GET", "/v1/watch", query, wait=left)
            unchanged: Dict[str, Any] = {"state": "current", "revision": after, "changes": []}
            update = unchanged if response.status == 204 else response.json()
            if update["state"] == "resync":
                after = None
                continue
            after = int(update["revision"])
            for change in update["changes"]:
                yield _change(change)
            if update["changes"] and timeout is not None:
                end = time.monotonic() + timeout
            elif end is not None and time.monotonic() >= end:
                return


class TaskEvents:
    """Events of this task's job."""

    def __init__(self, store: TaskStore) -> None:
        self._store = store

    def emit(self, name: str, data: Value = b"") -> int:
        """Emits an event and returns its number."""
        response = self._store._call("POST", f"/v1/events/{quote(name, safe='')}", body=_bytes(data), repeat=False)
        return int(response.json()["sequence"])

    def list(self, name: Optional[str] = None, *, after: int = 0) -> List[Event]:
        """Returns the events after a number. The newest 10,000 are kept."""
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
        """Yields the events after a number, and new ones. Ends if there is none within the timeout."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _left(end)
            query: Dict[str, object] = {"after": after, "wait_ms": int(left * 1000)}
            if name is not None:
                query["name"] = name
            response = self._store._call("GET", "/v1/events", query, wait=left)
            events: List[Event] = []
            if response.status != 204:
                page = response.json()
                after = max(after, int(page["through"]))
                events = [event_of(event) for event in page["events"]]
                yield from events
            if events and timeout is not None:
                end = time.monotonic() + timeout
            elif end is not None and time.monotonic() >= end:
                return


class RunStore(KeyValue):
    """Store of a running job, for its owner. It ends with the job."""

    def __init__(self, job: str, cluster: Optional[str], env: Optional[Mapping[str, str]]) -> None:
        self._job = job
        self._options: Dict[str, Any] = {"cluster": cluster, "env": env}

    def _call(self, arguments: Sequence[str], **options: Any) -> List[Dict[str, Any]]:
        return program.call(["kv", "--job", self._job, *arguments], **self._options, **options)

    def entry(self, key: str) -> Entry:
        return _entry(self._call_one(["get", "--", key], KeyMissing))

    def wait(self, key: str, timeout: Optional[float] = None) -> bytes:
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                record = self._call_one(["get", f"--wait={int(_left(end) * 1000)}ms", "--", key], WaitTimeout)
                return _decode(record["value"])
            except WaitTimeout:
                if end is not None and time.monotonic() >= end:
                    raise
            except Unreachable:
                # The master may be starting or restarting.
                if self._has_ended():
                    raise
                if end is not None and time.monotonic() >= end:
                    raise WaitTimeout(f"key `{key}` was not set within {timeout} s") from None
                time.sleep(_RETRY_DELAY_S)

    def _has_ended(self) -> bool:
        from .run import Run

        return Run(self._job, **self._options).done

    def _call_one(self, arguments: Sequence[str], not_found: Any) -> Dict[str, Any]:
        """Returns one object. Raises `not_found` if the binary exits with code 1."""
        try:
            records = self._call(arguments)
        except Error as error:
            if error.exit_code == 1:
                raise not_found(error.message, error.hint, error.exit_code) from None
            raise
        if not records:
            raise Error(f"`ydl kv {arguments[0]}` printed nothing")
        return records[0]

    def _put(self, key: str, value: Value, owned: bool, only_if: Optional[str]) -> int:
        if owned:
            raise Error("only a task can own a key, which is deleted at the end of its container")
        condition = []
        if only_if is not None:
            condition = ["--if-absent"] if only_if == "absent" else [f"--if-revision={only_if}"]
        try:
            records = self._call(["put", *condition, "--", key], input=_bytes(value))
        except Error as error:
            if error.exit_code == 1:
                raise Conflict(error.message, error.hint, error.exit_code) from None
            raise
        return int(records[0]["revision"])

    def delete(self, key: str) -> bool:
        try:
            return int(self._call_one(["rm", "--", key], KeyMissing)["keys"]) > 0
        except KeyMissing:
            return False

    def delete_prefix(self, prefix: str) -> int:
        return int(self._call_one(["rm", "--prefix", "--", prefix], KeyMissing)["keys"])

    def entries(self, prefix: str = "") -> List[Entry]:
        return [_entry(entry) for entry in self._call(["ls", "--", prefix])]

    def watch(
        self, prefix: str = "", *, after: Optional[int] = None, timeout: Optional[float] = None
    ) -> Iterator[Change]:
        if timeout is not None:
            raise Error("`timeout` of `watch` works only in tasks")
        after_flag = [] if after is None else [f"--after={after}"]
        return Changes(program.stream(["kv", "--job", self._job, "watch", *after_flag, "--", prefix], **self._options))


class Changes(Iterator[Change]):
    """Iterator of changes. :meth:`close` ends it, from any thread."""

    def __init__(self, stream: "program.Stream") -> None:
        self._stream = stream

    def __next__(self) -> Change:
        return _change(next(self._stream))

    def close(self) -> None:
        """Ends the iterator."""
        self._stream.close()

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
    raise Error(f"expected text or bytes, got `{type(value).__name__}`")


def _decode(value: Mapping[str, str]) -> bytes:
    return value["text"].encode("utf-8") if "text" in value else base64.b64decode(value["base64"])


def _entry(record: Mapping[str, Any]) -> Entry:
    return Entry(str(record["key"]), _decode(record["value"]), int(record["revision"] or 0), record.get("owner"))


def _change(record: Mapping[str, Any]) -> Change:
    if "put" in record:
        entry = _entry(record["put"])
        return Change("put", entry.key, entry.value, entry.revision)
    return Change("deleted", str(record["deleted"]["key"]), None, int(record["deleted"]["revision"]))


def event_of(record: Mapping[str, Any]) -> Event:
    """Parses an event."""
    return Event(int(record["sequence"]), str(record["name"]), _decode(record["data"]), record.get("by"))
