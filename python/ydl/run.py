"""A job that was submitted: how it stands, what it prints, how it ended."""

from __future__ import annotations

import contextlib
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from . import notebook, program, returned
from .errors import Error, JobFailed, JobKilled, Unreachable, WaitTimeout
from .store import Event, KeyValue, RunStore, event_of

#: Words for a job that is over.
_OVER = ("succeeded", "failed", "killed", "lost", "finished")
#: So long the binary waits for a job's end at a time: whoever is killed meanwhile leaves it behind for no longer.
_WAIT_S = 60.0
#: Before it is asked again.
_AGAIN_S = 0.2
#: What a look takes beside waiting, at most; and less where a caller has little time.
_LOOK_MAX_S, _LOOK_MIN_S = 300.0, 30.0
#: How long a job may be out of sight before waiting for it is given up.
_UNSEEN_MAX_S = 900.0
#: The last lines of a failed task.
_TAIL = 40


@dataclass(frozen=True)
class Metric:
    """The latest value of a metric."""

    value: float
    step: Optional[int]
    #: When it was reported, in ms since 1970.
    at: int


@dataclass(frozen=True)
class TaskStatus:
    """A task, as `ydl status` shows it."""

    task: str
    state: str
    attempt: int
    node: Optional[str]
    last_ending: Optional[str]
    #: What its processes use, where known: `cpu_percent`, `memory_bytes`, `gpus`, …
    usage: Mapping[str, Any]
    metrics: Mapping[str, Metric]


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    #: `succeeded`, `failed` or `killed`; `lost` where nobody knows.
    state: str
    #: One sentence.
    why: str
    #: The task that failed, such as `worker:3`, where it was one.
    task: Optional[str] = None
    #: Its exit code, or 128 and the signal.
    exit: Optional[int] = None
    #: The last lines that it wrote to stderr.
    stderr_tail: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def succeeded(self) -> bool:
        """Whether all went well."""
        return self.state == "succeeded"


@dataclass(frozen=True)
class Status:
    """How a job stands."""

    id: str
    name: str
    #: `pending`, `running`, …, `succeeded`, `failed`, `killed`, `lost`.
    state: str
    #: What it waits for, or how it ended, in one sentence.
    why: str
    round: int
    tasks: Tuple[TaskStatus, ...]
    outcome: Optional[Outcome]
    #: Where the job keeps its files.
    directory: str
    raw: Mapping[str, Any] = field(repr=False)

    @property
    def over(self) -> bool:
        """Whether it is over."""
        return self.state in _OVER

    @property
    def metrics(self) -> Dict[str, Dict[str, Metric]]:
        """What tasks have reported: task, name, latest value."""
        return {task.task: dict(task.metrics) for task in self.tasks if task.metrics}


@dataclass(frozen=True)
class Line:
    """A line that a task has printed."""

    task: str
    attempt: int
    #: `stdout` or `stderr`.
    stream: str
    text: str

    def __str__(self) -> str:
        return self.text


