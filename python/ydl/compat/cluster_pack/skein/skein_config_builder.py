"""Parts of a skein service that runs a module or function in a packed environment, with the API of cluster-pack."""

import os
import shlex
import tempfile
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from ...skein.model import EnvironmentFile, File
from .. import packaging, uploader
from . import _execute_fun

_EXECUTE = os.path.abspath(_execute_fun.__file__)
#: Name of the environment among the files of a service.
_ENVIRONMENT = "pyenv"


class SkeinConfig(NamedTuple):
    """Script, files and variables of a service."""

    script: str
    files: Dict[str, Any]
    env: Dict[str, str]


def build_with_func(
    func: Callable[..., Any],
    args: Optional[List[Any]] = None,
    package_path: Optional[str] = None,
    additional_files: Optional[Sequence[str]] = None,
    tmp_dir: Optional[str] = None,
    log_level: str = "INFO",
    process_logs: Optional[Callable[[str], Any]] = None,
    allow_large_pex: bool = False,
) -> SkeinConfig:
    """Returns the parts of a service that calls a function, which is sent with `cloudpickle`."""
    import cloudpickle

    folder = tmp_dir or tempfile.mkdtemp(prefix="function-")
    descriptor, path = tempfile.mkstemp(prefix="function_", suffix=".dat", dir=folder)
    with os.fdopen(descriptor, "wb") as file:
        cloudpickle.dump({"func": func, "args": args or []}, file)
    files = [*(additional_files or []), path, _EXECUTE]
    arguments = [os.path.basename(path), log_level]
    return build(os.path.basename(_EXECUTE), arguments, package_path, files, folder, process_logs)


def build(
    module_name: str,
    args: Optional[List[Any]] = None,
    package_path: Optional[str] = None,
    additional_files: Optional[Sequence[str]] = None,
    tmp_dir: Optional[str] = None,
    process_logs: Optional[Callable[[str], Any]] = None,
    allow_large_pex: bool = False,
) -> SkeinConfig:
    """Returns the parts of a service that runs a module, or a file whose name ends in `.py`."""
    from ...tf_yarn.plan import environment_of

    environment = environment_of(package_path or uploader.upload_env()[0], {})
    files: Dict[str, Any] = {name: _file(source) for name, source in environment.files.items()}
    if environment.source != "system":
        files[_ENVIRONMENT] = EnvironmentFile(environment.source)
    if "://" in environment.source or environment.files:
        # The packages of an archive are fixed; ydl packs editable ones with an environment on this machine.
        for name, path in packaging.get_editable_requirements().items():
            files[name] = File(packaging.zip_path(path, False), type="archive")
    files.update((os.path.basename(path), File(path)) for path in additional_files or [])
    option = [] if module_name.endswith(".py") else ["-m"]
    line = " ".join(map(shlex.quote, [*environment.python, *option, module_name, *map(str, args or [])]))
    script = "\n".join([*("export {}={}".format(*pair) for pair in environment.env.items()), line])
    if process_logs is not None:
        hook = build_with_func(process_logs, ["output.log"], package_path, tmp_dir=tmp_dir)
        files.update(hook.files)
        script = "\n".join([
            "set -o pipefail", "{{\n{}\n}} 2>&1 | tee output.log".format(script), "status=$?",
            hook.script, "logs=$?", "exit $((status || logs))",
        ])  # fmt: skip
    return SkeinConfig(script, files, {"GIT_PYTHON_REFRESH": "quiet"})


def _file(source: Any) -> File:
    return File(source["source"], type="archive") if isinstance(source, dict) else File(source)
