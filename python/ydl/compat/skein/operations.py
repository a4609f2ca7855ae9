"""Operations and conditions of skein's key-value store, as steps of the master's transactions."""

import base64
from collections import OrderedDict
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from .exceptions import unsupported
from .model import container_instance_from_string
from .objects import Base, no_change

Entries = List[Dict[str, Any]]
#: Returns the container, such as `worker_0`, of an owner in the store.
Owners = Callable[[Optional[str]], Optional[str]]


class ValueOwnerPair(NamedTuple):
    """Value of a key, and the container that owns it."""

    value: Optional[bytes]
    owner: Optional[str]


class TransactionResult(NamedTuple):
    """Result of a transaction: True if its conditions were met, and the result of each operation."""

    succeeded: bool
    results: List[Any]


class Operation(Base):
    """Operation on the store."""

    #: True if it can be repeated after a lost response.
    repeatable = True

    def step(self) -> Dict[str, Any]:
        """Returns the step of a transaction."""
        raise NotImplementedError

    def result(self, entries: Entries, owners: Owners) -> Any:
        """Returns the operation's result from that of its step."""
        raise NotImplementedError

    def __repr__(self) -> str:
        values = ", ".join("{}={!r}".format(name, getattr(self, name)) for name in self._params)
        return "{}({})".format(type(self).__name__, values)


class Condition(Base):
    """Condition of a transaction."""

    def condition(self) -> Dict[str, Any]:
        """Returns the condition of a transaction."""
        raise NotImplementedError


def is_operation(obj: Any) -> bool:
    """Returns True for an operation."""
    return isinstance(obj, Operation)


def is_condition(obj: Any) -> bool:
    """Returns True for a condition."""
    return isinstance(obj, Condition)


def task_of(container: str) -> str:
    """Returns the task of a container: `worker:0` of `worker_0`."""
    return "{}:{}".format(*container_instance_from_string(container))


def encode(value: bytes) -> Dict[str, str]:
    """Returns a value as the master reads it."""
    return {"base64": base64.b64encode(value).decode("ascii")}


def decode(value: Dict[str, str]) -> bytes:
    """Returns a value of the master."""
    return value["text"].encode("utf-8") if "text" in value else base64.b64decode(value["base64"])


def _pair(entry: Dict[str, Any], owners: Owners) -> ValueOwnerPair:
    return ValueOwnerPair(decode(entry["value"]), owners(entry.get("owner")))


def _dictionary(entries: Entries, owners: Owners, return_owner: bool) -> Any:
    read = (lambda entry: _pair(entry, owners)) if return_owner else (lambda entry: decode(entry["value"]))
    return OrderedDict((entry["key"], read(entry)) for entry in entries)


def _key(obj: Any) -> Dict[str, Any]:
    return {"key": obj.key}


class comparison(Condition):
    """Comparison of the value or the owner of a key."""

    _params = ("key", "field", "operator", "rhs")

    def __init__(self, key: str, field: str, operator: str, rhs: Any) -> None:
        self.key, self.field, self.operator, self.rhs = key, field, operator, rhs
        self._check("key", str)
        if field not in ("value", "owner"):
            raise ValueError("field must be either 'value' or 'owner'")
        if operator not in ("==", "!=", "<", ">", "<=", ">="):
            raise ValueError("operator must be in {'==', '!=', '<', '>', '<=', '>='}")
        if field == "value":
            if not isinstance(rhs, bytes):
                raise TypeError("rhs must be bytes")
            return
        if not (rhs is None or isinstance(rhs, str)):
            raise TypeError("rhs must be a string or None")
        if rhs is not None:
            container_instance_from_string(rhs)
        if operator not in ("==", "!="):
            if rhs is None:
                raise TypeError("Comparison (owner({!r}) {} None) is unsupported".format(key, operator))
            raise unsupported("owner(key) {} id".format(operator), "compare owners with == or !=")

    def __repr__(self) -> str:
        return "{}({!r}) {} {!r}".format(self.field, self.key, self.operator, self.rhs)

    def condition(self) -> Dict[str, Any]:
        if self.field == "value":
            return {"value": {"key": self.key, "operator": self.operator, "value": encode(self.rhs)}}
        owner = "" if self.rhs is None else task_of(self.rhs)
        return {"owner": {"key": self.key, "equal": self.operator == "==", "owner": owner}}


