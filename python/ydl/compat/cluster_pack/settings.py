"""Settings of cluster-pack for building a pex. ydl builds none, so they are only stored; the package index is used."""

import enum
import logging
import os
import shutil
from typing import Any, Dict, NamedTuple, Optional, Union

logger = logging.getLogger(__name__)


class LayoutOptimizationParams(NamedTuple):
    """Parameters of a layout in cluster-pack."""

    pex_layout: str
    use_zipfile: bool
    compress_level: int


class LayoutOptimization(enum.Enum):
    """Layout of a pex."""

    SLOW_FAST_SMALL = "SLOW_FAST_SMALL"
    FAST_MID_BIG = "FAST_MID_BIG"
    MID_SLOW_SMALL = "MID_SLOW_SMALL"
    DISABLED = "DISABLED"

    @classmethod
    def from_string(cls, value: str) -> "LayoutOptimization":
        """Parses a name in upper or lower case. Raises ValueError if it is unknown."""
        return cls(value.upper())

    def get_params(self) -> LayoutOptimizationParams:
        """Returns the parameters of cluster-pack for this layout."""
        packed = self in (LayoutOptimization.SLOW_FAST_SMALL, LayoutOptimization.DISABLED)
        level = 1 if self is LayoutOptimization.MID_SLOW_SMALL else 0
        return LayoutOptimizationParams("packed" if packed else "loose", self is not LayoutOptimization.DISABLED, level)


_settings: Dict[str, Any] = {}


def _store(name: str, value: object) -> None:
    _settings[name] = value
    logger.info("`%s` has no effect: ydl packs an environment in layers and uploads missing ones", name)


def set_layout_optimization(optimization: Union[LayoutOptimization, str]) -> None:
    """Stores the value. Raises ValueError if it is invalid."""
    if isinstance(optimization, str):
        optimization = LayoutOptimization.from_string(optimization)
    _store("layout_optimization", optimization)


def get_layout_optimization() -> LayoutOptimization:
    """Returns the value set by the program or by `C_PACK_LAYOUT_OPTIMIZATION`."""
    stored: Optional[LayoutOptimization] = _settings.get("layout_optimization")
    return stored or LayoutOptimization.from_string(os.environ.get("C_PACK_LAYOUT_OPTIMIZATION", "SLOW_FAST_SMALL"))


def set_venv_optimization_level(level: int) -> None:
    """Stores the value."""
    _store("venv_optimization_level", int(level))


def get_venv_optimization_level() -> int:
    """Returns the value set by the program or by `C_PACK_VENV_OPTIMIZATION_LEVEL`."""
    return int(_settings.get("venv_optimization_level", os.environ.get("C_PACK_VENV_OPTIMIZATION_LEVEL", "1")))


def set_pypi_index(pypi_index: Optional[str]) -> None:
    """Sets an additional package index for `upload_env`; None removes it."""
    _settings["pypi_index"] = pypi_index or None


def get_pypi_index() -> Optional[str]:
    """Returns the value set by the program or by `C_PACK_PYPI_URL`."""
    value = _settings["pypi_index"] if "pypi_index" in _settings else os.environ.get("C_PACK_PYPI_URL")
    return str(value) if value else None


def is_uv_available() -> bool:
    """Returns True if `uv` is installed. ydl does not use it."""
    return shutil.which("uv") is not None
