"""Functions as jobs: packs what tasks need to call them.

A task gets a directory that is also a program: `python ydl-function`. It contains this package, the functions and their
arguments as pickles, the files of the user's own modules, and `cloudpickle` if it was used. The environment of the task
needs none of them.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pickle
import shutil
import site
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from . import function_results, program
from .errors import Error

#: Name of the directory in tasks.
FOLDER = "ydl-function"
#: Limit of a pickle; larger data belongs in `inputs` or `files`.
_MAX_PICKLE_BYTES = 128 << 20
#: Limits of the user's own modules together.
_MAX_MODULES_BYTES = 64 << 20
_MAX_MODULE_FILES = 5000
#: Maximum length of an argument in a message.
_MAX_ARGUMENT_CHARS = 40
#: Directories that are not part of a package.
_EXCLUDED = ("__pycache__", ".git", ".venv", "venv", "node_modules", ".mypy_cache", ".pytest_cache", ".tox")
#: Suffixes of code.
_CODE_SUFFIXES = (".py", ".so", ".pyi")

_MAIN = """\
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path[0] = here
if __name__ == "__main__":
    from ydl.run_function import main

    sys.exit(main(here))
"""


class Bundle:
    """Functions by role, pickled when the job is created: later changes have no effect."""

    def __init__(
        self,
        fn: Optional[Callable[..., object]],
        args: Sequence[object],
        kwargs: Mapping[str, object],
        roles: Mapping[str, Any],
        modules: Sequence[object],
        python: Optional[str],
    ) -> None:
        self._python = python
        #: Bash script that tasks run before.
        self.setup_script: Optional[str] = None
        self._temporary: Optional[str] = None
        self._pickles: Dict[str, bytes] = {}
        calls: Dict[str, Tuple[Any, Any, Any]] = {}
        for name, role in roles.items():
            if role.function is not None:
                calls[name] = (role.function, role.args, role.kwargs)
            elif not role.has_command:
                if fn is None:
                    raise Error(f"role `{name}` has neither a function nor `run`")
                calls[name] = (fn, tuple(args), dict(kwargs))
            if name in calls:
                check_call(name, *calls[name])
        if not calls:
            raise Error("no role runs the function: all roles have a command of their own")
        self.roles = tuple(calls)
        self._modules = user_modules(modules)
        for name, call in calls.items():
            self._pickles[name] = pickle_call(call[0], call)

    def create(self, keys: Dict[str, Any], options: Mapping[str, Any]) -> Dict[str, Any]:
        """Writes the directory, and adds the keys that tasks need to those of a job."""
        cluster = _is_cluster(options)
        self._temporary = tempfile.mkdtemp(prefix="ydl-function-")
        folder = Path(self._temporary) / FOLDER
        folder.mkdir()
        (folder / "__main__.py").write_text(_MAIN, encoding="utf-8")
        package = add_package(folder)
        for name, path in self._modules.items():
            package.add(name, path)
        (folder / "functions").mkdir()
        for role, content in self._pickles.items():
            (folder / "functions" / f"{role}.pickle").write_bytes(content)
        (folder / "functions" / "metadata.json").write_text(pickle_info(), encoding="utf-8")
        return self._keys(keys, folder, cluster, options)

    def _keys(
        self, keys: Dict[str, Any], folder: Path, cluster: bool, options: Mapping[str, Any]
    ) -> Dict[str, Any]:
        keys = dict(keys)
        keys["files"] = [*(keys.get("files") or []), {FOLDER: str(folder)}]
        python = self._python
        if python is None:
            # On this machine `python3` may be another interpreter.
            same = keys.get("environment", "system") == "system" and not cluster
            python = (sys.executable if same else None) or "python3"
        run = with_setup(self.setup_script, [python, FOLDER])
        for role in self.roles:
            keys["roles"][role] = {**keys["roles"][role], "run": run}
        if cluster:
            jobs = f"{str(keys.get('staging') or '.ydl').rstrip('/')}/{function_results.JOBS_DIR}"
        else:
            jobs = str(_state_dir(options.get("env")) / function_results.JOBS_DIR)
        to = f"{jobs}/{{job}}/{function_results.RESULTS_DIR}/{{role}}-{{index}}/"
        # Listed first, so that `fetch` keeps its name if another output has the same.
        keys["outputs"] = {f"{function_results.TASK_DIR}/*{function_results.SUFFIX}": to, **(keys.get("outputs") or {})}
        return keys

    def remove(self) -> None:
        """Removes the directory, which was copied at submit."""
        path, self._temporary = self._temporary, None
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)


def check_call(role: str, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Rejects arguments with which all tasks would fail."""
    name = getattr(fn, "__qualname__", None) or repr(fn)
    if not callable(fn):
        raise Error(f"role `{role}` cannot call `{fn!r}`, a `{type(fn).__name__}`", "pass the function, not its return value")
    if hasattr(fn, "__signature__"):
        # An explicit signature may be wrong.
        return
    try:
        # Decorated functions may have other arguments than the wrapped ones.
        signature = inspect.signature(fn, follow_wrapped=False)
    except (TypeError, ValueError):
        # C functions may have no signature.
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        given = ", ".join([*map(_short, args), *(f"{key}={_short(value)}" for key, value in kwargs.items())])
        hint = f"its signature is `{signature}`; pass arguments as `args` and `kwargs`"
        raise Error(f"role `{role}` cannot call `{name}({given})`: {error}", hint) from None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_ARGUMENT_CHARS else text[: _MAX_ARGUMENT_CHARS - 1] + "…"


