"""Jobs: what a job file says, as Python values."""

from __future__ import annotations

import inspect
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from . import program
from ._keys import JOB_DOC, JOB_KEYS, ROLE_DOC, ROLE_KEYS, Keys, PathLike
from .errors import Error
from .run import Run

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._keys import JobKeys, RoleKeys
    from .functions import Bundle


class Role:
    """A role of a job. Every argument is the key of that name in a job file; what is left out has its default there.

    `memory` is a size such as `"2 GiB"`; a number counts MiB. In a job made from a function a role without `run` and
    `shell` runs that function, or its own `function` with its own `args` and `kwargs`.
    """

    def __init__(
        self,
        run: Union[str, Sequence[str], None] = None,
        *,
        instances: Union[int, Mapping[str, int]] = 1,
        function: Optional[Callable[..., object]] = None,
        args: Sequence[object] = (),
        kwargs: Optional[Mapping[str, object]] = None,
        **keys: "Unpack[RoleKeys]",
    ) -> None:
        given: Dict[str, Any] = {"instances": instances, "run": run, **keys}
        self._given = {key: value for key, value in given.items() if value is not None}
        self.function = function
        self.args = positional(args)
        self.kwargs = by_name(kwargs)

    @classmethod
    def of(cls, given: "RoleLike") -> "Role":
        """A role as it may be written: itself, a map of its keys, or its number of tasks."""
        if isinstance(given, Role):
            return given
        if isinstance(given, int):
            return cls(instances=given)
        return cls(**dict(given))

    @property
    def runs_something(self) -> bool:
        """Whether it says itself what it runs."""
        return "run" in self._given or "shell" in self._given

    def keys(self) -> Dict[str, Any]:
        """The role as in a job file."""
        keys = {key: plain(value) for key, value in self._given.items()}
        if isinstance(keys.get("memory"), int):
            keys["memory"] = f"{keys['memory']} MiB"
        return keys

    def __repr__(self) -> str:
        return f"Role({', '.join(f'{key}={value!r}' for key, value in self._given.items())})"


RoleLike = Union[Role, Keys, int]


class Job:
    """A job that can be submitted. Every argument is the key of that name in a job file (`docs/reference/job-file.md`).

    Relative paths count from `base`, the working directory if it is left out. What is wrong is said by the binary, at
    :meth:`show`, :meth:`check` or :meth:`submit`, as an :class:`ydl.Error`.
    """

    def __init__(
        self,
        name: Optional[str] = None,
        roles: Optional[Mapping[str, RoleLike]] = None,
        *,
        base: Optional[PathLike] = None,
        **keys: "Unpack[JobKeys]",
    ) -> None:
        given: Dict[str, Any] = {"name": name, **keys}
        self._given = {key: value for key, value in given.items() if value is not None}
        self.roles: Dict[str, Role] = {role: Role.of(value) for role, value in (roles or {}).items()}
        self._base = os.path.abspath(os.fspath(base) if base is not None else os.curdir)
        self._file: Optional[str] = None
        self._set: List[str] = []
        self._bundle: Optional["Bundle"] = None

    @classmethod
    def from_file(cls, path: PathLike, *, set: Sequence[str] = ()) -> "Job":
        """The job that a job file describes, with values on top such as `roles.worker.instances=4`."""
        job = cls(base=Path(path).absolute().parent)
        job._file = os.path.abspath(os.fspath(path))
        job._set = list(set)
        return job

    @classmethod
    def from_function(
        cls,
        fn: Optional[Callable[..., object]],
        args: Sequence[object] = (),
        kwargs: Optional[Mapping[str, object]] = None,
        *,
        name: Optional[str] = None,
        roles: Optional[Mapping[str, RoleLike]] = None,
        instances: Union[int, Mapping[str, int]] = 1,
        memory: Union[str, int, None] = None,
        vcores: Optional[int] = None,
        gpus: Optional[int] = None,
        environment: Union[PathLike, Keys, None] = None,
        python: Optional[str] = None,
        modules: Sequence[object] = (),
        **keys: Any,
    ) -> "Job":
        """A job whose tasks call `fn(*args, **kwargs)`; :meth:`Run.results` has what they returned.

        Without `roles` there is one, `worker`, with so many `instances`. Functions of modules, and modules of the
        user's own that are loaded, travel as their files; closures, lambdas and what was defined in a notebook need
        `cloudpickle` here, and only here. `modules` names further modules, those that functions import only later.
        Without `environment` tasks have the one that this process runs in.
        """
        from .functions import Bundle, default_environment

        if roles is None:
            roles = {"worker": Role(instances=instances, memory=memory, vcores=vcores, gpus=gpus)}
        name = name or (fn and getattr(fn, "__name__", None)) or "function"
        name = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in name).strip("-_.") or "function"
        if environment is None:
            environment = default_environment()
        job = cls(name=name, roles=roles, environment=environment, **keys)
        job._bundle = Bundle(fn, positional(args), by_name(kwargs), job.roles, modules, python)
        return job

    def keys(self) -> Dict[str, Any]:
        """The job as in a job file."""
        if self._file is not None:
            raise Error(f"the job is what `{self._file}` says, and was not read here", "`show()` prints it")
        keys = {key: plain(value) for key, value in self._given.items()}
        files = keys.get("files")
        if isinstance(files, dict):
            keys["files"] = [{name: source} for name, source in files.items()]
        keys["roles"] = {name: role.keys() for name, role in self.roles.items()}
        return keys

    def to_json(self) -> str:
        """The job file, as JSON; that is YAML, too."""
        return json.dumps(self.keys(), indent=2, ensure_ascii=False)

    def show(self, *, cluster: Optional[str] = None, env: Optional[Mapping[str, str]] = None) -> str:
        """The job as it is understood, with every default filled in."""
        with self._source(cluster, env) as source:
            return program.text(["submit", *source.words, "--show"], **source.how)

    def check(self, *, cluster: Optional[str] = None, env: Optional[Mapping[str, str]] = None) -> None:
        """Whether the job could run; nothing is started. Raises what is wrong."""
        with self._source(cluster, env) as source:
            program.call(["submit", *source.words, "--dry-run"], **source.how)

    def submit(
        self,
        *,
        cluster: Optional[str] = None,
        resources: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
    ) -> Run:
        """Starts the job. `cluster` is `"yarn"` or `"local"`; without it, a cluster if a Hadoop configuration is found.

        `resources` is how much of this machine a local job may use. `env` are variables of the client for this job, such
        as `HADOOP_CONF_DIR`.
        """
        with self._source(cluster, env) as source:
            verb = ["submit", *source.words, "--detach"]
            if resources is not None:
                verb += ["--resources", resources]
            answer = program.one(verb, **source.how)
        job = answer.get("job") or {}
        if not job.get("id"):
            raise Error(f"`ydl submit` has named no job: {answer}")
        run = Run(str(job["id"]), cluster=cluster, env=env)
        run._own = True
        if self._bundle is not None:
            run._functions, run._roles = True, self._bundle.roles
        return run

    def _source(self, cluster: Optional[str], env: Optional[Mapping[str, str]]) -> "_Source":
        return _Source(self, cluster, env)

    def __repr__(self) -> str:
        if self._file is not None:
            return f"Job.from_file({self._file!r})"
        roles = ", ".join(f"{name}: {role!r}" for name, role in self.roles.items())
        return f"Job({self._given.get('name')!r}, {{{roles}}})"


