"""Bases of skein's types: enumerations, values that are compared by their parameters, and parts of a specification."""

import json
from datetime import datetime
from typing import Any, Dict, Iterator, Tuple, Type, TypeVar

T = TypeVar("T", bound="Specification")


class _Sentinel:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return self.name


required: Any = _Sentinel("required")
no_change: Any = _Sentinel("no_change")


class _EnumType(type):
    def __init__(cls, name: str, bases: Tuple[type, ...], members: Dict[str, Any]) -> None:
        super().__init__(name, bases, members)
        for value in cls._values:
            member = object.__new__(cls)
            member._value = value
            setattr(cls, value, member)

    def __iter__(cls) -> Iterator[Any]:
        return (getattr(cls, value) for value in cls._values)

    def __len__(cls) -> int:
        return len(cls._values)


class Enum(metaclass=_EnumType):
    """Enumeration whose members equal their names in any case, as in `state == "running"`."""

    _values: Tuple[str, ...] = ()
    _value: str

    def __new__(cls, value: Any) -> Any:
        if isinstance(value, cls):
            return value
        if not isinstance(value, str):
            raise TypeError("Expected 'str' or {!r}".format(cls.__name__))
        if value.upper() not in cls._values:
            raise ValueError("{!r} must be in {!r}".format(cls.__name__, cls._values))
        return getattr(cls, value.upper())

    def __reduce__(self) -> Any:
        return getattr, (type(self), self._value)

    def __repr__(self) -> str:
        return "{}.{}".format(type(self).__name__, self._value)

    def __str__(self) -> str:
        return self._value

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, str) and self._value == other.upper())

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._value)

    @classmethod
    def values(cls) -> Tuple[str, ...]:
        """Returns the names in the order of their declaration."""
        return cls._values


class Base:
    """Value that is compared and copied by its parameters."""

    _params: Tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(getattr(self, name) == getattr(other, name) for name in self._params)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), {name: getattr(self, name) for name in self._params})

    def _check(self, name: str, kind: Any, *, nullable: bool = False) -> None:
        value = getattr(self, name)
        if not (isinstance(value, kind) or (nullable and value is None)):
            text = _kind(kind) + (", or None" if nullable else "")
            raise TypeError("{} must be a {}".format(name, text))

    def _check_number(self, name: str, least: int = 0) -> None:
        self._check(name, int)
        if getattr(self, name) < least:
            raise ValueError("{} must be >= {}".format(name, least))

    def _check_all(self, name: str, container: type, kind: type) -> None:
        value = getattr(self, name)
        if not isinstance(value, container) or not all(isinstance(item, kind) for item in value):  # type: ignore[attr-defined]
            raise TypeError("{} must be a {} of {}".format(name, container.__name__, _kind(kind)))

    def _check_dict(self, name: str, kind: type) -> None:
        value = getattr(self, name)
        valid = isinstance(value, dict) and all(isinstance(key, str) and isinstance(it, kind) for key, it in value.items())
        if not valid:
            raise TypeError("{} must be a dict of string -> {}".format(name, _kind(kind)))


def _kind(kind: Any) -> str:
    return {str: "string", int: "integer"}.get(kind, kind.__name__)


def _rebuild(cls: Any, parameters: Dict[str, Any]) -> Any:
    return cls(**parameters)


class Specification(Base):
    """Part of a specification, readable from and writable to dictionaries, JSON and YAML."""

    def _validate(self) -> None:
        raise NotImplementedError

    @classmethod
    def _check_keys(cls, obj: Any) -> None:
        if not isinstance(obj, dict):
            raise TypeError("Expected mapping for {!r}".format(cls.__name__))
        extra = sorted(set(obj).difference(cls._params))
        if extra:
            raise ValueError("Unknown extra keys for {}:\n{}".format(cls.__name__, bullets(extra)))

    @classmethod
    def from_dict(cls: Type[T], obj: Dict[str, Any]) -> T:
        """Creates it from a dictionary with its parameters."""
        cls._check_keys(obj)
        return cls(**obj)

    @classmethod
    def from_json(cls: Type[T], b: str) -> T:
        """Creates it from JSON."""
        return cls.from_dict(json.loads(b))

    @classmethod
    def from_yaml(cls: Type[T], b: str) -> T:
        """Creates it from YAML."""
        return cls.from_dict(yaml().safe_load(b))

    def to_dict(self, skip_nulls: bool = True) -> Dict[str, Any]:
        """Returns it as a dictionary."""
        self._validate()
        values = {name: getattr(self, name) for name in self._params}
        return {name: _plain(value, skip_nulls) for name, value in values.items() if not skip_nulls or value is not None}

    def to_json(self, skip_nulls: bool = True) -> str:
        """Returns it as JSON."""
        return json.dumps(self.to_dict(skip_nulls=skip_nulls))

    def to_yaml(self, skip_nulls: bool = True) -> str:
        """Returns it as YAML."""
        text: str = yaml().safe_dump(self.to_dict(skip_nulls=skip_nulls), default_flow_style=False)
        return text


def bullets(lines: Any) -> str:
    """Returns a list in which each line has a bullet."""
    return "\n".join("- {}".format(line) for line in lines)


def yaml() -> Any:
    """Imports PyYAML, which was among skein's dependencies."""
    try:
        import yaml as module
    except ImportError:
        raise ImportError("reading and writing YAML needs the package `pyyaml`; JSON needs no package") from None
    return module


def _plain(value: Any, skip_nulls: bool) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict(skip_nulls)
    if isinstance(value, (list, tuple)):
        return [_plain(item, skip_nulls) for item in value]
    if isinstance(value, set):
        return sorted(_plain(item, skip_nulls) for item in value)
    if isinstance(value, dict):
        return {key: _plain(item, skip_nulls) for key, item in value.items()}
    if isinstance(value, datetime):
        return int(value.timestamp() * 1000)
    return str(value) if isinstance(value, Enum) else value
