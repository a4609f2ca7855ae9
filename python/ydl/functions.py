"""Functions as jobs: what must travel so that a task can call them.

A task finds a directory that is also a program: `python ydl-function`. In it are this package, the functions and their
arguments as pickles, the files of the user's own modules, and `cloudpickle` if it was used, so that the environment of the
task needs nothing for it.
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

from . import program, returned
from .errors import Error

#: What tasks find in their directory.
FOLDER = "ydl-function"
#: Larger arguments are data, and have a better way.
_PICKLE_BYTES_MAX = 128 << 20
#: What the user's own modules may take together.
_MODULES_BYTES_MAX = 64 << 20
_MODULE_FILES_MAX = 5000
#: Letters of an argument in a message.
_SHOWN_MAX = 40
#: What of a package's directory is no part of it.
_LEFT_OUT = ("__pycache__", ".git", ".venv", "venv", "node_modules", ".mypy_cache", ".pytest_cache", ".tox")
#: What can be imported.
_CODE = (".py", ".so", ".pyi")

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
    """Functions by role, pickled when the job is made: what changes later changes nothing."""

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
        #: A script of bash that tasks run before.
        self.before: Optional[str] = None
        self._place: Optional[str] = None
        self._pickles: Dict[str, bytes] = {}
        calls: Dict[str, Tuple[Any, Any, Any]] = {}
        for name, role in roles.items():
            if role.function is not None:
                calls[name] = (role.function, role.args, role.kwargs)
            elif not role.runs_something:
                if fn is None:
                    raise Error(f"role `{name}` has neither a function nor `run`")
                calls[name] = (fn, tuple(args), dict(kwargs))
            if name in calls:
                check_call(name, *calls[name])
        if not calls:
            raise Error("no role runs the function: each says itself what it runs")
        self.roles = tuple(calls)
        self._modules = own_modules(modules)
        for name, call in calls.items():
            self._pickles[name] = pickled(call[0], call)

    def pack(self, keys: Dict[str, Any], how: Mapping[str, Any]) -> Dict[str, Any]:
        """Writes the directory, and adds to a job's keys what tasks need of it."""
        cluster = _is_cluster(how)
        self._place = tempfile.mkdtemp(prefix="ydl-function-")
        folder = Path(self._place) / FOLDER
        folder.mkdir()
        (folder / "__main__.py").write_text(_MAIN, encoding="utf-8")
        room = add_package(folder)
        for name, path in self._modules.items():
            room.add(name, path)
        (folder / "functions").mkdir()
        for role, content in self._pickles.items():
            (folder / "functions" / f"{role}.pickle").write_bytes(content)
        (folder / "functions" / "about.json").write_text(about(), encoding="utf-8")
        return self._keys(keys, folder, cluster, how)

    def _keys(
        self, keys: Dict[str, Any], folder: Path, cluster: bool, how: Mapping[str, Any]
    ) -> Dict[str, Any]:
        keys = dict(keys)
        keys["files"] = [*(keys.get("files") or []), {FOLDER: str(folder)}]
        python = self._python
        if python is None:
            # On this machine `python3` may be another one than ours.
            own = keys.get("environment", "system") == "system" and not cluster
            python = (sys.executable if own else None) or "python3"
        run = after(self.before, [python, FOLDER])
        for role in self.roles:
            keys["roles"][role] = {**keys["roles"][role], "run": run}
        if cluster:
            jobs = f"{str(keys.get('staging') or '.ydl').rstrip('/')}/{returned.JOBS}"
        else:
            jobs = str(_state(how.get("env")) / returned.JOBS)
        to = f"{jobs}/{{job}}/{returned.FOLDER}/{{role}}-{{index}}/"
        # The first of its name is fetched under it, and later ones under others.
        keys["outputs"] = {f"{returned.PLACE}/*{returned.ENDING}": to, **(keys.get("outputs") or {})}
        return keys

    def unpack(self) -> None:
        """Removes the directory: what is sent was copied at submit."""
        place, self._place = self._place, None
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)