class _Compared(Base):
    _params = ("key",)

    def __init__(self, key: str) -> None:
        self.key = key
        self._check("key", str)

    def _compare(self, operator: str, other: Any) -> comparison:
        return comparison(self.key, type(self).__name__, operator, other)

    def __repr__(self) -> str:
        return "{}({!r})".format(type(self).__name__, self.key)

    def __eq__(self, other: object) -> Any:
        return self._compare("==", other)

    def __ne__(self, other: object) -> Any:
        return self._compare("!=", other)

    def __lt__(self, other: Any) -> comparison:
        return self._compare("<", other)

    def __le__(self, other: Any) -> comparison:
        return self._compare("<=", other)

    def __gt__(self, other: Any) -> comparison:
        return self._compare(">", other)

    def __ge__(self, other: Any) -> comparison:
        return self._compare(">=", other)


class value(_Compared):
    """Value of a key, for comparisons: `value("key") == b"1"`."""


class owner(_Compared):
    """Owner of a key, for comparisons: `owner("key") == "worker_0"`."""


class _Ranged(Operation):
    def _check_range(self) -> None:
        for name in ("start", "end"):
            self._check(name, str, nullable=True)

    def _between(self) -> Dict[str, Any]:
        bounds = {"start": getattr(self, "start"), "end": getattr(self, "end")}
        return {"between": {name: bound for name, bound in bounds.items() if bound is not None}}


class _Listed(_Ranged):
    _params = ("start", "end", "prefix")

    def __init__(self, start: Optional[str] = None, end: Optional[str] = None, prefix: Optional[str] = None) -> None:
        self.start, self.end, self.prefix = start, end, prefix
        self._check_range()
        self._check("prefix", str, nullable=True)
        if prefix is not None and (start is not None or end is not None):
            raise ValueError("Cannot specify `prefix` and `start`/`end`")

    def step(self) -> Dict[str, Any]:
        keys = self._between() if self.prefix is None else {"prefix": self.prefix}
        return {"read": {"keys": keys, "keys_only": True}}


class count(_Listed):
    """Number of keys in a range or with a prefix."""

    def result(self, entries: Entries, owners: Owners) -> int:
        return len(entries)


class list_keys(_Listed):
    """Keys in a range or with a prefix, sorted."""

    def result(self, entries: Entries, owners: Owners) -> List[str]:
        return [entry["key"] for entry in entries]


class get(Operation):
    """Value of a key, or a default."""

    _params = ("key", "default", "return_owner")
    _step = "read"

    def __init__(self, key: str, default: Optional[bytes] = None, return_owner: bool = False) -> None:
        self.key, self.default, self.return_owner = key, default, return_owner
        self._check("key", str)
        self._check("default", bytes, nullable=True)
        self._check("return_owner", bool)

    def step(self) -> Dict[str, Any]:
        return {self._step: {"keys": _key(self)}}

    def result(self, entries: Entries, owners: Owners) -> Any:
        found = _pair(entries[0], owners) if entries else ValueOwnerPair(self.default, None)
        return found if self.return_owner else found.value


class pop(get):
    """Value of a key, or a default; the key is deleted."""

    _step = "delete"
    repeatable = False


class get_prefix(Operation):
    """Keys with a prefix and their values, sorted."""

    _params = ("prefix", "return_owner")
    _step = "read"

    def __init__(self, prefix: str, return_owner: bool = False) -> None:
        self.prefix, self.return_owner = prefix, return_owner
        self._check("prefix", str)
        self._check("return_owner", bool)

    def step(self) -> Dict[str, Any]:
        return {self._step: {"keys": {"prefix": self.prefix}}}

    def result(self, entries: Entries, owners: Owners) -> Any:
        return _dictionary(entries, owners, self.return_owner)


class pop_prefix(get_prefix):
    """Keys with a prefix and their values, which are deleted."""

    _step = "delete"
    repeatable = False


class get_range(_Ranged):
    """Keys from `start` on and before `end` with their values, sorted."""

    _params = ("start", "end", "return_owner")
    _step = "read"

    def __init__(self, start: Optional[str] = None, end: Optional[str] = None, return_owner: bool = False) -> None:
        self.start, self.end, self.return_owner = start, end, return_owner
        self._check_range()
        self._check("return_owner", bool)

    def step(self) -> Dict[str, Any]:
        return {self._step: {"keys": self._between()}}

    def result(self, entries: Entries, owners: Owners) -> Any:
        return _dictionary(entries, owners, self.return_owner)


