"""Module `skein.model`."""

from typing import Any

from ..tf_yarn.application import ACLs
from . import missing


def __getattr__(name: str) -> Any:
    raise missing("skein.model." + name)


__all__ = ["ACLs"]
