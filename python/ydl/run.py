"""Submitted jobs: status, output, results and outcome."""

from __future__ import annotations

import contextlib
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from . import function_results, notebook, program
from .errors import Error, JobFailed, JobKilled, Unreachable, WaitTimeout
from .store import Event, KeyValue, RunStore, event_of

#: States of a job that has ended.
_ENDED = ("succeeded", "failed", "killed", "lost", "finished")
#: Maximum wait of one call of the binary, which outlives this process for no longer if it is killed.
_WAIT_S = 60.0
#: Pause between calls.
_RETRY_INTERVAL_S = 0.2
#: Timeouts of a status call beyond its wait, without and with a timeout of the caller.
_STATUS_TIMEOUT_S, _SHORT_STATUS_TIMEOUT_S = 300.0, 30.0
#: Waiting fails after the job was unreachable for this time.
_MAX_UNREACHABLE_S = 900.0
#: Number of last lines of a failed task.
_TAIL = 40


@dataclass(frozen=True)
class Metric:
    """The latest value of a metric."""

    value: float
    step: Optional[int]
    #: Time of the report, in ms since 1970.
    at: int


@dataclass(frozen=True)
class TaskStatus:
    """Status of a task."""

    task: str
    state: str
    attempt: int
    node: Optional[str]
    last_ending: Optional[str]
    #: Resources that its processes use, if known: `cpu_percent`, `memory_bytes`, `gpus`, …
    usage: Mapping[str, Any]
    metrics: Mapping[str, Metric]


@dataclass(frozen=True)
class Outcome:
    """Outcome of a job."""

    #: `succeeded`, `failed` or `killed`; `lost` if unknown.
    state: str
    #: The reason, in one sentence.
    reason: str
    #: The task that failed, such as `worker:3`, if a task did.
    task: Optional[str] = None
    #: Its exit code, or 128 plus the signal.
    exit_code: Optional[int] = None
    #: The last lines that it wrote to stderr.
    stderr_tail: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def succeeded(self) -> bool:
        """True if the job succeeded."""
        return self.state == "succeeded"


@dataclass(frozen=True)
class Status:
    """Status of a job."""

    id: str
    name: str
    #: `pending`, `running`, …, `succeeded`, `failed`, `killed`, `lost`.
    state: str
    #: Reason of the state, in one sentence: the resource that a pending job waits for, or the outcome.
    reason: str
    round: int
    tasks: Tuple[TaskStatus, ...]
    outcome: Optional[Outcome]
    #: The directory of the job.
    directory: str
    raw: Mapping[str, Any] = field(repr=False)

    @property
    def done(self) -> bool:
        """True if the job has ended."""
        return self.state in _ENDED

    @property
    def metrics(self) -> Dict[str, Dict[str, Metric]]:
        """Reported metrics: the latest value by task and name."""
        return {task.task: dict(task.metrics) for task in self.tasks if task.metrics}


@dataclass(frozen=True)
class LogLine:
    """Line of a task's output."""

    task: str
    attempt: int
    #: `stdout` or `stderr`.
    stream: str
    text: str

    def __str__(self) -> str:
        return self.text


