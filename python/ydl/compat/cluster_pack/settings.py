"""How cluster-pack builds a pex. ydl builds none: what is set here can be asked for again, and changes nothing else; only the
index of packages is heeded."""

import enum
import logging
import os
import shutil
from typing import Any, Dict, Optional, Union

logger = logging.getLogger(__name__)


class LayoutOptimization(enum.Enum):
    """How a pex is laid out: how slow it is to build, to send and to start."""

    SLOW_FAST_SMALL = "SLOW_FAST_SMALL"
    FAST_MID_BIG = "FAST_MID_BIG"
    MID_SLOW_SMALL = "MID_SLOW_SMALL"
    DISABLED = "DISABLED"


_set: Dict[str, Any] = {}


def _take(name: str, value: object) -> None:
    _set[name] = value
    logger.info("`%s` changes nothing: ydl packs an environment in layers, and sends those that are not there yet", name)


def set_layout_optimization(optimization: Union[LayoutOptimization, str]) -> None:
    """Takes it; ValueError for what there is not."""
    _take("layout_optimization", LayoutOptimization(getattr(optimization, "value", optimization)))


def get_layout_optimization() -> LayoutOptimization:
    """What was set, in the program or by `C_PACK_LAYOUT_OPTIMIZATION`."""
    given = _set.get("layout_optimization") or os.environ.get("C_PACK_LAYOUT_OPTIMIZATION", "DISABLED")
    return LayoutOptimization(getattr(given, "value", given))


def set_venv_optimization_level(level: int) -> None:
    """Takes it."""
    _take("venv_optimization_level", int(level))


def get_venv_optimization_level() -> int:
    """What was set, in the program or by `C_PACK_VENV_OPTIMIZATION_LEVEL`."""
    return int(_set.get("venv_optimization_level", os.environ.get("C_PACK_VENV_OPTIMIZATION_LEVEL", "1")))


def set_pypi_index(pypi_index: Optional[str]) -> None:
    """A further index for the lists that `upload_env` makes; nothing takes it back."""
    _set["pypi_index"] = pypi_index or None


def get_pypi_index() -> Optional[str]:
    """What was set, in the program or by `C_PACK_PYPI_URL`."""
    given = _set["pypi_index"] if "pypi_index" in _set else os.environ.get("C_PACK_PYPI_URL")
    return str(given) if given else None


def is_uv_available() -> bool:
    """Whether `uv` is here. ydl does without."""
    return shutil.which("uv") is not None
