"""Module `skein.kv`: the job's key-value store with skein's methods."""

import threading
from collections.abc import MutableMapping
from typing import Any, Dict, Iterator, List, Optional, Tuple
from urllib.parse import quote

from .events import Event, EventFilter, EventQueue, EventType
from .operations import (
    OPERATIONS,
    Condition,
    Operation,
    TransactionResult,
    ValueOwnerPair,
    comparison,
    count,
    decode,
    discard,
    discard_prefix,
    discard_range,
    exists,
    get,
    get_prefix,
    get_range,
    is_condition,
    is_operation,
    list_keys,
    missing,
    owner,
    pop,
    pop_prefix,
    pop_range,
    put,
    swap,
    value,
)

#: Maximum wait of one request.
_WAIT_S = 20.0


class KeyValueStore(MutableMapping):  # type: ignore[type-arg]
    """Mapping of keys to bytes, with atomic operations, owners and events. `client` is the application's."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __iter__(self) -> Iterator[str]:
        return iter(self._apply(list_keys()))

    def __len__(self) -> int:
        number: int = self._apply(count())
        return number

    def __getitem__(self, key: str) -> bytes:
        found = self._apply(get(key))
        if found is None:
            raise KeyError(key)
        return bytes(found)

    def __setitem__(self, key: str, new: bytes) -> None:
        self._apply(put(key, new))

    def __delitem__(self, key: str) -> None:
        if not self._apply(discard(key)):
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return bool(self._apply(exists(key)))  # type: ignore[arg-type]

    def clear(self) -> None:
        """Deletes all keys."""
        self._apply(discard_range())

    def setdefault(self, key: str, default: bytes) -> bytes:  # type: ignore[override]
        """Returns the value of a key, which is set to the default first if it does not exist."""
        done = self.transaction([exists(key)], [get(key)], [put(key, default)])
        return bytes(done.results[0]) if done.succeeded else default

    def update(self, *mappings: Any, **values: bytes) -> None:  # type: ignore[override]
        """Sets several keys together."""
        if len(mappings) > 1:
            raise TypeError("update expected at most 1 arguments, got {}".format(len(mappings)))
        pairs: Dict[str, bytes] = dict(*mappings)
        pairs.update(values)
        self.transaction(on_success=[put(key, new) for key, new in pairs.items()])

    def wait(self, key: str, return_owner: bool = False) -> Any:
        """Waits for a key and returns its value, with `return_owner` also its owner."""
        while True:
            query = {"wait_ms": int(_WAIT_S * 1000)}
            response = self._client._call("GET", "/v1/kv/" + quote(key, safe=""), query, wait=_WAIT_S)
            if response.status == 204:
                continue
            if not return_owner:
                return bytes(response.body)
            found = self._apply(get(key, return_owner=True))
            if found.value is not None:
                return found

    def event_queue(self) -> EventQueue:
        """Returns a queue of events without filters."""
        return EventQueue(self)

    def events(self, event_filter: Optional[EventFilter] = None, **arguments: Any) -> EventQueue:
        """Returns a queue of events with one filter, given or of these arguments."""
        queue = self.event_queue()
        queue.subscribe(event_filter, **arguments)
        return queue

    def transaction(self, conditions: Any = None, on_success: Any = None, on_failure: Any = None) -> TransactionResult:
        """Applies the first operations together if all conditions are met, otherwise the second ones."""
        conditions, on_success, on_failure = conditions or [], on_success or [], on_failure or []
        if not all(is_condition(condition) for condition in conditions):
            raise TypeError("conditions must be a sequence of Condition")
        for name, operations in (("on_success", on_success), ("on_failure", on_failure)):
            if not all(is_operation(operation) for operation in operations):
                raise TypeError("{} must be a sequence of Operation".format(name))
        body = {
            "if": [condition.condition() for condition in conditions],
            "then": [operation.step() for operation in on_success],
            "else": [operation.step() for operation in on_failure],
        }
        # After a lost response the conditions may no longer hold.
        repeat = not conditions and all(operation.repeatable for operation in on_success)
        outcome = self._client._call("POST", "/v1/kv", body=body, repeat=repeat).json()
        operations = on_success if outcome["succeeded"] else on_failure
        owners = self._client._owners()
        results = [operation.result(entries, owners) for operation, entries in zip(operations, outcome["results"])]
        return TransactionResult(outcome["succeeded"], results)

    def _apply(self, operation: Operation) -> Any:
        return self.transaction(on_success=[operation]).results[0]

    def _changes(self, event_filter: EventFilter, stopped: threading.Event) -> Iterator[Optional[Event]]:
        """Yields None once, and then the events of a filter until it is stopped."""
        prefix = {"prefix": event_filter.watched}
        owners = self._client._owners()
        after = int(self._client._call("GET", "/v1/kv", {**prefix, "limit": 1}).json()["revision"])
        yield None
        while not stopped.is_set():
            query = {**prefix, "after": after, "wait_ms": int(_WAIT_S * 1000)}
            response = self._client._call("GET", "/v1/watch", query, wait=_WAIT_S)
            if response.status == 204:
                continue
            update = response.json()
            changes: List[Dict[str, Any]] = update.get("changes") or []
            revision = int(update["revision"])
            if update["state"] == "resync":
                # Deletions since then are unknown.
                entries, revision = self._listed(prefix)
                changes = [{"put": entry} for entry in entries if after < int(entry["revision"]) <= revision]
            after = revision
            for change in changes:
                entry = change.get("put")
                key = (entry or change["deleted"])["key"]
                event_type = EventType("DELETE" if entry is None else "PUT")
                if event_filter.selects(key, event_type):
                    pair = None if entry is None else ValueOwnerPair(decode(entry["value"]), owners(entry.get("owner")))
                    yield Event(key, pair, event_type, event_filter)

    def _listed(self, prefix: Dict[str, str]) -> Tuple[List[Dict[str, Any]], int]:
        """Returns all entries, and the revision of the first page: the next request for changes returns what changed later."""
        entries: List[Dict[str, Any]] = []
        revision: Optional[int] = None
        while True:
            query = {**prefix, "after_key": entries[-1]["key"]} if entries else prefix
            page = self._client._call("GET", "/v1/kv", query).json()
            revision = int(page["revision"]) if revision is None else revision
            entries += page["entries"]
            if not page.get("more") or not page["entries"]:
                return entries, revision


def _add_method(operation: Any) -> None:
    def method(self: KeyValueStore, *args: Any, **kwargs: Any) -> Any:
        return self._apply(operation(*args, **kwargs))

    method.__name__, method.__doc__ = operation.__name__, operation.__doc__
    setattr(KeyValueStore, operation.__name__, method)


for _operation in OPERATIONS:
    _add_method(_operation)

__all__ = [
    "Condition",
    "Event",
    "EventFilter",
    "EventQueue",
    "EventType",
    "KeyValueStore",
    "Operation",
    "TransactionResult",
    "ValueOwnerPair",
    "comparison",
    "count",
    "discard",
    "discard_prefix",
    "discard_range",
    "exists",
    "get",
    "get_prefix",
    "get_range",
    "is_condition",
    "is_operation",
    "list_keys",
    "missing",
    "owner",
    "pop",
    "pop_prefix",
    "pop_range",
    "put",
    "swap",
    "value",
]
