"""Job files as Python values."""

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
    """A role of a job. Every argument is the key of that name in a job file, with the same default.

    `memory` is a size such as `"2 GiB"`; a number is in MiB. In a job made from a function a role without `run` and
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
        self.args = checked_args(args)
        self.kwargs = checked_kwargs(kwargs)

    @classmethod
    def of(cls, value: "RoleLike") -> "Role":
        """Converts a role, a map of its keys, or its number of tasks into a role."""
        if isinstance(value, Role):
            return value
        if isinstance(value, int):
            return cls(instances=value)
        return cls(**dict(value))

    @property
    def has_command(self) -> bool:
        """True if the role has a `run` or `shell` of its own."""
        return "run" in self._given or "shell" in self._given

    def keys(self) -> Dict[str, Any]:
        """Returns the keys of the role in a job file."""
        keys = {key: plain(value) for key, value in self._given.items()}
        if isinstance(keys.get("memory"), int):
            keys["memory"] = f"{keys['memory']} MiB"
        return keys

    def __repr__(self) -> str:
        return f"Role({', '.join(f'{key}={value!r}' for key, value in self._given.items())})"


RoleLike = Union[Role, Keys, int]


class Job:
    """A job that can be submitted. Every argument is the key of that name in a job file (`docs/reference/job-file.md`).

    Paths are relative to `base`, by default the working directory. :meth:`show`, :meth:`check` and :meth:`submit` validate
    the job with the binary and raise :class:`ydl.Error`.
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
        """Creates the job of a job file, with overrides such as `roles.worker.instances=4`."""
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
        """Creates a job whose tasks call `fn(*args, **kwargs)`; :meth:`Run.results` returns the results.

        The default of `roles` is one role `worker` with `instances` tasks. Functions of modules, and the user's own loaded
        modules, are shipped as files. Closures, lambdas and definitions of a notebook need `cloudpickle` in this process
        only. `modules` adds modules that functions import later. The default `environment` is that of this process.
        """
        from .functions import Bundle, default_environment

        if roles is None:
            roles = {"worker": Role(instances=instances, memory=memory, vcores=vcores, gpus=gpus)}
        name = name or (fn and getattr(fn, "__name__", None)) or "function"
        name = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in name).strip("-_.") or "function"
        if environment is None:
            environment = default_environment()
        job = cls(name=name, roles=roles, environment=environment, **keys)
        job._bundle = Bundle(fn, checked_args(args), checked_kwargs(kwargs), job.roles, modules, python)
        return job

    def keys(self) -> Dict[str, Any]:
        """Returns the keys of the job in a job file."""
        if self._file is not None:
            raise Error(f"the job is in `{self._file}`, which Python does not read", "`show()` returns it")
        keys = {key: plain(value) for key, value in self._given.items()}
        files = keys.get("files")
        if isinstance(files, dict):
            keys["files"] = [{name: source} for name, source in files.items()]
        keys["roles"] = {name: role.keys() for name, role in self.roles.items()}
        return keys

    def to_json(self) -> str:
        """Returns the job file as JSON, which is also YAML."""
        return json.dumps(self.keys(), indent=2, ensure_ascii=False)

    def show(self, *, cluster: Optional[str] = None, env: Optional[Mapping[str, str]] = None) -> str:
        """Returns the job file with all defaults."""
        with self._source(cluster, env) as source:
            return program.text(["submit", *source.arguments, "--show"], **source.options)

    def check(self, *, cluster: Optional[str] = None, env: Optional[Mapping[str, str]] = None) -> None:
        """Checks whether the job could run, and raises errors. Nothing is started."""
        with self._source(cluster, env) as source:
            program.call(["submit", *source.arguments, "--dry-run"], **source.options)

    def submit(
        self,
        *,
        cluster: Optional[str] = None,
        resources: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
    ) -> Run:
        """Submits the job. `cluster` is `"yarn"` or `"local"`, by default a cluster if there is a Hadoop configuration.

        `resources` limits what a local job may use of this machine. `env` sets variables of the client for this job, such
        as `HADOOP_CONF_DIR`.
        """
        with self._source(cluster, env) as source:
            arguments = ["submit", *source.arguments, "--detach"]
            if resources is not None:
                arguments += ["--resources", resources]
            record = program.call_one(arguments, **source.options)
        job = record.get("job") or {}
        if not job.get("id"):
            raise Error(f"`ydl submit` returned no job id: {record}")
        run = Run(str(job["id"]), cluster=cluster, env=env)
        run._submitted_here = True
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
    """Input of the binary for a job, with the temporary files that it needs."""

    def __init__(self, job: Job, cluster: Optional[str], env: Optional[Mapping[str, str]]) -> None:
        self._job = job
        self.arguments: List[str] = []
        self.options: Dict[str, Any] = {"cluster": cluster, "env": env, "cwd": job._base}

    def __enter__(self) -> "_Source":
        job = self._job
        if job._file is not None:
            # As one argument, so that the value is not read as a file.
            self.arguments = [job._file, *[f"--set={one}" for one in job._set]]
            return self
        keys = job.keys()
        if job._bundle is not None:
            # `__exit__` is not called if this fails.
            try:
                keys = job._bundle.create(keys, self.options)
            except BaseException:
                job._bundle.remove()
                raise
        self.arguments = ["-"]
        self.options["input"] = json.dumps(keys).encode("utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        if self._job._bundle is not None:
            self._job._bundle.remove()


def checked_args(args: Any) -> Tuple[Any, ...]:
    """Returns positional arguments as a tuple. Rejects a single value and a string, which are mistakes."""
    if isinstance(args, Mapping):
        raise Error("`args` is a mapping", "pass named arguments as `kwargs`")
    if isinstance(args, (str, bytes)) or not isinstance(args, Iterable):
        raise Error(f"`args` is `{args!r}`, expected a sequence of arguments", f"write `({args!r},)`")
    return tuple(args)


def checked_kwargs(kwargs: Any) -> Dict[str, Any]:
    """Returns keyword arguments as a dict."""
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise Error(f"`kwargs` is `{kwargs!r}`, expected a mapping", "pass positional arguments as `args`")
    if not all(isinstance(name, str) for name in kwargs or ()):
        raise Error(f"the keys of `kwargs` must be strings, got `{kwargs!r}`")
    return dict(kwargs or {})


def plain(value: Any) -> Any:
    """Converts a value for JSON."""
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
    raise Error(f"unsupported value `{value!r}` of type `{type(value).__name__}` in a job")
