"""skein's API on top of ydl, see `docs/moving/skein.md`.

It is importable as `skein` in tasks of skein's specifications and of tf-yarn's jobs, there also where skein is installed,
and elsewhere where the distribution `ydl-tf-yarn` is installed without skein.
"""

from typing import Any

from . import exceptions, kv, model, ui, utils
from .application import ApplicationClient
from .core import Client, properties
from .exceptions import (
    ApplicationError,
    ApplicationNotRunningError,
    ConnectionError,
    DriverError,
    DriverNotRunningError,
    SkeinError,
)
from .model import ACLs, ApplicationSpec, File, FileType, FileVisibility, LogLevel, Master, Resources, Security, Service

__version__ = "0.8.2"
"""Version of skein that has these names."""


def __getattr__(name: str) -> Any:
    raise AttributeError("`skein.{}` is not supported by ydl's replacement of skein: see docs/moving/skein.md".format(name))


__all__ = [
    "ACLs",
    "ApplicationClient",
    "ApplicationError",
    "ApplicationNotRunningError",
    "ApplicationSpec",
    "Client",
    "ConnectionError",
    "DriverError",
    "DriverNotRunningError",
    "File",
    "FileType",
    "FileVisibility",
    "LogLevel",
    "Master",
    "Resources",
    "Security",
    "Service",
    "SkeinError",
    "exceptions",
    "kv",
    "model",
    "properties",
    "ui",
    "utils",
]
