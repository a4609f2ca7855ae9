"""Parts of skein that programs of tf-yarn use: `skein.ApplicationClient.from_current().kv` and `skein.properties` in tasks,
`skein.Client()` and `skein.model.ACLs` in callers of `run_on_yarn`.

It is importable as `skein` in tasks of tf-yarn's jobs, and where the distribution `ydl-tf-yarn` is installed without skein.
`ydl submit` accepts skein's specifications.
"""

import os
from typing import Any, Optional

from ..tf_yarn.application import ACLs
from ..tf_yarn.application import Application as ApplicationClient

__version__ = "0.8.2"
"""Version of skein that has these names."""


def missing(name: str) -> AttributeError:
    return AttributeError("`{}` is not supported by ydl's replacement of skein: see docs/moving/skein.md".format(name))


class Client:
    """Argument `skein_client` of `run_on_yarn`. There is no driver, so its methods do nothing."""

    def __init__(self, *args: Any, **options: Any) -> None:
        pass

    @classmethod
    def from_global_driver(cls) -> "Client":
        return cls()

    def close(self) -> None:
        pass

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        raise missing("skein.Client." + name)


class _Properties:
    """Properties of the current task."""

    @property
    def application_id(self) -> Optional[str]:
        return os.environ.get("YDL_JOB")

    @property
    def container_id(self) -> Optional[str]:
        return os.environ.get("SKEIN_CONTAINER_ID")

    @property
    def yarn_container_id(self) -> Optional[str]:
        return os.environ.get("CONTAINER_ID")

    @property
    def container_dir(self) -> str:
        return os.getcwd()


properties = _Properties()


def __getattr__(name: str) -> Any:
    raise missing("skein." + name)


# Programs use `skein.model.ACLs` after `import skein` alone.
from . import model  # noqa: E402

__all__ = ["ACLs", "ApplicationClient", "Client", "model", "properties"]