def pickle_call(fn: Callable[..., object], call: object) -> bytes:
    """Pickles a function with its arguments. Closures and definitions of the main program need `cloudpickle`."""
    name = getattr(fn, "__qualname__", repr(fn))
    cloudpickle = _cloudpickle()
    if cloudpickle is None:
        _needs_cloudpickle(fn, name)
    try:
        content: bytes = (cloudpickle or pickle).dumps(call)
    except Exception as error:
        hint = "install `cloudpickle` here, or use a function of a module" if cloudpickle is None else None
        raise Error(f"`{name}` and its arguments cannot be pickled: {type(error).__name__}: {error}", hint) from error
    if len(content) > _MAX_PICKLE_BYTES:
        size = len(content) >> 20
        raise Error(f"`{name}` and its arguments take {size} MiB", "pass large data as `inputs` or `files`")
    return content


def pickle_info() -> str:
    """Returns the versions that a task checks before it reads a pickle, as JSON."""
    return json.dumps({"python": list(sys.version_info[:2]), "cloudpickle": _cloudpickle() is not None})


def with_setup(script: Optional[str], command: Sequence[str]) -> List[str]:
    """Returns a command that runs after an optional bash script, with the command's exit code."""
    return list(command) if not script else ["bash", "-c", script + '\nexec "$@"', "bash", *command]


def add_package(folder: Path) -> "ModuleFolder":
    """Copies this package into a task's folder, and `cloudpickle` if it is installed. Returns the folder to add modules."""
    _copy(Path(__file__).parent, folder / "ydl")
    cloudpickle = _cloudpickle()
    if cloudpickle is not None:
        _copy(Path(cloudpickle.__file__).parent, folder / "cloudpickle")
    return ModuleFolder(folder)


def _is_cluster(options: Mapping[str, Any]) -> bool:
    """Returns True if the job will run on a cluster, as the binary decides it."""
    if options.get("cluster") is not None:
        return bool(options["cluster"] == "yarn")
    probe = {"name": "probe", "roles": {"worker": {"run": "true"}}, "outputs": {"probe": "probe"}}
    probe_options = {key: value for key, value in options.items() if key in ("env", "cwd")}
    shown = program.call_one(["submit", "-", "--show"], input=json.dumps(probe).encode(), **probe_options)
    # On this machine destinations are absolute paths.
    return not str(shown["outputs"][0]["to"]).startswith("/")


def _state_dir(env: Optional[Mapping[str, str]]) -> Path:
    """Returns the directory with the jobs of this machine."""
    variables = {**os.environ, **(env or {})}
    state = variables.get("XDG_STATE_HOME") or ""
    base = Path(state) if os.path.isabs(state) else Path(variables.get("HOME") or Path.home()) / ".local/state"
    return base / "ydl"


