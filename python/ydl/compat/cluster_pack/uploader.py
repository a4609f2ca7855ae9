"""`upload_env` and `upload_zip`, which return paths for jobs.

They upload nothing. `ydl` packs an environment in layers and stores them by content. The first job that needs a layer uploads
it, so there is no archive that users could overwrite.
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
MAX_DOWNLOAD_BYTES = 32 << 30
# Part of every environment, or shipped with each job.
EXCLUDED_PACKAGES = ("pip", "setuptools", "wheel", "ydl-yarn", "ydl-tf-yarn", "tf-yarn", "cluster-pack")
READ_TIMEOUT_SECONDS = 60
"""Timeout of a read from a server."""


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
    """Packs the environment of this process. Returns `(path, name)`; the path is for `run_on_yarn` and `environment:` of a job.

    With packages other than the installed ones the path is that of a requirements file, from which ydl builds an environment.
    """
    for name, value in (("packer", packer), ("fs_args", fs_args), ("allow_large_pex", allow_large_pex or None),
                        ("include_pex_tools", include_pex_tools or None), ("force_upload", force_upload or None)):  # fmt: skip
        if value is not None:
            logger.info("upload_env: `%s` has no effect: ydl packs the environment in layers and uploads missing ones", name)
    for name in ("C_PACK_USER", "C_PACK_ENV_FALLBACK_PATH"):
        if os.environ.get(name):
            logger.warning("upload_env: `%s` is ignored: ydl packs the environment of the current user unchanged", name)
    if package_path is not None and packer is not None:
        _check_extension(package_path, packer)
    name = env_name()
    if additional_packages or ignored_packages or only_packages or additional_repo or additional_indexes:
        repositories = [additional_repo] if isinstance(additional_repo, str) else list(additional_repo or [])
        text = requirements(
            packaging.get_non_editable_requirements(),
            dict(additional_packages or {}),
            list(ignored_packages or []),
            None if only_packages is None else list(only_packages),
            repositories + list(filter(None, [settings.get_pypi_index()])),
            packaging_roots() if include_editable else [],
            list(additional_indexes or []),
        )
        path = _write_requirements(name, text)
    else:
        path = os.environ.get("PEX") or sys.prefix
        if path == sys.prefix and sys.prefix == sys.base_prefix and "CONDA_PREFIX" not in os.environ:
            logger.warning("no virtual environment is active: packing all of `%s`", sys.prefix)
    _pack(path)
    if package_path is not None:
        _redirect(package_path, path, "upload_env")
    return path, name


def _check_extension(package_path: str, packer: packaging.Packer) -> None:
    """Raises ValueError if the name of a package is not one that its packer writes."""
    extensions = ("pex", "pex.zip") if packer == packaging.PEX_PACKER else (packer.extension(),)
    if not package_path.endswith(tuple("." + extension for extension in extensions)):
        raise ValueError("`{}` has the wrong extension: a package of `{}` ends in `.{}`".format(
            package_path, packer.name, packer.extension()
        ))  # fmt: skip


_redirected: Dict[str, str] = {}
"""Real paths by the `package_path` that was passed and is not written."""


def _redirect(package_path: str, path: str, function: str) -> None:
    _redirected[package_path] = path
    logger.warning(
        "`%s` is not written, because environments are stored by content in the staging directory. "
        "This program uses the path that %s returns instead; use that path in other programs", package_path, function
    )  # fmt: skip


def local_path(path: str) -> str:
    """Returns the real path of an environment, if `path` was passed to :func:`upload_env` or :func:`upload_zip`."""
    return _redirected.get(path, path)


def _pack(path: str) -> None:
    """Packs an environment, so that errors are reported early and a submit reuses the result."""
    import ydl

    for packed in ydl.run_binary(["pack", path], on_note=_show):
        logger.info("packed `%s`: %s", path, {key: packed[key] for key in ("size", "bytes", "layers") if key in packed} or "ready")


def _show(note: str) -> None:
    """Shows progress: programs of tf-yarn call this before anything configures a logger."""
    print(note, file=sys.stderr, flush=True)


def env_name() -> str:
    """Returns the name of the environment with a hash of its path, which makes it unique."""
    path = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX") or sys.prefix
    digest = hashlib.sha1(os.path.realpath(path).encode()).hexdigest()[:7]
    return "{}_{}".format(os.path.basename(path.rstrip("/")) or "default", digest)


def normalized(name: str) -> str:
    """Normalizes the name of a package."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(
    installed: Dict[str, str],
    additional: Dict[str, str],
    ignored: Sequence[str],
    only: Optional[Sequence[str]],
    indexes: Sequence[str],
    editable: Sequence[str],
    links: Sequence[str] = (),
) -> str:
    """Returns the text of a requirements file. `indexes` are package indexes, `links` are pages or directories with packages."""
    excluded = {normalized(name) for name in ignored} | {normalized(name) for name in additional}
    selected = None if only is None else {normalized(name) for name in only}
    lines: List[str] = ["--extra-index-url {}".format(_location(index)) for index in indexes]
    lines += ["--find-links {}".format(_location(link)) for link in links]
    lines += ["-e {}".format(path) for path in editable]
    for name, version in sorted(installed.items()):
        if normalized(name) in excluded or (selected is not None and normalized(name) not in selected):
            continue
        if normalized(name) not in EXCLUDED_PACKAGES:
            lines.append("{}=={}".format(name, version))
    for name, version in sorted(additional.items()):
        # A value is a version, a version specifier, or an address.
        exact = re.match(r"^[\w.!+*]+$", version or "")
        lines.append("{}=={}".format(name, version) if exact else version if "://" in (version or "") else name + (version or ""))
    return "".join(line + "\n" for line in lines)


