"""Folder shipped with a job, so that the environment of its tasks needs nothing of ydl."""

import logging
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Dict, Mapping, Optional, Type

logger = logging.getLogger(__name__)

FOLDER = "tf_yarn-task"
EXPERIMENT = FOLDER + "/experiment.pickle"
#: Variable with the absolute path of that file in a task.
EXPERIMENT_FILE = "TF_YARN_EXPERIMENT_FILE"
METADATA = FOLDER + "/metadata.json"

# Hooks of a task may use the job's store through skein.
SHIMS = ("tf_yarn", "cluster_pack", "skein")
_SHIM = "from ydl.compat.alias import alias\n\nalias({name!r}, {real!r})\n"


def pickle_experiment(experiment_fn: Callable[..., Any]) -> bytes:
    """Pickles the experiment function."""
    from ydl import functions

    return functions.pickle_call(experiment_fn, experiment_fn)


def editable_packages() -> Dict[str, Path]:
    """Returns the editable packages of this environment, loaded or not."""
    from ..cluster_pack import get_editable_requirements

    try:
        return {name: Path(path) for name, path in get_editable_requirements().items()}
    except (RuntimeError, ValueError, OSError, subprocess.SubprocessError) as error:
        logger.debug("cannot determine the editable packages: %s", error)
        return {}


class Bundle:
    """Context manager for the folder while the job is submitted. `additional` are packages that are shipped even if not loaded."""

    def __init__(self, experiment: bytes, additional: Optional[Mapping[str, Path]] = None) -> None:
        self.experiment = experiment
        self.additional = dict(additional or {})

    def __enter__(self) -> Dict[str, str]:
        self.directory = tempfile.mkdtemp(prefix="tf_yarn-")
        try:
            return {FOLDER: str(self._write(Path(self.directory)))}
        except BaseException:
            # `__exit__` is not called if this fails.
            shutil.rmtree(self.directory, ignore_errors=True)
            raise

    def _write(self, directory: Path) -> Path:
        from ydl import Error, functions

        folder = directory / FOLDER
        folder.mkdir()
        package = functions.add_package(folder)
        # In PYTHONPATH for processes that a task starts.
        for name in SHIMS:
            (folder / name).mkdir()
            text = _SHIM.format(name=name, real="ydl.compat." + name)
            (folder / name / "__init__.py").write_text(text, encoding="utf-8")
        for name, path in {**self.additional, **functions.user_modules([])}.items():
            if name in (*SHIMS, "ydl", "cloudpickle"):
                continue
            try:
                package.add(name, path)
            except Error as error:
                # tf-yarn ships none of them, so programs with `files` still work.
                logger.warning("`%s` is not shipped automatically: %s", name, error.message)
        (directory / EXPERIMENT).write_bytes(self.experiment)
        (directory / METADATA).write_text(functions.pickle_info(), encoding="utf-8")
        return folder

    def __exit__(
        self, kind: Optional[Type[BaseException]], failure: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
