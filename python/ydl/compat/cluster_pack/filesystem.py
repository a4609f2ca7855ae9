"""File systems by address: through fsspec if it is installed, otherwise only local files."""

import glob
import os
import shutil
from typing import Any, Dict, List, Tuple
from urllib.parse import urlparse


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


def resolve_filesystem_and_path(uri: str, **kwargs: Any) -> Tuple[Any, str]:
    """Returns the file system of an address, and the path in it."""
    parsed = urlparse(os.fspath(uri))
    is_local = parsed.scheme in ("", "file")
    try:
        import fsspec.core
    except ImportError:
        if is_local:
            return LocalFileSystem(), parsed.path if parsed.scheme else os.fspath(uri)
        raise ImportError("`{}` needs `fsspec`, which is not installed".format(uri)) from None
    files, path = fsspec.core.url_to_fs(os.fspath(uri), **kwargs)
    return files, path
