"""cluster-pack's API on top of `ydl pack`. Environments are stored by content, on this machine and on the cluster. The first job
that needs one uploads it. See `docs/moving/tf-yarn.md`."""

from . import filesystem, settings, yarn_launcher
from .packaging import (
    CONDA_PACKER,
    PEX_PACKER,
    Packer,
    PythonEnvDescription,
    detect_packer_from_file,
    get_default_fs,
    get_editable_requirements,
    get_non_editable_requirements,
    get_pyenv_usage_from_archive,
    zip_path,
)
from .settings import (
    LayoutOptimization,
    get_layout_optimization,
    get_venv_optimization_level,
    is_uv_available,
    set_layout_optimization,
    set_venv_optimization_level,
)
from .uploader import upload_env, upload_zip

__all__ = [
    "CONDA_PACKER",
    "LayoutOptimization",
    "PEX_PACKER",
    "Packer",
    "PythonEnvDescription",
    "detect_packer_from_file",
    "filesystem",
    "get_default_fs",
    "get_editable_requirements",
    "get_layout_optimization",
    "get_non_editable_requirements",
    "get_pyenv_usage_from_archive",
    "get_venv_optimization_level",
    "is_uv_available",
    "set_layout_optimization",
    "set_venv_optimization_level",
    "settings",
    "upload_env",
    "upload_zip",
    "yarn_launcher",
    "zip_path",
]
