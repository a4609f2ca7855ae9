"""Packages of Python environments, and use of their archives."""

import atexit
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
import zipfile
from typing import Dict, List, NamedTuple, Optional


class Packer(NamedTuple):
    """Kind of an existing archive. ydl packs environments in its own format."""

    name: str
    extensions: List[str]

    def env_name(self) -> str:
        return self.name

    def extension(self) -> str:
        return self.extensions[0]


PEX_PACKER = Packer("pex", ["pex", "pex.zip"])
CONDA_PACKER = Packer("conda", ["zip", "tar.gz", "tgz"])
ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar")


class PythonEnvDescription(NamedTuple):
    """Use of an archive in a task: interpreter, name, and unpacking."""

    path_to_archive: str
    interpreter_cmd: str
    dest_path: str
    must_unpack: bool


def get_pyenv_usage_from_archive(path_to_archive: str) -> PythonEnvDescription:
    """Returns the use of an archive by its name."""
    name = os.path.basename(path_to_archive)
    if name.endswith(".pex"):
        return PythonEnvDescription(path_to_archive, "./" + name, name, False)
    if name.endswith(".pex.zip"):
        return PythonEnvDescription(path_to_archive, "pyenv/__main__.py", "pyenv", True)
    if name.endswith(ARCHIVES):
        return PythonEnvDescription(path_to_archive, "pyenv/bin/python", "pyenv", True)
    raise ValueError("`{}` is not an archive of an environment: its name must end in `.pex`, `.pex.zip`, `.zip` or `.tar.gz`".format(name))


def get_env_name(env_var_name: str) -> str:
    """Returns the name of the environment whose directory a variable has, with a hash of the directory: `NAME_HASH`, or `default`
    without the variable."""
    path = os.environ.get(env_var_name)
    if not path:
        return "default"
    return "{}_{}".format(os.path.basename(path.rstrip("/")), hashlib.sha1(path.encode()).hexdigest()[:7])


def detect_packer_from_file(zip_file: str) -> Packer:
    """Returns the kind of an archive by its name."""
    if zip_file.endswith((".pex", ".pex.zip")):
        return PEX_PACKER
    if zip_file.endswith(ARCHIVES):
        return CONDA_PACKER
    raise ValueError("`{}` is not an archive of an environment".format(zip_file))


def zip_path(py_dir: str, include_base_name: bool = True, tmp_dir: Optional[str] = None) -> str:
    """Packs a directory into a zip file in `tmp_dir`, without bytecode, with or without its own name."""
    py_dir = os.path.abspath(py_dir)
    base = os.path.basename(py_dir)
    target_dir = tmp_dir
    if target_dir is None:
        target_dir = tempfile.mkdtemp(prefix="zip-")
        # The caller removes only a directory of its own.
        atexit.register(shutil.rmtree, target_dir, ignore_errors=True)
    target = os.path.join(target_dir, base + ".zip")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder, names, files in os.walk(py_dir):
            names[:] = sorted(name for name in names if name not in ("__pycache__", ".git"))
            for name in sorted(files):
                if name.endswith(".pyc"):
                    continue
                path = os.path.join(folder, name)
                inside = os.path.relpath(path, py_dir)
                archive.write(path, os.path.join(base, inside) if include_base_name else inside)
    return target


def _pip_list(executable: str, *options: str) -> List[Dict[str, str]]:
    line = [executable, "-m", "pip", "list", "--format", "json", "--disable-pip-version-check", *options]
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    if done.returncode != 0:
        errors = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise RuntimeError("`{}` failed: {}".format(" ".join(line), errors[-1] if errors else "unknown error"))
    return json.loads(done.stdout.decode("utf-8"))


def get_editable_requirements(executable: str = sys.executable) -> Dict[str, str]:
    """Returns the directories of editable packages by name. A project may have several."""
    found: Dict[str, str] = {}
    for row in _pip_list(executable, "-e"):
        location = row.get("editable_project_location") or row.get("location") or ""
        for root in (location, os.path.join(location, "src")):
            if not os.path.isdir(root):
                continue
            for name in sorted(os.listdir(root)):
                if os.path.isfile(os.path.join(root, name, "__init__.py")) and name not in ("test", "tests"):
                    found[name] = os.path.join(root, name)
    return found


def get_non_editable_requirements(executable: str = sys.executable) -> Dict[str, str]:
    """Returns the versions of other packages by name."""
    return {row["name"]: row["version"] for row in _pip_list(executable, "-l", "--exclude-editable")}


def get_default_fs() -> str:
    """Returns `fs.defaultFS` of the Hadoop configuration, by default `file:///`."""
    folders = [os.environ.get("HADOOP_CONF_DIR", "")]
    if os.environ.get("HADOOP_HOME"):
        folders.append(os.path.join(os.environ["HADOOP_HOME"], "etc", "hadoop"))
    for folder in filter(None, folders):
        path = os.path.join(folder, "core-site.xml")
        try:
            properties = xml.etree.ElementTree.parse(path).getroot().iter("property")
        except (OSError, xml.etree.ElementTree.ParseError):
            continue
        found = {entry.findtext("name", "").strip(): entry.findtext("value", "").strip() for entry in properties}
        for name in ("fs.defaultFS", "fs.default.name"):
            if found.get(name):
                return found[name]
    return "file:///"