class Run:
    """Submitted job, given by its id, the beginning of the id, or its name (the newest of that name).

    `cluster` and `env` are those of :meth:`Job.submit`. A notebook shows it as a table that is updated until the job ends.
    """

    def __init__(self, id: str, *, cluster: Optional[str] = None, env: Optional[Mapping[str, str]] = None) -> None:
        self.id = id
        #: Row of `ydl ls --json` if the run comes from :func:`runs`: `name`, `state`, `submitted` (in ms since 1970) and others.
        self.summary: Mapping[str, Any] = {}
        self._options: Dict[str, Any] = {"cluster": cluster, "env": None if env is None else dict(env)}
        self._last: Optional[Status] = None
        self._functions = False
        #: True if this process submitted it.
        self._submitted_here = False
        #: Roles whose tasks call functions, if known.
        self._roles: Tuple[str, ...] = ()

    def status(self) -> Status:
        """Returns the current status."""
        return self._wait_status(0.0, None)

    def _wait_status(self, wait: float, extra: Optional[float]) -> Status:
        """Returns the status when the job has ended, or after `wait`. The call may take `extra` seconds longer."""
        if self._last is not None and self._last.done:
            return self._last
        wait_flags = [f"--wait={int(wait * 1000)}ms"] if wait > 0 else []
        # An unreachable master is part of the status.
        accepted_codes = (0, program.UNREACHABLE)
        timeout = None if extra is None else wait + extra
        raw = program.call_one(["status", *wait_flags, self.id], accepted_codes=accepted_codes, timeout=timeout, **self._options)
        self._last = _status(raw)
        return self._last

    @property
    def done(self) -> bool:
        """True if the job has ended."""
        return self.status().done

    @property
    def name(self) -> str:
        """Name of the job."""
        return str(self.summary.get("name") or (self._last or self.status()).name)

    def wait(
        self, timeout: Optional[float] = None, *, on_output: Optional[Callable[[LogLine], None]] = None
    ) -> Outcome:
        """Waits until the job ends. Returns its outcome if it succeeded, otherwise raises :class:`JobFailed` or
        :class:`JobKilled`. `on_output` is called with each line that tasks print meanwhile.

        After `timeout` seconds it raises :class:`WaitTimeout`. The job continues then, and also after an interrupt
        (Ctrl-C); :meth:`kill` ends it.
        """
        end = None if timeout is None else time.monotonic() + timeout
        if on_output is not None:
            if timeout is not None:
                raise Error("`timeout` and `on_output` exclude each other")
            for line in self.logs(follow=True):
                on_output(line)
        status = self._wait_end(end, timeout)
        outcome = status.outcome or Outcome(status.state, status.reason)
        if outcome.succeeded:
            return outcome
        failure = self._failure(outcome)
        raise failure from failure.exception

    def _wait_end(self, end: Optional[float], timeout: Optional[float]) -> Status:
        reached_at = time.monotonic()
        while True:
            left = _WAIT_S if end is None else max(0.0, min(_WAIT_S, end - time.monotonic()))
            try:
                status = self._wait_status(left, _STATUS_TIMEOUT_S if end is None else _SHORT_STATUS_TIMEOUT_S)
                reached_at = time.monotonic()
                if status.done:
                    return status
            except Unreachable:
                # The cluster may be restarting.
                if time.monotonic() - reached_at > _MAX_UNREACHABLE_S:
                    raise
            if end is not None and time.monotonic() >= end:
                raise WaitTimeout(f"`{self.id}` did not end within {timeout} s")
            time.sleep(_RETRY_INTERVAL_S if end is None else max(0.0, min(_RETRY_INTERVAL_S, end - time.monotonic())))

    def _failure(self, outcome: Outcome) -> JobFailed:
        kind = JobKilled if outcome.state == "killed" else JobFailed
        log, traceback, exception = outcome.stderr_tail, None, None
        # Report the failure even if its log cannot be read.
        with contextlib.suppress(Error):
            if outcome.task and not log:
                log = "\n".join(line.text for line in self.logs(outcome.task, tail=_TAIL))
        if self._functions and outcome.task:
            with contextlib.suppress(Error):
                traceback, exception = function_results.failure(self._read_results(), outcome.task)
        return kind(self, outcome, log, traceback, exception)

    def logs(
        self,
        task: Optional[str] = None,
        follow: bool = False,
        *,
        attempt: Optional[int] = None,
        all_attempts: bool = False,
        stream: Optional[str] = None,
        tail: Optional[int] = None,
    ) -> Iterator[LogLine]:
        """Yields the output of all tasks, of a role (`worker`) or of a task (`worker:0`), with `follow` until the job ends.
        `stream` is `stdout` or `stderr`."""
        arguments = ["logs"]
        if follow:
            arguments.append("--follow")
        if attempt is not None:
            arguments.append(f"--attempt={attempt}")
        if all_attempts:
            arguments.append("--all-attempts")
        if stream is not None:
            if stream not in ("stdout", "stderr"):
                raise Error(f"unknown stream `{stream}`", "use `stdout` or `stderr`")
            arguments.append(f"--{stream}")
        if tail is not None:
            arguments.append(f"--tail={tail}")
        arguments += [self.id, *([] if task is None else [task])]
        return self._lines(arguments)

    def _lines(self, arguments: List[str]) -> Iterator[LogLine]:
        with contextlib.closing(program.stream(arguments, **self._options)) as objects:
            for record in objects:
                line = record.get("output")
                if line is not None:
                    yield LogLine(str(line["task"]), int(line["attempt"]), str(line["stream"]), str(line["line"]))

    def kill(self, now: bool = False) -> None:
        """Ends the job and waits for its end. `now` skips the grace period of programs."""
        program.call(["kill", *(["--now"] if now else []), self.id], **self._options)

    def scale(self, role: str, instances: int) -> None:
        """Changes the number of tasks of a role."""
        program.call(["scale", self.id, f"{role}={instances}"], **self._options)

    def metrics(self) -> Dict[str, Dict[str, Metric]]:
        """Returns reported metrics: `{"worker:0": {"loss": Metric(value=0.3, step=100, at=…)}}`."""
        return self.status().metrics

    def events(self, name: Optional[str] = None, *, after: int = 0, follow: bool = False) -> Iterator[Event]:
        """Yields the events that programs emitted. They are lost when the job ends."""
        arguments = ["kv", "--job", self.id, "events", f"--after={after}"]
        if name is not None:
            arguments.append(f"--name={name}")
        if follow:
            arguments.append("--follow")
        with contextlib.closing(program.stream(arguments, **self._options)) as objects:
            for record in objects:
                yield event_of(record)

    def history(self, count: int = 10_000) -> List[Dict[str, Any]]:
        """Returns the history of the job, oldest event first, as in `ydl status --json`."""
        raw = program.call_one(["status", f"--events={count}", self.id], accepted_codes=(0, program.UNREACHABLE), **self._options)
        return list(raw.get("events") or [])

    def fetch(self, directory: Any, pattern: Optional[str] = None) -> Path:
        """Downloads outputs and logs, or those that match a pattern, into a directory."""
        target = Path(directory)
        program.call(["fetch", self.id, *([] if pattern is None else [pattern]), str(target)], **self._options)
        return target

    @property
    def kv(self) -> KeyValue:
        """Key-value store of the job, while it runs."""
        return RunStore(self.id, self._options["cluster"], self._options["env"])

    def results(self) -> Dict[str, Any]:
        """Returns the results of functions by task; a list for a task with several `processes`. Waits for the job's end,
        and raises :class:`JobFailed` if it failed.

        Results are pickles, and reading a pickle runs its code: results of another user's job are not read."""
        self._functions = True
        self.wait()
        found = function_results.values(self._read_results())
        for task in self.status().tasks:
            if task.task.rpartition(":")[0] in self._roles and task.task not in found:
                program.LOG.warning("%s of `%s` has no result", task.task, self.id)
        return found

    def result(self) -> Any:
        """Returns the result of the first task."""
        results = self.results()
        status = self.status()
        for task in status.tasks:
            if task.task in results:
                return results[task.task]
        raise Error(f"no task of `{self.id}` has a result")

    def _read_results(self) -> List["function_results.FunctionResult"]:
        status = self.status()
        application = status.raw.get("application")
        if not application:
            return function_results.read(Path(status.directory) / function_results.RESULTS_DIR)
        if not self._submitted_here and all(run.id != status.id for run in runs(**self._options)):
            raise Error(
                f"`{status.id}` is a job of `{application.get('user')}`, so its results are not read: "
                "reading a pickle runs its code",
                "`fetch` downloads the files",
            )
        # Only the job's own directory: other users may write to the destinations of other outputs.
        below = f"outputs/{function_results.JOBS_DIR}/{status.id}/{function_results.RESULTS_DIR}"
        with tempfile.TemporaryDirectory(prefix="ydl-") as folder:
            self.fetch(folder, f"{below}/*{function_results.SUFFIX}")
            return function_results.read(Path(folder) / below)

    def _repr_html_(self) -> str:
        return notebook.html(self.status())

    def _ipython_display_(self) -> None:
        notebook.show(self)

    def __repr__(self) -> str:
        state = self.summary.get("state") if self._last is None else self._last.state
        return f"<Run {self.id}, {state}>" if state else f"<Run {self.id}>"

    def __reduce__(self) -> Any:
        return _unpickle, (self.id, self._options["cluster"], self._options["env"])