def default_environment() -> str:
    """Returns the environment of this process if it can be shipped, otherwise `system`."""
    if sys.prefix != sys.base_prefix or os.environ.get("CONDA_PREFIX") == sys.prefix:
        return sys.prefix
    return "system"


def _cloudpickle() -> Optional[Any]:
    try:
        return importlib.import_module("cloudpickle")
    except ImportError:
        return None


def _needs_cloudpickle(fn: Any, name: str) -> None:
    """Raises a clearer error than pickle's about `<locals>`."""
    module = getattr(fn, "__module__", None)
    local = "<locals>" in name or "<lambda>" in name
    if local or module == "__main__" or getattr(fn, "__closure__", None):
        reason = "is defined in the main program" if module == "__main__" and not local else "is a closure or a lambda"
        raise Error(
            f"`{name}` {reason}, and cannot be shipped without `cloudpickle`",
            "install `cloudpickle` here (tasks need nothing), or move the function to a module",
        )


def user_modules(additional: Sequence[object]) -> Dict[str, Path]:
    """Returns the user's own modules, which are loaded and not installed, by their top-level names."""
    found: Dict[str, Path] = {}
    installed = _installed_paths()
    for name in list(sys.modules):
        top = name.partition(".")[0]
        if top in found or top in ("__main__", "ydl", "cloudpickle"):
            continue
        path = _source(sys.modules.get(top))
        if path is not None and not _is_installed(path, installed):
            found[top] = path
    for named in additional:
        module = named if isinstance(named, ModuleType) else importlib.import_module(str(named))
        top = module.__name__.partition(".")[0]
        path = _source(importlib.import_module(top))
        if path is None:
            raise Error(f"the module `{module.__name__}` has no file to ship")
        found[top] = path
    return found


def _source(module: Optional[ModuleType]) -> Optional[Path]:
    """Returns the file of a module, or the directory of a package."""
    if module is None:
        return None
    file = getattr(module, "__file__", None)
    if file:
        path = Path(file).absolute()
        return path.parent if path.name.startswith("__init__.") else path
    # A namespace package may have several directories; use the first.
    paths = list(getattr(module, "__path__", None) or [])
    return Path(paths[0]).absolute() if paths else None


def _installed_paths() -> Set[str]:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths.update(getattr(site, "getsitepackages", list)())
    paths.add(getattr(site, "getusersitepackages", str)())
    return {os.path.realpath(path) for path in paths if path}


def _is_installed(path: Path, installed: Set[str]) -> bool:
    real = os.path.realpath(path)
    if {"site-packages", "dist-packages"} & set(Path(real).parts):
        return True
    if not os.path.exists(real):
        # Part of a zip, or created in memory.
        return True
    return any(real.startswith(root + os.sep) for root in installed)


class ModuleFolder:
    """A task's folder, with the remaining limits for the user's modules."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bytes = _MAX_MODULES_BYTES
        self.files = _MAX_MODULE_FILES

    def add(self, name: str, path: Path) -> None:
        """Copies a module or a package."""
        if path.is_file():
            self._count(name, path)
            shutil.copyfile(path, self.folder / path.name)
            return
        # A directory without `__init__` may contain large data.
        only_code = not any(path.glob("__init__.*"))
        for source in _files(path):
            if only_code and source.suffix not in _CODE_SUFFIXES:
                continue
            self._count(name, source)
            target = self.folder / name / source.relative_to(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)

    def _count(self, name: str, path: Path) -> None:
        self.bytes -= path.stat().st_size
        self.files -= 1
        if self.bytes < 0 or self.files < 0:
            raise Error(
                f"the user's modules exceed the size limit for shipping at `{name}`",
                f"the limits are {_MAX_MODULES_BYTES >> 20} MiB and {_MAX_MODULE_FILES} files; install the module into the environment",
            )


def _files(path: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in _EXCLUDED)
        for name in sorted(names):
            source = Path(root) / name
            if source.is_file() and not name.endswith((".pyc", ".pyo")):
                yield source


def _copy(source: Path, target: Path) -> None:
    """Copies a package of pure Python."""
    def excluded(_: str, names: List[str]) -> List[str]:
        return [name for name in names if name in _EXCLUDED or name == "tests"]

    shutil.copytree(source, target, ignore=excluded)