class Run:
    """A job that was submitted, by its id, the beginning of it, or its name: the newest of that name.

    `cluster` and `env` are as at :meth:`Job.submit`. In a notebook it shows itself as a table that moves.
    """

    def __init__(self, id: str, *, cluster: Optional[str] = None, env: Optional[Mapping[str, str]] = None) -> None:
        self.id = id
        #: What :func:`runs` saw of it, `name`, `state` and `submitted` (in ms since 1970) among it; of others nothing.
        self.listed: Mapping[str, Any] = {}
        self._how: Dict[str, Any] = {"cluster": cluster, "env": None if env is None else dict(env)}
        self._last: Optional[Status] = None
        self._functions = False
        #: Whether it was submitted here; of others its cluster is asked.
        self._own = False
        #: The roles whose tasks call functions, where that is known.
        self._roles: Tuple[str, ...] = ()

    def status(self) -> Status:
        """How it stands now."""
        return self._look(0.0, None)

    def _look(self, wait: float, more: Optional[float]) -> Status:
        """How it stands when it is over, or after so long; to tell it may take so much more."""
        if self._last is not None and self._last.over:
            return self._last
        waits = [f"--wait={int(wait * 1000)}ms"] if wait > 0 else []
        # A master that does not answer is something to be told, too.
        fine = (0, program.UNREACHABLE)
        most = None if more is None else wait + more
        raw = program.one(["status", *waits, self.id], fine=fine, timeout=most, **self._how)
        self._last = _status(raw)
        return self._last

    @property
    def over(self) -> bool:
        """Whether it is over."""
        return self.status().over

    @property
    def name(self) -> str:
        """The job's name."""
        return str(self.listed.get("name") or (self._last or self.status()).name)

    def wait(
        self, timeout: Optional[float] = None, *, on_output: Optional[Callable[[Line], None]] = None
    ) -> Outcome:
        """Waits until the job is over: its outcome where it succeeded, otherwise :class:`JobFailed` or
        :class:`JobKilled`. With `on_output` that is called with every line that tasks print meanwhile.

        After `timeout` seconds :class:`WaitTimeout` is raised; the job goes on, as it does when waiting is interrupted
        (Ctrl-C): :meth:`kill` ends it.
        """
        end = None if timeout is None else time.monotonic() + timeout
        if on_output is not None:
            if timeout is not None:
                raise Error("`wait` has either a timeout or `on_output`")
            for line in self.logs(follow=True):
                on_output(line)
        status = self._until_over(end, timeout)
        outcome = status.outcome or Outcome(status.state, status.why)
        if outcome.succeeded:
            return outcome
        failure = self._failure(outcome)
        raise failure from failure.exception

    def _until_over(self, end: Optional[float], timeout: Optional[float]) -> Status:
        seen = time.monotonic()
        while True:
            left = _WAIT_S if end is None else max(0.0, min(_WAIT_S, end - time.monotonic()))
            try:
                status = self._look(left, _LOOK_MAX_S if end is None else _LOOK_MIN_S)
                seen = time.monotonic()
                if status.over:
                    return status
            except Unreachable:
                # A cluster that is being started anew comes back.
                if time.monotonic() - seen > _UNSEEN_MAX_S:
                    raise
            if end is not None and time.monotonic() >= end:
                raise WaitTimeout(f"`{self.id}` was not over within {timeout} s")
            time.sleep(_AGAIN_S if end is None else max(0.0, min(_AGAIN_S, end - time.monotonic())))

    def _failure(self, outcome: Outcome) -> JobFailed:
        kind = JobKilled if outcome.state == "killed" else JobFailed
        log, traceback, exception = outcome.stderr_tail, None, None
        # How it failed is worth telling even if the rest cannot be had.
        with contextlib.suppress(Error):
            if outcome.task and not log:
                log = "\n".join(line.text for line in self.logs(outcome.task, tail=_TAIL))
        if self._functions and outcome.task:
            with contextlib.suppress(Error):
                traceback, exception = returned.failure(self._returned(), outcome.task)
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
    ) -> Iterator[Line]:
        """What tasks have printed: of all, of a role (`worker`) or of a task (`worker:0`). With `follow` until the job is
        over. `stream` is `stdout` or `stderr`."""
        verb = ["logs"]
        if follow:
            verb.append("--follow")
        if attempt is not None:
            verb.append(f"--attempt={attempt}")
        if all_attempts:
            verb.append("--all-attempts")
        if stream is not None:
            if stream not in ("stdout", "stderr"):
                raise Error(f"there is no stream `{stream}`", "it is `stdout` or `stderr`")
            verb.append(f"--{stream}")
        if tail is not None:
            verb.append(f"--tail={tail}")
        verb += [self.id, *([] if task is None else [task])]
        return self._lines(verb)

    def _lines(self, verb: List[str]) -> Iterator[Line]:
        with contextlib.closing(program.stream(verb, **self._how)) as objects:
            for told in objects:
                line = told.get("output")
                if line is not None:
                    yield Line(str(line["task"]), int(line["attempt"]), str(line["stream"]), str(line["line"]))

    def kill(self, now: bool = False) -> None:
        """Ends the job, and waits until it has; with `now` without the grace that programs have."""
        program.call(["kill", *(["--now"] if now else []), self.id], **self._how)

    def scale(self, role: str, instances: int) -> None:
        """Asks for another number of tasks of a role."""
        program.call(["scale", self.id, f"{role}={instances}"], **self._how)

    def metrics(self) -> Dict[str, Dict[str, Metric]]:
        """What tasks have reported: `{"worker:0": {"loss": Metric(value=0.3, step=100, at=…)}}`."""
        return self.status().metrics

    def events(self, name: Optional[str] = None, *, after: int = 0, follow: bool = False) -> Iterator[Event]:
        """Events that programs have emitted. They go with the job."""
        verb = ["kv", "--job", self.id, "events", f"--after={after}"]
        if name is not None:
            verb.append(f"--name={name}")
        if follow:
            verb.append("--follow")
        with contextlib.closing(program.stream(verb, **self._how)) as objects:
            for told in objects:
                yield event_of(told)

    def history(self, count: int = 10_000) -> List[Dict[str, Any]]:
        """What happened to the job, oldest first, as in `ydl status --json`."""
        raw = program.one(["status", f"--events={count}", self.id], fine=(0, program.UNREACHABLE), **self._how)
        return list(raw.get("events") or [])

    def fetch(self, directory: Any, pattern: Optional[str] = None) -> Path:
        """Downloads outputs and logs, or what of them fits, into a directory."""
        place = Path(directory)
        program.call(["fetch", self.id, *([] if pattern is None else [pattern]), str(place)], **self._how)
        return place

    @property
    def kv(self) -> KeyValue:
        """The job's key-value store, as long as it runs."""
        return RunStore(self.id, self._how["cluster"], self._how["env"])

    def results(self) -> Dict[str, Any]:
        """What the functions of a job from functions returned, by task; of a task with several `processes`, a list. Waits
        for the job's end, and raises :class:`JobFailed` where it failed.

        They are pickles, and reading a pickle runs what it says: those of somebody else's job are not read."""
        self._functions = True
        self.wait()
        found = returned.values(self._returned())
        for task in self.status().tasks:
            if task.task.rpartition(":")[0] in self._roles and task.task not in found:
                program.LOG.warning("%s of `%s` has left no result", task.task, self.id)
        return found

    def result(self) -> Any:
        """The same of the first task alone."""
        results = self.results()
        status = self.status()
        for task in status.tasks:
            if task.task in results:
                return results[task.task]
        raise Error(f"no task of `{self.id}` has returned anything")

    def _returned(self) -> List["returned.Returned"]:
        status = self.status()
        application = status.raw.get("application")
        if not application:
            return returned.read(Path(status.directory) / returned.FOLDER)
        if not self._own and all(run.id != status.id for run in runs(**self._how)):
            raise Error(
                f"`{status.id}` is a job of `{application.get('user')}`, and what its functions returned is not read: "
                "reading a pickle runs what it says",
                "`fetch` brings the files themselves",
            )
        # Other outputs may go to directories in which anybody leaves files; the job's own is nobody else's.
        below = f"outputs/{returned.JOBS}/{status.id}/{returned.FOLDER}"
        with tempfile.TemporaryDirectory(prefix="ydl-") as place:
            self.fetch(place, f"{below}/*{returned.ENDING}")
            return returned.read(Path(place) / below)

    def _repr_html_(self) -> str:
        return notebook.html(self.status())

    def _ipython_display_(self) -> None:
        notebook.show(self)

    def __repr__(self) -> str:
        state = self.listed.get("state") if self._last is None else self._last.state
        return f"<Run {self.id}, {state}>" if state else f"<Run {self.id}>"

    def __reduce__(self) -> Any:
        return _again, (self.id, self._how["cluster"], self._how["env"])