def _unpickle(id: str, cluster: Optional[str], env: Optional[Mapping[str, str]]) -> Run:
    return Run(id, cluster=cluster, env=env)


def runs(*, cluster: Optional[str] = None, env: Optional[Mapping[str, str]] = None) -> List[Run]:
    """Returns all jobs, newest first. :attr:`Run.summary` of each has its row of the list."""
    found = []
    for row in program.call(["ls", "--all"], cluster=cluster, env=env):
        run = Run(str(row["id"]), cluster=cluster, env=env)
        run.summary = row
        found.append(run)
    return found


def _status(raw: Dict[str, Any]) -> Status:
    view = raw.get("view") or {}
    usage = raw.get("usage") or {}
    metrics = raw.get("metrics") or {}
    state = str(raw.get("state"))
    reason = view.get("reason") or raw.get("unreachable") or (raw.get("application") or {}).get("diagnostics") or state
    tasks = tuple(
        TaskStatus(
            task=str(task["task"]),
            state=str(task["state"]),
            attempt=int(task["attempt"]),
            node=task.get("node"),
            last_ending=task.get("last_ending"),
            usage=usage.get(task["task"]) or {},
            metrics={name: _metric(record) for name, record in (metrics.get(task["task"]) or {}).items()},
        )
        for task in view.get("tasks", [])
    )
    return Status(
        id=str(raw.get("id")),
        name=str(view.get("name") or ""),
        state=state,
        reason=str(reason).strip(),
        round=int(view.get("round") or 0),
        tasks=tasks,
        outcome=_outcome(state, str(reason).strip(), view.get("outcome")) if state in _ENDED else None,
        directory=str(raw.get("directory") or ""),
        raw=raw,
    )


def _metric(record: Mapping[str, Any]) -> Metric:
    return Metric(value=float(record["value"]), step=record.get("step"), at=int(record.get("at") or 0))


def _outcome(state: str, reason: str, recorded: Any) -> Outcome:
    cause: Mapping[str, Any] = {}
    if isinstance(recorded, dict) and isinstance(recorded.get("failed"), dict):
        cause = recorded["failed"].get("task") or {}
    ending = cause.get("ending")
    exit_code = None
    if isinstance(ending, dict) and "exited" in ending:
        exit_code = int(ending["exited"]["code"])
    elif isinstance(ending, dict) and "signalled" in ending:
        exit_code = 128 + int(ending["signalled"]["signal"])
    return Outcome(
        # A job that finished without an outcome counts as lost.
        state="lost" if state == "finished" else state,
        reason=reason,
        task=cause.get("task"),
        exit_code=exit_code,
        stderr_tail=str(cause.get("stderr_tail") or ""),
        raw={"outcome": recorded},
    )