class pop_range(get_range):
    """Keys from `start` on and before `end` with their values, which are deleted."""

    _step = "delete"
    repeatable = False


class _OfKey(Operation):
    _params = ("key",)

    def __init__(self, key: str) -> None:
        self.key = key
        self._check("key", str)

    def step(self) -> Dict[str, Any]:
        return {"read": {"keys": _key(self), "keys_only": True}}


class exists(_OfKey, Condition):
    """True if a key exists; also a condition."""

    def result(self, entries: Entries, owners: Owners) -> bool:
        return bool(entries)

    def condition(self) -> Dict[str, Any]:
        return {"exists": _key(self)}


class missing(_OfKey, Condition):
    """True if a key does not exist; also a condition."""

    def result(self, entries: Entries, owners: Owners) -> bool:
        return not entries

    def condition(self) -> Dict[str, Any]:
        return {"missing": _key(self)}


class discard(_OfKey):
    """Deletes a key; True if it existed."""

    repeatable = False

    def step(self) -> Dict[str, Any]:
        return {"delete": {"keys": _key(self), "keys_only": True}}

    def result(self, entries: Entries, owners: Owners) -> bool:
        return bool(entries)


class discard_prefix(Operation):
    """Deletes the keys with a prefix; their number, or the keys."""

    _params = ("prefix", "return_keys")
    repeatable = False

    def __init__(self, prefix: str, return_keys: bool = False) -> None:
        self.prefix, self.return_keys = prefix, return_keys
        self._check("prefix", str)
        self._check("return_keys", bool)

    def step(self) -> Dict[str, Any]:
        return {"delete": {"keys": {"prefix": self.prefix}, "keys_only": True}}

    def result(self, entries: Entries, owners: Owners) -> Any:
        return [entry["key"] for entry in entries] if self.return_keys else len(entries)


class discard_range(_Ranged):
    """Deletes the keys from `start` on and before `end`; their number, or the keys."""

    _params = ("start", "end", "return_keys")
    repeatable = False

    def __init__(self, start: Optional[str] = None, end: Optional[str] = None, return_keys: bool = False) -> None:
        self.start, self.end, self.return_keys = start, end, return_keys
        self._check_range()
        self._check("return_keys", bool)

    def step(self) -> Dict[str, Any]:
        return {"delete": {"keys": self._between(), "keys_only": True}}

    def result(self, entries: Entries, owners: Owners) -> Any:
        return [entry["key"] for entry in entries] if self.return_keys else len(entries)


class put(Operation):
    """Sets the value or the owner of a key, or both. Owner None removes the owner."""

    _params = ("key", "value", "owner")

    def __init__(self, key: str, value: Any = no_change, owner: Any = no_change) -> None:
        self.key, self.value, self.owner = key, value, owner
        self._check("key", str)
        if value is no_change and owner is no_change:
            raise ValueError("Must specify 'value', 'owner', or both")
        if value is not no_change:
            self._check("value", bytes)
        if isinstance(owner, str):
            container_instance_from_string(owner)
        elif owner is not None and owner is not no_change:
            raise TypeError("owner must be a string or None")

    def step(self) -> Dict[str, Any]:
        step: Dict[str, Any] = _key(self)
        if self.value is not no_change:
            step["value"] = encode(self.value)
        if self.owner is not no_change:
            step["owner"] = "" if self.owner is None else task_of(self.owner)
        return {"put": step}

    def result(self, entries: Entries, owners: Owners) -> Any:
        return None


class swap(put):
    """Sets the value or the owner of a key, or both, and returns the earlier value."""

    _params = ("key", "value", "owner", "return_owner")
    repeatable = False

    def __init__(self, key: str, value: Any = no_change, owner: Any = no_change, return_owner: bool = False) -> None:
        super().__init__(key, value, owner)
        self.return_owner = return_owner

    def result(self, entries: Entries, owners: Owners) -> Any:
        found = _pair(entries[0], owners) if entries else ValueOwnerPair(None, None)
        return found if self.return_owner else found.value


#: Operations that are methods of the store, too.
OPERATIONS: Any = (
    count, list_keys, exists, missing, get, get_prefix, get_range, pop, pop_prefix, pop_range, discard, discard_prefix,
    discard_range, put, swap,
)
