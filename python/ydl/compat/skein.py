"""What tf-yarn's hooks use of skein inside of a task: `skein.ApplicationClient.from_current().kv`, and who the task is.

Tasks of tf-yarn's jobs find it as `skein`. Applications themselves are submitted with `ydl submit`, which reads skein's files.
"""

import os
from typing import Any, Optional

from .tf_yarn.application import ACLs
from .tf_yarn.application import Application as ApplicationClient


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
    raise AttributeError("`skein.{}` is not a part of what ydl has of skein: see docs/coming-from.md".format(name))


__all__ = ["ACLs", "ApplicationClient", "properties"]