def _location(text: str) -> str:
    """Returns an address, or the absolute path of a local directory: the requirements file is elsewhere."""
    return text if "://" in text else os.path.abspath(text)


def packaging_roots() -> List[str]:
    """Returns the directories of editable projects."""
    rows = packaging._pip_list(sys.executable, "-e")
    return sorted({row["editable_project_location"] for row in rows if row.get("editable_project_location")})


def _cache() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "ydl", "cluster_pack")


def _write_requirements(name: str, text: str) -> str:
    """Writes a requirements file whose path depends on its content."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    folder = os.path.join(_cache(), "{}-{}".format(name, digest))
    path = os.path.join(_private_dir(folder), "requirements.txt")
    if not os.path.exists(path):
        _write(path, iter([text.encode("utf-8")]))
    return path


def _private_dir(folder: str) -> str:
    """Creates a directory that only its owner can read, since addresses may contain passwords."""
    os.makedirs(folder, exist_ok=True)
    os.chmod(folder, 0o700)
    return folder


def _write(path: str, blocks: Iterator[bytes]) -> None:
    """Writes a file atomically, also with concurrent writers."""
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".new-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            for block in blocks:
                file.write(block)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def upload_zip(
    zip_file: str,
    package_path: Optional[str] = None,
    force_upload: bool = False,
    fs_args: Optional[Dict[str, Any]] = None,
) -> str:
    """Returns the path of an existing archive for a job. An archive at `http://` or `https://` is downloaded; one in HDFS is used
    unchanged."""
    packaging.detect_packer_from_file(zip_file)
    path = _resolve(zip_file, force_upload)
    if package_path is not None and package_path != path:
        _redirect(package_path, path, "upload_zip")
    return path


def _resolve(zip_file: str, force: bool) -> str:
    if re.match(r"^https?://", zip_file):
        return _download(zip_file, force)
    if "://" in zip_file:
        return zip_file
    path = os.path.abspath(zip_file)
    if not os.path.isfile(path):
        raise FileNotFoundError("file `{}` not found".format(path))
    return path


def _download(url: str, force: bool) -> str:
    digest = hashlib.sha256(url.encode()).hexdigest()[:12]
    folder = os.path.join(_cache(), digest)
    path = os.path.join(_private_dir(folder), os.path.basename(urllib.parse.urlparse(url).path))
    if force or not os.path.exists(path):
        with urllib.request.urlopen(url, timeout=READ_TIMEOUT_SECONDS) as response:
            _write(path, _blocks(response, url))
    return path


def _blocks(response: Any, url: str) -> Iterator[bytes]:
    """Yields the blocks of a response. Raises an error if it is incomplete."""
    end, size = time.monotonic() + DOWNLOAD_SECONDS, 0
    for block in iter(lambda: response.read(1 << 20), b""):
        size += len(block)
        if size > MAX_DOWNLOAD_BYTES:
            raise OSError("`{}` is larger than {} GiB".format(_without_login(url), MAX_DOWNLOAD_BYTES >> 30))
        if time.monotonic() > end:
            raise OSError("`{}` was not downloaded within {} s".format(_without_login(url), DOWNLOAD_SECONDS))
        yield block
    expected = response.headers.get("content-length")
    if expected is not None and expected.isdigit() and int(expected) != size:
        raise OSError("`{}` has {} bytes, but {} were received".format(_without_login(url), expected, size))


def _without_login(url: str) -> str:
    """Removes user name and password from an address."""
    return re.sub(r"//[^/?#]*@", "//", url)
