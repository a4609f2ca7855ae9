"""Exceptions of skein, under its names and with its base classes."""

import builtins
from contextlib import contextmanager
from typing import Iterator

from ...errors import Error, KeyMissing, NotInTask, Unreachable


class SkeinError(Exception):
    """Base class of skein's exceptions."""


class ConnectionError(SkeinError, builtins.ConnectionError):
    """The cluster or the master cannot be reached."""


class TimeoutError(SkeinError, builtins.TimeoutError):
    """A request timed out."""


class DriverNotRunningError(ConnectionError):
    """Kept for programs that catch it: ydl has no driver."""


class ApplicationNotRunningError(ConnectionError):
    """The application does not run."""


class DriverError(SkeinError):
    """A command failed."""


class ApplicationError(SkeinError):
    """The master rejected a request."""


FileExistsError = builtins.FileExistsError
FileNotFoundError = builtins.FileNotFoundError


def unsupported(what: str, replacement: str) -> NotImplementedError:
    """Returns the exception for a part of skein that ydl does not have."""
    return NotImplementedError("`{}` is not supported: {}; see docs/moving/skein.md".format(what, replacement))


@contextmanager
def translated() -> Iterator[None]:
    """Raises the errors of the master as skein's exceptions."""
    try:
        yield
    except NotInTask:
        raise ValueError("Not running inside a container") from None
    except Unreachable as error:
        raise ConnectionError("Unable to connect to application: {}".format(error.message)) from None
    except KeyMissing:
        raise
    except Error as error:
        raise ValueError(_text(error)) from None


@contextmanager
def translated_command() -> Iterator[None]:
    """Raises the errors of a command as skein's exceptions."""
    try:
        yield
    except Unreachable as error:
        raise ConnectionError("Unable to connect to driver: {}".format(_text(error))) from None
    except Error as error:
        raise DriverError(_text(error)) from None


def _text(error: Error) -> str:
    return error.message + ("\nhint: " + error.hint if error.hint else "")


__all__ = [
    "ApplicationError",
    "ApplicationNotRunningError",
    "ConnectionError",
    "DriverError",
    "DriverNotRunningError",
    "FileExistsError",
    "FileNotFoundError",
    "SkeinError",
    "TimeoutError",
]
