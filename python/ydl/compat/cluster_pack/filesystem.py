"""File systems by address: through fsspec if it is installed, otherwise only local files."""

import glob
import os
import shutil
from typing import Any, Dict, List, Tuple
from urllib.parse import ParseResult, urlparse

HADOOP_SCHEMES = ("hdfs", "viewfs")


class LocalFileSystem:
    """Common methods of fsspec for local files, if fsspec is not installed."""

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def isdir(self, path: str) -> bool:
        return os.path.isdir(path)

    def isfile(self, path: str) -> bool:
        return os.path.isfile(path)

    def info(self, path: str) -> Dict[str, Any]:
        found = os.stat(path)
        kind = "directory" if os.path.isdir(path) else "file"
        return {"name": path, "size": found.st_size, "type": kind, "mtime": found.st_mtime}

    def size(self, path: str) -> int:
        return os.path.getsize(path)

    def ls(self, path: str, detail: bool = False) -> List[Any]:
        names = [os.path.join(path, name) for name in sorted(os.listdir(path))]
        return [self.info(name) for name in names] if detail else names

    def glob(self, path: str) -> List[str]:
        return sorted(glob.glob(path, recursive=True))

    def open(self, path: str, mode: str = "rb") -> Any:
        return open(path, mode)

    def makedirs(self, path: str, exist_ok: bool = True) -> None:
        os.makedirs(path, exist_ok=exist_ok)

    def mkdir(self, path: str, create_parents: bool = True) -> None:
        os.makedirs(path) if create_parents else os.mkdir(path)

    def put(self, local: str, to: str, recursive: bool = False) -> None:
        shutil.copytree(local, to) if os.path.isdir(local) else shutil.copyfile(local, to)

    def get(self, path: str, local: str, recursive: bool = False) -> None:
        self.put(path, local, recursive)

    def cp(self, old: str, new: str, recursive: bool = False) -> None:
        self.put(old, new, recursive)

    def mv(self, old: str, new: str) -> None:
        os.replace(old, new)

    def rm(self, path: str, recursive: bool = False) -> None:
        shutil.rmtree(path) if recursive and os.path.isdir(path) else os.remove(path)


class EnhancedFileSystem:
    """Wrapper of cluster-pack around a file system. Other names are those of the file system."""

    def __init__(self, filesystem: Any) -> None:
        self.base_fs = filesystem

    def put(self, filename: str, path: str, chunk: int = 1 << 16, preserve_acl: bool = True) -> None:
        """Uploads a local file."""
        self.base_fs.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        self.base_fs.put(filename, path)
        if preserve_acl and hasattr(self.base_fs, "chmod"):
            self.base_fs.chmod(path, os.stat(filename).st_mode & 0o777)

    def get(self, path: str, filename: str, chunk: int = 1 << 16) -> None:
        """Downloads a file."""
        self.base_fs.get(path, filename)

    def __getattr__(self, name: str) -> Any:
        if name == "base_fs":
            raise AttributeError(name)
        return getattr(self.base_fs, name)


_kept: Dict[str, Any] = {}
"""Returned file systems of libhdfs, by their roots. A forked process, such as a worker of a data loader, empties fsspec's
cache. It must not drop the last reference to one of these, whose destructor calls a JVM that does not run in that process."""


def resolve_filesystem_and_path(uri: str, **kwargs: Any) -> Tuple[Any, str]:
    """Returns the file system of an address, and the path in it. `hdfs://` and `viewfs://` need fsspec, pyarrow and libhdfs."""
    parsed = urlparse(os.fspath(uri))
    path = parsed.path if parsed.scheme in ("file", *HADOOP_SCHEMES) else os.fspath(uri)
    files = _file_system(parsed, uri, kwargs)
    if not hasattr(files, "base_fs"):
        # Its name in cluster-pack up to 0.2.
        files.base_fs = files
    if parsed.scheme in HADOOP_SCHEMES:
        _kept["{}://{}".format(parsed.scheme, parsed.netloc)] = files
    elif parsed.scheme not in ("", "file"):
        path = files._strip_protocol(os.fspath(uri))
    return files, path


def _file_system(parsed: ParseResult, uri: str, options: Dict[str, Any]) -> Any:
    try:
        import fsspec
    except ImportError:
        if parsed.scheme in ("", "file"):
            return LocalFileSystem()
        raise ImportError(_missing(uri, "fsspec", parsed.scheme)) from None
    if parsed.scheme not in HADOOP_SCHEMES:
        return fsspec.filesystem(parsed.scheme or "file", **options)
    host, _, port = parsed.netloc.partition(":")
    from ..tf_yarn.hadoop import hadoop_class_path

    # libhdfs starts a JVM with this class path.
    os.environ.update(hadoop_class_path(os.environ))
    # libhdfs takes the scheme from the host; `default` is `fs.defaultFS`.
    host = "{}://{}".format(parsed.scheme, host) if host else "default"
    try:
        return fsspec.filesystem("hdfs", host=host, port=int(port) if port.isdigit() else 0, **options)
    except ImportError as error:
        raise ImportError("{} ({})".format(_missing(uri, "pyarrow", parsed.scheme), error)) from error
    except OSError as error:
        raise OSError(
            "cannot open the file system of `{}`: {}\n\nhint: libhdfs needs `JAVA_HOME`, `HADOOP_HOME` with "
            "`lib/native/libhdfs.so`, and `CLASSPATH`, which `hadoop classpath` prints".format(uri, error)
        ) from error


def _missing(uri: str, package: str, scheme: str) -> str:
    needed = "fsspec pyarrow" if scheme in HADOOP_SCHEMES else "fsspec"
    return "`{}` needs `{}`, which is not installed\n\nhint: `pip install {}`".format(uri, package, needed)