def _again(id: str, cluster: Optional[str], env: Optional[Mapping[str, str]]) -> Run:
    return Run(id, cluster=cluster, env=env)


def runs(*, cluster: Optional[str] = None, env: Optional[Mapping[str, str]] = None) -> List[Run]:
    """The jobs there are, newest first. What the list says of each is its :attr:`Run.listed`."""
    found = []
    for row in program.call(["ls", "--all"], cluster=cluster, env=env):
        run = Run(str(row["id"]), cluster=cluster, env=env)
        run.listed = row
        found.append(run)
    return found


def _status(raw: Dict[str, Any]) -> Status:
    view = raw.get("view") or {}
    usage = raw.get("usage") or {}
    metrics = raw.get("metrics") or {}
    state = str(raw.get("state"))
    why = view.get("why") or raw.get("unreachable") or (raw.get("application") or {}).get("diagnostics") or state
    tasks = tuple(
        TaskStatus(
            task=str(task["task"]),
            state=str(task["state"]),
            attempt=int(task["attempt"]),
            node=task.get("node"),
            last_ending=task.get("last_ending"),
            usage=usage.get(task["task"]) or {},
            metrics={name: _metric(told) for name, told in (metrics.get(task["task"]) or {}).items()},
        )
        for task in view.get("tasks", [])
    )
    return Status(
        id=str(raw.get("id")),
        name=str(view.get("name") or ""),
        state=state,
        why=str(why).strip(),
        round=int(view.get("round") or 0),
        tasks=tasks,
        outcome=_outcome(state, str(why).strip(), view.get("outcome")) if state in _OVER else None,
        directory=str(raw.get("directory") or ""),
        raw=raw,
    )


def _metric(told: Mapping[str, Any]) -> Metric:
    return Metric(value=float(told["value"]), step=told.get("step"), at=int(told.get("at") or 0))


def _outcome(state: str, why: str, told: Any) -> Outcome:
    cause: Mapping[str, Any] = {}
    if isinstance(told, dict) and isinstance(told.get("failed"), dict):
        cause = told["failed"].get("task") or {}
    ending = cause.get("ending")
    exit_code = None
    if isinstance(ending, dict) and "exited" in ending:
        exit_code = int(ending["exited"]["code"])
    elif isinstance(ending, dict) and "signalled" in ending:
        exit_code = 128 + int(ending["signalled"]["signal"])
    return Outcome(
        # What ended without leaving how is as lost as what nobody can find.
        state="lost" if state == "finished" else state,
        why=why,
        task=cause.get("task"),
        exit=exit_code,
        stderr_tail=str(cause.get("stderr_tail") or ""),
        raw={"outcome": told},
    )
