"""`upload_env` and `upload_zip`: what they return is what a job is given.

Nothing is sent here. `ydl` packs an environment in layers and keeps each by its content, so the first job that needs one
sends it and no later one does; there is no archive that two users could overwrite for each other.
"""

import hashlib
import logging
import os
import re
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from . import packaging, settings

logger = logging.getLogger(__name__)

DOWNLOAD_SECONDS = 3600
DOWNLOAD_BYTES_MAX = 32 << 30
# Every environment has the first of these, and what is ydl's travels with each job.
LEFT_OUT = ("pip", "setuptools", "wheel", "ydl-yarn", "ydl-tf-yarn", "tf-yarn", "cluster-pack")
SILENCE_SECONDS = 60
"""How long a server may say nothing."""


def upload_env(
    package_path: Optional[str] = None,
    packer: Optional[packaging.Packer] = None,
    additional_packages: Optional[Dict[str, str]] = None,
    ignored_packages: Optional[Sequence[str]] = None,
    only_packages: Optional[Sequence[str]] = None,
    force_upload: bool = False,
    include_editable: bool = False,
    fs_args: Optional[Dict[str, Any]] = None,
    allow_large_pex: bool = False,
    include_pex_tools: bool = False,
    additional_repo: Any = None,
    additional_indexes: Optional[Sequence[str]] = None,
) -> Tuple[str, str]:
    """The environment that this process runs in, looked through and packed: `(path, name)`, whose path is what
    `run_on_yarn` and `environment:` of a job take.

    With other packages than are installed here the path is that of a list, from which ydl makes an environment.
    """
    for name, value in (("packer", packer), ("fs_args", fs_args), ("allow_large_pex", allow_large_pex or None),
                        ("include_pex_tools", include_pex_tools or None), ("force_upload", force_upload or None)):  # fmt: skip
        if value is not None:
            logger.info("upload_env: `%s` changes nothing, ydl packs by itself and sends what is not there yet", name)
    for name in ("C_PACK_USER", "C_PACK_ENV_FALLBACK_PATH"):
        if os.environ.get(name):
            logger.warning("upload_env: `%s` is not looked at: an environment is its owner's, and is packed as it is", name)
    name = env_name()
    if additional_packages or ignored_packages or only_packages or additional_repo or additional_indexes:
        repositories = [additional_repo] if isinstance(additional_repo, str) else list(additional_repo or [])
        text = requirements(
            packaging.get_non_editable_requirements(),
            dict(additional_packages or {}),
            list(ignored_packages or []),
            None if only_packages is None else list(only_packages),
            repositories + list(additional_indexes or []) + list(filter(None, [settings.get_pypi_index()])),
            packaging_roots() if include_editable else [],
        )
        path = _kept(name, text)
    else:
        path = os.environ.get("PEX") or sys.prefix
        if path == sys.prefix and sys.prefix == sys.base_prefix and "CONDA_PREFIX" not in os.environ:
            logger.warning("this is no virtual environment: all of `%s` is packed", sys.prefix)
    _pack(path)
    if package_path is not None:
        _hand_on(package_path, path, "upload_env")
    return path, name


_handed_on: Dict[str, str] = {}
"""What stands for paths that this process named and nobody writes."""


def _hand_on(named: str, path: str, function: str) -> None:
    _handed_on[named] = path
    logger.warning(
        "`%s` is not written: what a job needs is kept by its content in the staging directory. "
        "In this program that path means what %s returns; elsewhere hand on that", named, function
    )  # fmt: skip


def meant_by(path: str) -> str:
    """The environment that a path means: itself, unless :func:`upload_env` or :func:`upload_zip` was to write it."""
    return _handed_on.get(path, path)


def _pack(path: str) -> None:
    """Packs, so that what is wrong with the environment is said here and a submit finds it packed."""
    import ydl

    for told in ydl.binary_call(["pack", path]):
        logger.info("packed `%s`: %s", path, {key: told[key] for key in ("size", "bytes", "layers") if key in told} or "ready")


def env_name() -> str:
    """The environment's name, with a mark of where it lies: two of one name stay two."""
    place = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX") or sys.prefix
    mark = hashlib.sha1(os.path.realpath(place).encode()).hexdigest()[:7]
    return "{}_{}".format(os.path.basename(place.rstrip("/")) or "default", mark)


