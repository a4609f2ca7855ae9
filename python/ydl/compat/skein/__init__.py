"""What programs of tf-yarn's use of skein: `skein.ApplicationClient.from_current().kv` and `skein.properties` inside of a task;
`skein.Client()` and `skein.model.ACLs` where one calls `run_on_yarn`.

Tasks of tf-yarn's jobs find it as `skein`, and so does every program of whoever has the distribution `ydl-tf-yarn` and no skein.
Applications themselves are submitted with `ydl submit`, which reads skein's files.
"""

import os
from typing import Any, Optional

from ..tf_yarn.application import ACLs
from ..tf_yarn.application import Application as ApplicationClient

__version__ = "0.8.2"
"""Whose names these are."""


def missing(name: str) -> AttributeError:
    return AttributeError("`{}` is not a part of what ydl has of skein: see docs/moving/skein.md".format(name))


class Client:
    """What `run_on_yarn` takes as `skein_client`. No driver runs, so that there is nothing to start, to share or to close."""

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
    """Facts about the task that asks."""

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


__all__ = ["ACLs", "ApplicationClient", "Client", "properties"]