def check_call(role: str, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuses here what every task would fail with."""
    name = getattr(fn, "__qualname__", None) or repr(fn)
    if not callable(fn):
        raise Error(f"role `{role}` cannot call `{fn!r}`, a `{type(fn).__name__}`", "give a function, not what it returns")
    if hasattr(fn, "__signature__"):
        # What somebody wrote down need not be true.
        return
    try:
        # What decorators have wrapped may be called with other arguments than they are.
        signature = inspect.signature(fn, follow_wrapped=False)
    except (TypeError, ValueError):
        # Functions of C may have none.
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        given = ", ".join([*map(_short, args), *(f"{key}={_short(value)}" for key, value in kwargs.items())])
        hint = f"its arguments are `{signature}`: give them as `args` and `kwargs`"
        raise Error(f"role `{role}` cannot call `{name}({given})`: {error}", hint) from None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 1] + "…"


def pickled(fn: Callable[..., object], what: object) -> bytes:
    """A function, with what it is called with, as bytes. Closures and what is defined in the main program travel with
    `cloudpickle` alone."""
    name = getattr(fn, "__qualname__", repr(fn))
    with_code = _cloudpickle()
    if with_code is None:
        _needs_cloudpickle(fn, name)
    try:
        content: bytes = (with_code or pickle).dumps(what)
    except Exception as error:
        hint = "install `cloudpickle` here, or use a function of a module" if with_code is None else None
        raise Error(f"`{name}` and its arguments cannot be pickled: {type(error).__name__}: {error}", hint) from error
    if len(content) > _PICKLE_BYTES_MAX:
        size = len(content) >> 20
        raise Error(f"`{name}` and its arguments take {size} MiB", "hand large data over by `inputs` or `files`")
    return content


def about() -> str:
    """What a task must know before it reads a pickle."""
    return json.dumps({"python": list(sys.version_info[:2]), "cloudpickle": _cloudpickle() is not None})


def after(before: Optional[str], words: Sequence[str]) -> List[str]:
    """A command, after a script of bash where there is one; its end is the command's."""
    return list(words) if not before else ["bash", "-c", before + '\nexec "$@"', "bash", *words]


def add_package(folder: Path) -> "Room":
    """Puts this package into a task's folder, and `cloudpickle` if it was used; the room that is left for modules."""
    _copy(Path(__file__).parent, folder / "ydl")
    with_code = _cloudpickle()
    if with_code is not None:
        _copy(Path(with_code.__file__).parent, folder / "cloudpickle")
    return Room(folder)


def _is_cluster(how: Mapping[str, Any]) -> bool:
    """Whether the job will be for a cluster, as the binary would decide."""
    if how.get("cluster") is not None:
        return bool(how["cluster"] == "yarn")
    probe = {"name": "probe", "roles": {"worker": {"run": "true"}}, "outputs": {"probe": "probe"}}
    more = {key: value for key, value in how.items() if key in ("env", "cwd")}
    shown = program.one(["submit", "-", "--show"], input=json.dumps(probe).encode(), **more)
    # On this machine destinations are paths from its root.
    return not str(shown["outputs"][0]["to"]).startswith("/")


def _state(given: Optional[Mapping[str, str]]) -> Path:
    """Where the binary keeps jobs of this machine."""
    env = {**os.environ, **(given or {})}
    state = env.get("XDG_STATE_HOME") or ""
    base = Path(state) if os.path.isabs(state) else Path(env.get("HOME") or Path.home()) / ".local/state"
    return base / "ydl"


def default_environment() -> str:
    """What this process runs in, where it can be sent."""
    if sys.prefix != sys.base_prefix or os.environ.get("CONDA_PREFIX") == sys.prefix:
        return sys.prefix
    return "system"


def _cloudpickle() -> Optional[Any]:
    try:
        return importlib.import_module("cloudpickle")
    except ImportError:
        return None


def _needs_cloudpickle(fn: Any, name: str) -> None:
    """Says so before pickle says something about `<locals>`."""
    module = getattr(fn, "__module__", None)
    local = "<locals>" in name or "<lambda>" in name
    if local or module == "__main__" or getattr(fn, "__closure__", None):
        what = "is defined in the main program" if module == "__main__" and not local else "is a closure or a lambda"
        raise Error(
            f"`{name}` {what}, and cannot be sent without `cloudpickle`",
            "install `cloudpickle` here (tasks need nothing), or move the function to a module",
        )


def own_modules(further: Sequence[object]) -> Dict[str, Path]:
    """The user's own modules: those that are loaded from elsewhere than the installation, by their topmost names."""
    found: Dict[str, Path] = {}
    installed = _installed_places()
    for name in list(sys.modules):
        top = name.partition(".")[0]
        if top in found or top in ("__main__", "ydl", "cloudpickle"):
            continue
        path = _source(sys.modules.get(top))
        if path is not None and not _is_installed(path, installed):
            found[top] = path
    for given in further:
        module = given if isinstance(given, ModuleType) else importlib.import_module(str(given))
        top = module.__name__.partition(".")[0]
        path = _source(importlib.import_module(top))
        if path is None:
            raise Error(f"the module `{module.__name__}` has no file that could be sent")
        found[top] = path
    return found


def _source(module: Optional[ModuleType]) -> Optional[Path]:
    """The file of a module, or the directory of a package."""
    if module is None:
        return None
    file = getattr(module, "__file__", None)
    if file:
        path = Path(file).absolute()
        return path.parent if path.name.startswith("__init__.") else path
    # A package without `__init__` may have several directories; the first has what was loaded.
    places = list(getattr(module, "__path__", None) or [])
    return Path(places[0]).absolute() if places else None


def _installed_places() -> Set[str]:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths.update(getattr(site, "getsitepackages", list)())
    paths.add(getattr(site, "getusersitepackages", str)())
    return {os.path.realpath(path) for path in paths if path}


def _is_installed(path: Path, places: Set[str]) -> bool:
    real = os.path.realpath(path)
    if {"site-packages", "dist-packages"} & set(Path(real).parts):
        return True
    if not os.path.exists(real):
        # Part of a zip, or made in memory.
        return True
    return any(real.startswith(place + os.sep) for place in places)


class Room:
    """A task's folder, and what the user's modules may still take in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bytes = _MODULES_BYTES_MAX
        self.files = _MODULE_FILES_MAX

    def add(self, name: str, path: Path) -> None:
        """Copies a module or a package."""
        if path.is_file():
            self._take(name, path)
            shutil.copyfile(path, self.folder / path.name)
            return
        # A directory without `__init__` may be anything that holds modules, data among them.
        only_code = not any(path.glob("__init__.*"))
        for source in _files(path):
            if only_code and source.suffix not in _CODE:
                continue
            self._take(name, source)
            target = self.folder / name / source.relative_to(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)

    def _take(self, name: str, path: Path) -> None:
        self.bytes -= path.stat().st_size
        self.files -= 1
        if self.bytes < 0 or self.files < 0:
            raise Error(
                f"the modules of your own are too large to be sent with the function; the last one was `{name}`",
                f"at most {_MODULES_BYTES_MAX >> 20} MiB and {_MODULE_FILES_MAX} files are; install it into the environment",
            )


def _files(path: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        for name in sorted(names):
            source = Path(place) / name
            if source.is_file() and not name.endswith((".pyc", ".pyo")):
                yield source


def _copy(source: Path, target: Path) -> None:
    """A package of pure Python."""
    def left_out(_: str, names: List[str]) -> List[str]:
        return [name for name in names if name in _LEFT_OUT or name == "tests"]

    shutil.copytree(source, target, ignore=left_out)