def _describe(kind: type, keys: Mapping[str, str], about: str) -> None:
    """Adds the keys of a job file to the signature and the documentation of a class."""
    init = kind.__init__  # type: ignore[misc]
    signature = inspect.signature(init)
    *own, more = signature.parameters.values()
    named = [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=f"Optional[{annotation}]")
        for key, annotation in keys.items()
    ]
    # Unknown keys are reported by the binary, with suggestions.
    parameters = [*own, *named, more.replace(annotation="Any")]
    setattr(init, "__signature__", signature.replace(parameters=parameters))
    kind.__doc__ = f"{inspect.cleandoc(kind.__doc__ or '')}\n{about}"


_describe(Job, JOB_KEYS, JOB_DOC)
_describe(Role, ROLE_KEYS, ROLE_DOC)


class _Source:
    """A job on its way to the binary, and what must lie on the disk meanwhile."""

    def __init__(self, job: Job, cluster: Optional[str], env: Optional[Mapping[str, str]]) -> None:
        self._job = job
        self.words: List[str] = []
        self.how: Dict[str, Any] = {"cluster": cluster, "env": env, "cwd": job._base}

    def __enter__(self) -> "_Source":
        job = self._job
        if job._file is not None:
            # The option's value may not be taken for a file.
            self.words = [job._file, *[f"--set={one}" for one in job._set]]
            return self
        keys = job.keys()
        if job._bundle is not None:
            # What `__enter__` does not come back from is never left.
            try:
                keys = job._bundle.pack(keys, self.how)
            except BaseException:
                job._bundle.unpack()
                raise
        self.words = ["-"]
        self.how["input"] = json.dumps(keys).encode("utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        if self._job._bundle is not None:
            self._job._bundle.unpack()


def positional(args: Any) -> Tuple[Any, ...]:
    """What a function is called with. A single value is a slip, and a text would be its letters."""
    if isinstance(args, Mapping):
        raise Error("`args` is a map", "arguments by their names are `kwargs`")
    if isinstance(args, (str, bytes)) or not isinstance(args, Iterable):
        raise Error(f"`args` is `{args!r}`, and not a list of arguments", f"write `({args!r},)`")
    return tuple(args)


def by_name(kwargs: Any) -> Dict[str, Any]:
    """What it is called with by name."""
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise Error(f"`kwargs` is `{kwargs!r}`, and not a map", "`args` is the list of arguments")
    if not all(isinstance(name, str) for name in kwargs or ()):
        raise Error(f"`kwargs` is `{kwargs!r}`, and arguments have names")
    return dict(kwargs or {})


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, timedelta):
        return f"{round(value.total_seconds() * 1000)}ms"
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset, range)):
        return [plain(inner) for inner in value]
    raise Error(f"a job cannot hold `{value!r}`, a `{type(value).__name__}`")
