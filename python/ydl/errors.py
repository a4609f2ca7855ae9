"""What can go wrong, cut by what a caller can do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from .run import Outcome, Run


class Error(Exception):
    """One sentence, a remedy where there is one, and the code the binary ended with where it did."""

    def __init__(self, message: str, hint: Optional[str] = None, code: Optional[int] = None) -> None:
        super().__init__(message, hint, code)
        self.message = message
        self.hint = hint
        self.code = code

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n\nhint: {self.hint}"


class Unreachable(Error):
    """The job's master, or the cluster, cannot be reached; it may be again later."""


class NotInTask(Error):
    """Something was asked for that only programs of a task have."""


class KeyMissing(Error, KeyError):
    """There is no such key."""


class Conflict(Error):
    """The key is not as it was expected to be."""


class WaitTimeout(Error, TimeoutError):
    """What was waited for has not come in time."""


class JobFailed(Error):
    """The job is over, and has not succeeded."""

    def __init__(
        self,
        run: "Run",
        outcome: "Outcome",
        log: str = "",
        traceback: Optional[str] = None,
        exception: Optional[BaseException] = None,
    ) -> None:
        super().__init__(outcome.why, code=outcome.exit)
        # An exception is copied by its arguments; these are the ones that this class takes.
        self.args = (run, outcome, log, traceback, exception)
        self.run = run
        self.outcome = outcome
        #: The last lines of the task that failed.
        self.log = log
        #: How the function of that task failed, where it was one.
        self.traceback = traceback
        #: The exception itself, where it could be brought here.
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
    """Somebody has ended the job."""
