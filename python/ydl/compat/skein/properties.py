"""Properties of the current container, `skein.properties`."""

import os
from collections.abc import Mapping
from typing import Any, Dict, Iterator

from .resources import Resources


class Properties(Mapping):  # type: ignore[type-arg]
    """Immutable mapping, also with attributes. Outside of containers all but `config_dir` are None."""

    def __init__(self) -> None:
        env = os.environ
        container = env.get("SKEIN_CONTAINER_ID")
        if container is None and env.get("YDL_ROLE"):
            container = "{}_{}".format(env["YDL_ROLE"], env.get("YDL_INDEX", "0"))
        application = env.get("SKEIN_APPLICATION_ID") or env.get("YDL_JOB")
        address = env.get("SKEIN_APPMASTER_ADDRESS") or (env.get("YDL_MASTER") or "").replace("https://", "")
        try:
            resources = Resources(int(env["SKEIN_RESOURCE_MEMORY"]), int(env["SKEIN_RESOURCE_VCORES"]))
        except (KeyError, ValueError):
            resources = None
        values: Dict[str, Any] = {
            "application_id": application,
            "appmaster_address": address or None,
            "config_dir": env.get("SKEIN_CONFIG") or os.path.join(os.path.expanduser("~"), ".skein"),
            "container_id": container,
            "container_resources": resources,
            "container_dir": os.getcwd() if application else None,
            "yarn_container_id": env.get("CONTAINER_ID"),
        }
        object.__setattr__(self, "_values", values)

    _values: Dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __getattr__(self, key: str) -> Any:
        try:
            return self.__dict__["_values"][key]
        except KeyError:
            raise AttributeError("{!r} object has no attribute {!r}".format(type(self).__name__, key)) from None

    def __setattr__(self, key: str, value: Any) -> None:
        raise AttributeError("{!r} object has no attribute {!r}".format(type(self).__name__, key))

    def __dir__(self) -> Any:
        return [*object.__dir__(self), *self._values]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


properties = Properties()
