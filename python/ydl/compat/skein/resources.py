"""Resources of a container, and sizes in skein's notation."""

import math
import re
from typing import Any

from .objects import Specification, required

_UNITS = {"": 2**20, "b": 1}
for _power, _letter in enumerate("kmgtp", 1):
    _UNITS.update({_letter: 1000**_power, _letter + "b": 1000**_power})
    _UNITS.update({_letter + "i": 1024**_power, _letter + "ib": 1024**_power})


def parse_memory(value: Any) -> int:
    """Returns a size in MiB, rounded up. A number alone is in MiB."""
    if isinstance(value, (int, float)):
        size = float(value) * 2**20
    elif isinstance(value, str):
        found = re.match(r"^([0-9][0-9.e+]*)?([a-z]*)$", value.replace(" ", "").lower())
        if not found or not found.group(0) or found.group(2) not in _UNITS:
            raise ValueError("Could not interpret {!r} as a byte unit".format(value))
        size = float(found.group(1) or 1) * _UNITS[found.group(2)]
    else:
        raise TypeError("memory must be an integer, got {!r}".format(type(value).__name__))
    if size < 0:
        raise ValueError("memory must be positive")
    return math.ceil(size / 2**20)


class Resources(Specification):
    """Memory in MiB or with a unit, virtual cores, GPUs and FPGAs of a container."""

    _params = ("memory", "vcores", "gpus", "fpgas")

    def __init__(self, memory: Any = required, vcores: int = required, gpus: int = 0, fpgas: int = 0) -> None:
        for name, value in (("memory", memory), ("vcores", vcores)):
            if value is required:
                raise TypeError("parameter {!r} is required but wasn't provided".format(name))
        self.memory, self.vcores, self.gpus, self.fpgas = memory, vcores, gpus, fpgas
        self._validate()

    @property
    def memory(self) -> int:
        """Memory in MiB."""
        return self._memory

    @memory.setter
    def memory(self, value: Any) -> None:
        self._memory = parse_memory(value)

    def _validate(self, is_request: bool = False) -> None:
        for name in self._params:
            self._check_number(name, 1 if is_request and name in ("memory", "vcores") else 0)

    def __repr__(self) -> str:
        return "Resources<memory={}, vcores={}>".format(self.memory, self.vcores)
