"""Functions of cluster-pack in tf-yarn, with their older names."""

import os
import sys
from typing import Any, Dict, Optional, Tuple

from ..cluster_pack import (
    CONDA_PACKER,
    PEX_PACKER,
    Packer,
    detect_packer_from_file,
    get_default_fs,
    get_editable_requirements,
    get_non_editable_requirements,
    upload_env,
    upload_zip,
    zip_path,
)
from .unsupported import unsupported

_HINT = "ydl packs environments itself. Use `upload_env_to_hdfs`, or pass a virtual environment as `pyenv_zip_path`"
create_and_pack_conda_env = unsupported("create_and_pack_conda_env", _HINT)
pack_current_venv_in_pex = unsupported("pack_current_venv_in_pex", _HINT)
pack_in_pex = unsupported("pack_in_pex", _HINT)
pack_venv_in_conda = unsupported("pack_venv_in_conda", _HINT)


def get_env_name(env_var_name: str) -> str:
    """Returns the name of the environment whose directory a variable has, or `default` without the variable."""
    return os.path.basename(os.environ.get(env_var_name, "").rstrip("/")) or "default"


def upload_zip_to_hdfs(zip_file: str, archive_on_hdfs: Optional[str] = None) -> str:
    """Returns the path of an existing archive for `run_on_yarn`."""
    return upload_zip(zip_file, archive_on_hdfs)


def upload_env_to_hdfs(
    archive_on_hdfs: Optional[str] = None,
    packer: Optional[Packer] = None,
    additional_packages: Optional[Dict[str, str]] = None,
    ignored_packages: Any = None,
) -> Tuple[str, str]:
    """Packs the environment of this process. Returns its path and name."""
    return upload_env(archive_on_hdfs, packer, additional_packages, ignored_packages)


def upload_env_to_hdfs_from_venv(
    archive_on_hdfs: str,
    packer: Optional[Packer] = PEX_PACKER,
    additional_packages: Optional[Dict[str, str]] = None,
    ignored_packages: Any = None,
) -> None:
    """Packs the environment of this process. A job of this program that names `archive_on_hdfs` uses it."""
    upload_env(archive_on_hdfs, packer, additional_packages, ignored_packages)


def get_editable_requirements_from_current_venv(
    executable: str = sys.executable, editable_packages_dir: Optional[str] = None
) -> Dict[str, str]:
    """Returns the directories of editable packages by name."""
    return get_editable_requirements(executable)


__all__ = [
    "CONDA_PACKER",
    "PEX_PACKER",
    "create_and_pack_conda_env",
    "detect_packer_from_file",
    "get_default_fs",
    "get_editable_requirements",
    "get_editable_requirements_from_current_venv",
    "get_env_name",
    "get_non_editable_requirements",
    "pack_current_venv_in_pex",
    "pack_in_pex",
    "pack_venv_in_conda",
    "upload_env",
    "upload_env_to_hdfs",
    "upload_env_to_hdfs_from_venv",
    "upload_zip",
    "upload_zip_to_hdfs",
    "zip_path",
]
