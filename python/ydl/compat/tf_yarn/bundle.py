"""What travels with a job so that its tasks need nothing of ydl in their environment: one folder beside the user's files."""

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
ABOUT = FOLDER + "/about.json"

# A task's hooks may ask skein for the job's store.
SHIMS = ("tf_yarn", "cluster_pack", "skein")
_SHIM = "from ydl.compat.alias import alias\n\nalias({name!r}, {real!r})\n"


def pickled(experiment_fn: Callable[..., Any]) -> bytes:
    """The function as bytes."""
    from ydl import functions

    return functions.pickled(experiment_fn, experiment_fn)


def editable_packages() -> Dict[str, Path]:
    """Packages of this environment that can be edited, loaded or not."""
    from ..cluster_pack import get_editable_requirements

    try:
        return {name: Path(path) for name, path in get_editable_requirements().items()}
    except (RuntimeError, ValueError, OSError, subprocess.SubprocessError) as unknown:
        logger.debug("which packages can be edited is not known: %s", unknown)
        return {}


class Bundle:
    """The folder, for as long as it takes to submit the job. `more` are packages that travel beside those that are loaded."""

    def __init__(self, experiment: bytes, more: Optional[Mapping[str, Path]] = None) -> None:
        self.experiment = experiment
        self.more = dict(more or {})

    def __enter__(self) -> Dict[str, str]:
        self.place = tempfile.mkdtemp(prefix="tf_yarn-")
        try:
            return {FOLDER: str(self._filled(Path(self.place)))}
        except BaseException:
            # What `__enter__` does not come back from is never left.
            shutil.rmtree(self.place, ignore_errors=True)
            raise

    def _filled(self, place: Path) -> Path:
        from ydl import Error, functions

        folder = place / FOLDER
        folder.mkdir()
        room = functions.add_package(folder)
        # Processes that a task starts find them in its PYTHONPATH.
        for name in SHIMS:
            (folder / name).mkdir()
            text = _SHIM.format(name=name, real="ydl.compat." + name)
            (folder / name / "__init__.py").write_text(text, encoding="utf-8")
        for name, path in {**self.more, **functions.own_modules([])}.items():
            if name in (*SHIMS, "ydl", "cloudpickle"):
                continue
            try:
                room.add(name, path)
            except Error as too_large:
                # tf-yarn sent none of them: whoever named his `files` needs nothing else.
                logger.warning("`%s` does not travel by itself: %s", name, too_large.message)
        (place / EXPERIMENT).write_bytes(self.experiment)
        (place / ABOUT).write_text(functions.about(), encoding="utf-8")
        return folder

    def __exit__(
        self, kind: Optional[Type[BaseException]], failure: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