def normal(name: str) -> str:
    """A package's name as all spellings of it are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(
    installed: Dict[str, str],
    additional: Dict[str, str],
    ignored: Sequence[str],
    only: Optional[Sequence[str]],
    indexes: Sequence[str],
    editable: Sequence[str],
) -> str:
    """The list that another environment is made from."""
    left_out = {normal(name) for name in ignored} | {normal(name) for name in additional}
    chosen = None if only is None else {normal(name) for name in only}
    lines: List[str] = ["--extra-index-url {}".format(index) for index in indexes]
    lines += ["-e {}".format(place) for place in editable]
    for name, version in sorted(installed.items()):
        if normal(name) in left_out or (chosen is not None and normal(name) not in chosen):
            continue
        if normal(name) not in LEFT_OUT:
            lines.append("{}=={}".format(name, version))
    for name, version in sorted(additional.items()):
        # A value may be a version, or all of what pip takes after a name or instead of one.
        exact = re.match(r"^[\w.!+*]+$", version or "")
        lines.append("{}=={}".format(name, version) if exact else version if "://" in (version or "") else name + (version or ""))
    return "".join(line + "\n" for line in lines)


def packaging_roots() -> List[str]:
    """The projects that can be edited."""
    rows = packaging._pip_list(sys.executable, "-e")
    return sorted({row["editable_project_location"] for row in rows if row.get("editable_project_location")})


def _cache() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "ydl", "cluster_pack")


def _kept(name: str, text: str) -> str:
    """The list as a file, which is the same as long as it says the same."""
    mark = hashlib.sha256(text.encode()).hexdigest()[:12]
    folder = os.path.join(_cache(), "{}-{}".format(name, mark))
    path = os.path.join(_own_folder(folder), "requirements.txt")
    if not os.path.exists(path):
        _write(path, iter([text.encode("utf-8")]))
    return path


def _own_folder(folder: str) -> str:
    """A directory that only its owner reads: addresses in lists and archives may have passwords in them."""
    os.makedirs(folder, exist_ok=True)
    os.chmod(folder, 0o700)
    return folder


def _write(path: str, blocks: Iterator[bytes]) -> None:
    """Writes a file, whole or not at all, whoever else writes it just now."""
    number, aside = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".new-")
    try:
        with os.fdopen(number, "wb") as file:
            for block in blocks:
                file.write(block)
        os.replace(aside, path)
    except BaseException:
        os.unlink(aside)
        raise


def upload_zip(
    zip_file: str,
    package_path: Optional[str] = None,
    force_upload: bool = False,
    fs_args: Optional[Dict[str, Any]] = None,
) -> str:
    """An archive that somebody has made: the path that a job is given. One behind `http://` or `https://` is downloaded
    first; one in HDFS is used where it is."""
    packaging.detect_packer_from_file(zip_file)
    path = _found(zip_file, force_upload)
    if package_path is not None and package_path != path:
        _hand_on(package_path, path, "upload_zip")
    return path


def _found(zip_file: str, again: bool) -> str:
    if re.match(r"^https?://", zip_file):
        return _download(zip_file, again)
    if "://" in zip_file:
        return zip_file
    path = os.path.abspath(zip_file)
    if not os.path.isfile(path):
        raise FileNotFoundError("there is no file `{}`".format(path))
    return path


def _download(url: str, again: bool) -> str:
    mark = hashlib.sha256(url.encode()).hexdigest()[:12]
    folder = os.path.join(_cache(), mark)
    path = os.path.join(_own_folder(folder), os.path.basename(urllib.parse.urlparse(url).path))
    if again or not os.path.exists(path):
        with urllib.request.urlopen(url, timeout=SILENCE_SECONDS) as answer:
            _write(path, _whole(answer, url))
    return path


def _whole(answer: Any, url: str) -> Iterator[bytes]:
    """All of an answer, or an error: a part of an archive must not be taken for it."""
    end, size = time.monotonic() + DOWNLOAD_SECONDS, 0
    for block in iter(lambda: answer.read(1 << 20), b""):
        size += len(block)
        if size > DOWNLOAD_BYTES_MAX:
            raise OSError("`{}` is larger than {} GiB".format(_shown(url), DOWNLOAD_BYTES_MAX >> 30))
        if time.monotonic() > end:
            raise OSError("`{}` was not here after {} s".format(_shown(url), DOWNLOAD_SECONDS))
        yield block
    promised = answer.headers.get("content-length")
    if promised is not None and promised.isdigit() and int(promised) != size:
        raise OSError("`{}` has {} bytes, and {} came".format(_shown(url), promised, size))


def _shown(url: str) -> str:
    """An address as it may be told: without a password in it."""
    return re.sub(r"//[^/?#]*@", "//", url)
