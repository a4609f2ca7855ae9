"""Second name for a package: `tf_yarn.x` is the same module object as `ydl.compat.tf_yarn.x`.

A copy would have different classes, so `isinstance` would fail between the two names.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import CodeType, ModuleType
from typing import Optional, Sequence


class _Loader(importlib.abc.InspectLoader):
    def __init__(self, real: str) -> None:
        self.real = real

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.real)
        self.original = {name: getattr(module, name, None) for name in ("__spec__", "__loader__", "__package__")}
        return module

    def exec_module(self, module: ModuleType) -> None:
        # Already executed under its own name: restore the attributes that the import system has overwritten.
        for name, value in self.original.items():
            setattr(module, name, value)

    def is_package(self, fullname: str) -> bool:
        spec = importlib.util.find_spec(self.real)
        return spec is not None and spec.submodule_search_locations is not None

    def get_code(self, fullname: str) -> Optional[CodeType]:
        # For `python -m`.
        spec = importlib.util.find_spec(self.real)
        loader = getattr(spec, "loader", None)
        return loader.get_code(self.real) if loader is not None else None

    def get_source(self, fullname: str) -> Optional[str]:
        spec = importlib.util.find_spec(self.real)
        loader = getattr(spec, "loader", None)
        return loader.get_source(self.real) if loader is not None else None


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, real: str) -> None:
        self.name, self.real = name, real

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if not fullname.startswith(self.name + "."):
            return None
        real = self.real + fullname[len(self.name) :]
        try:
            found = importlib.util.find_spec(real)
        except ModuleNotFoundError:
            found = None
        if found is None:
            return None
        package = found.submodule_search_locations is not None
        # `python -m` takes the program's name from the origin.
        return importlib.machinery.ModuleSpec(fullname, _Loader(real), origin=found.origin, is_package=package)


def alias(name: str, real: str) -> None:
    """Makes the package `real`, and every module below it, importable as `name`."""
    finders = [finder for finder in sys.meta_path if isinstance(finder, _Finder)]
    if not any(finder.name == name for finder in finders):
        sys.meta_path.insert(0, _Finder(name, real))
    sys.modules[name] = importlib.import_module(real)
