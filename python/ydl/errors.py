"""Exceptions, by what a caller can do about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from .run import Outcome, Run


class Error(Exception):
    """Base class: a message, an optional hint, and the exit code of the binary if it failed."""

    def __init__(self, message: str, hint: Optional[str] = None, exit_code: Optional[int] = None) -> None:
        super().__init__(message, hint, exit_code)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n\nhint: {self.hint}"


class Unreachable(Error):
    """The job's master or the cluster cannot be reached. A retry may succeed."""


class NotInTask(Error):
    """The call works only inside of a task."""


class KeyMissing(Error, KeyError):
    """The key does not exist."""


class Conflict(Error):
    """The condition of a write does not hold."""


class WaitTimeout(Error, TimeoutError):
    """A wait exceeded its timeout."""


class JobFailed(Error):
    """The job ended without success."""

    def __init__(
        self,
        run: "Run",
        outcome: "Outcome",
        log: str = "",
        traceback: Optional[str] = None,
        exception: Optional[BaseException] = None,
    ) -> None:
        super().__init__(outcome.reason, exit_code=outcome.exit_code)
        # Exceptions are copied by their arguments, which are those of this class.
        self.args = (run, outcome, log, traceback, exception)
        self.run = run
        self.outcome = outcome
        #: The last lines of the task that failed.
        self.log = log
        #: The traceback, if the task ran a function.
        self.traceback = traceback
        #: The exception, if it could be transferred.
        self.exception = exception

    @property
    def task(self) -> Optional[str]:
        """The task that failed, such as `worker:3`."""
        return self.outcome.task

    def __str__(self) -> str:
        parts = [self.message]
        if self.traceback:
            parts.append(self.traceback.rstrip())
        elif self.log:
            parts.append(self.log.rstrip())
        return "\n\n".join(parts)


class JobKilled(JobFailed):
    """The job was killed."""
