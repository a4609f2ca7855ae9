"""Events of skein's key-value store: changes of keys that a filter selects."""

import queue
import threading
import weakref
from typing import Any, Callable, Dict, Iterator, NamedTuple, Optional, Set

from .objects import Enum
from .operations import ValueOwnerPair


class EventType(Enum):
    """Type of an event."""

    _values = ("ALL", "PUT", "DELETE")


class EventFilter:
    """Selects events by key, by prefix or by a range of keys, and by type; without arguments all."""

    def __init__(
        self,
        key: Optional[str] = None,
        prefix: Optional[str] = None,
        start: Optional[str] = None,
        end: Optional[str] = None,
        event_type: Any = None,
    ) -> None:
        if (key is not None) + (prefix is not None) + (start is not None or end is not None) > 1:
            raise ValueError("Must specify at most one of `key`, `prefix`, or `start`/`end`")
        for name, text in (("key", key), ("prefix", prefix)):
            if not (text is None or isinstance(text, str)):
                raise TypeError(name + " must be a string")
        for name, text in (("start", start), ("end", end)):
            if not (text is None or isinstance(text, str)):
                raise TypeError(name + " must be a string or None")
        #: Prefix of all selected keys.
        self.watched = key if key is not None else prefix or ""
        if key is not None:
            start, end = key, key + "\x00"
        elif prefix:
            start, end = prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)
        self._start, self._end = start, end
        self._event_type = EventType("ALL" if event_type is None else event_type)

    start = property(lambda self: self._start)
    end = property(lambda self: self._end)
    event_type = property(lambda self: self._event_type)

    def selects(self, key: str, event_type: Any) -> bool:
        """Returns True for a selected event."""
        within = (self._start is None or key >= self._start) and (self._end is None or key < self._end)
        return within and self._event_type in (EventType("ALL"), event_type)

    def __repr__(self) -> str:
        return "EventFilter(start={!r}, end={!r}, event_type={!r})".format(self.start, self.end, self.event_type)

    def _identity(self) -> Any:
        return self.start, self.end, self.event_type

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EventFilter) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __reduce__(self) -> Any:
        return EventFilter, (None, None, self.start, self.end, self.event_type)


class Event(NamedTuple):
    """Change of a key."""

    key: str
    result: Optional[ValueOwnerPair]
    event_type: Any
    event_filter: EventFilter


class Watch:
    """Thread that puts the events of a filter into a queue until it is stopped."""

    def __init__(self, changes: Callable[[str, threading.Event], Iterator[Event]], event_filter: EventFilter, to: Any) -> None:
        self.stopped = threading.Event()
        # The first item says that the watch has begun.
        self._items = changes(event_filter, self.stopped)  # type: ignore[arg-type]
        next(self._items)
        self._to = weakref.ref(to)
        thread = threading.Thread(target=self._run, name="skein-events", daemon=True)
        thread.start()

    def _run(self) -> None:
        try:
            for event in self._items:
                target = self._to()
                if target is None or self.stopped.is_set():
                    return
                target.put(event)
        except Exception as error:  # noqa: BLE001
            target = self._to()
            if target is not None:
                target.put(error)


class EventQueue:
    """Queue of the events of its filters, and an iterator over them. An event is queued once for each filter."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.filters: Set[EventFilter] = set()
        self._watches: Dict[EventFilter, Watch] = {}
        self._queue: "queue.Queue[Any]" = queue.Queue()
        self._exception: Optional[Exception] = None

    def __repr__(self) -> str:
        return "EventQueue<{} filters>".format(len(self.filters))

    def __iter__(self) -> Iterator[Event]:
        while True:
            yield self.get()

    def __enter__(self) -> "EventQueue":
        return self

    def __exit__(self, *_: object) -> None:
        self.unsubscribe_all()

    def __del__(self) -> None:
        self.unsubscribe_all()

    def get(self, block: bool = True, timeout: Optional[float] = None) -> Event:
        """Returns the next event; raises `queue.Empty` after the timeout."""
        if self._exception is not None:
            raise self._exception
        item = self._queue.get(block, timeout)
        if isinstance(item, Exception):
            self._exception = item
            raise item
        event: Event = item
        return event

    def put(self, item: Any, block: bool = True, timeout: Optional[float] = None) -> None:
        """Adds an event."""
        self._queue.put(item, block, timeout)

    def subscribe(self, event_filter: Optional[EventFilter] = None, **arguments: Any) -> EventFilter:
        """Adds a filter, given or of these arguments, and returns it."""
        chosen = _filter(event_filter, arguments)
        if chosen not in self.filters:
            self._watches[chosen] = Watch(self._store._changes, chosen, self)
            self.filters.add(chosen)
        return chosen

    def unsubscribe(self, event_filter: Optional[EventFilter] = None, **arguments: Any) -> EventFilter:
        """Removes a filter, given or of these arguments, and returns it."""
        chosen = _filter(event_filter, arguments)
        if chosen not in self.filters:
            raise ValueError("not currently subscribed to {!r}".format(chosen))
        self._watches.pop(chosen).stopped.set()
        self.filters.discard(chosen)
        return chosen

    def unsubscribe_all(self) -> None:
        """Removes all filters."""
        for event_filter in list(self.filters):
            self.unsubscribe(event_filter)


def _filter(event_filter: Optional[EventFilter], arguments: Dict[str, Any]) -> EventFilter:
    if event_filter is None:
        return EventFilter(**arguments)
    if any(value is not None for value in arguments.values()):
        raise ValueError("Cannot provide ``event_filter`` and other arguments")
    if not isinstance(event_filter, EventFilter):
        raise TypeError("event_filter must be an EventFilter")
    return event_filter
