"""Reports about applications, containers, nodes and queues, with skein's fields."""

import getpass
import html
import sys
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Dict, Iterator, Optional

from .objects import Base, Enum
from .resources import Resources


class ApplicationState(Enum):
    """State of an application."""

    _values = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING", "FINISHED", "FAILED", "KILLED")


class FinalStatus(Enum):
    """Final status of an application."""

    _values = ("SUCCEEDED", "KILLED", "FAILED", "UNDEFINED")


class ContainerState(Enum):
    """State of a container."""

    _values = ("WAITING", "REQUESTED", "RUNNING", "SUCCEEDED", "FAILED", "KILLED")


class NodeState(Enum):
    """State of a node."""

    _values = ("DECOMMISSIONED", "DECOMMISSIONING", "LOST", "NEW", "REBOOTED", "RUNNING", "SHUTDOWN", "UNHEALTHY")


class QueueState(Enum):
    """State of a queue."""

    _values = ("RUNNING", "STOPPED")


class _Report(Base):
    """Report with the fields in `_params`. States may be given by name, and tags as a list."""

    _kinds: Dict[str, Any] = {}

    def __init__(self, *values: Any, **fields: Any) -> None:
        if len(values) > len(self._params):
            raise TypeError("expected at most {} fields, got {}".format(len(self._params), len(values)))
        fields.update(zip(self._params, values))
        unknown = set(fields).symmetric_difference(self._params)
        if unknown:
            raise TypeError("missing or unknown fields: {}".format(", ".join(sorted(unknown))))
        for name, kind in self._kinds.items():
            fields[name] = kind(fields[name])
        self.__dict__.update(fields)


class ResourceUsageReport(_Report):
    """Resources that an application uses and has used."""

    _params = (
        "memory_seconds", "vcore_seconds", "num_used_containers", "needed_resources", "reserved_resources", "used_resources",
    )

    def __repr__(self) -> str:
        return "ResourceUsageReport<...>"


class _Timed(_Report):
    start_time: Optional[datetime]
    finish_time: Optional[datetime]

    @property
    def runtime(self) -> timedelta:
        """Run time until now or the end."""
        if self.start_time is None:
            return timedelta(0)
        return (self.finish_time or datetime.now()) - self.start_time


class ApplicationReport(_Timed):
    """Status of an application."""

    _params = (
        "id", "name", "user", "queue", "tags", "host", "port", "tracking_url", "state", "final_status", "progress", "usage",
        "diagnostics", "start_time", "finish_time",
    )

    _kinds = {"state": ApplicationState, "final_status": FinalStatus, "tags": set}

    id: str
    name: str

    def __repr__(self) -> str:
        return "ApplicationReport<id={!r}, name={!r}>".format(self.id, self.name)


class Container(_Timed):
    """Status of a container."""

    _params = (
        "service_name", "instance", "state", "yarn_container_id", "yarn_node_http_address", "start_time", "finish_time",
        "exit_message",
    )

    _kinds = {"state": ContainerState}

    service_name: str
    instance: int
    state: Any
    yarn_container_id: str
    yarn_node_http_address: str

    def __repr__(self) -> str:
        return "Container<service_name={!r}, instance={}, state={}>".format(self.service_name, self.instance, self.state)

    @property
    def id(self) -> str:
        """Name of the container: `worker_0`."""
        return "{}_{}".format(self.service_name, self.instance)

    @property
    def yarn_container_logs(self) -> str:
        """Address of its logs on its node, if known."""
        if not self.yarn_node_http_address or not self.yarn_container_id:
            return ""
        parts = (self.yarn_node_http_address, "node", "containerlogs", self.yarn_container_id, getpass.getuser())
        return "/".join(parts)


class NodeReport(_Report):
    """Status of a node."""

    _params = ("id", "http_address", "rack_name", "labels", "state", "health_report", "total_resources", "used_resources")
    _kinds = {"state": NodeState, "labels": set}

    id: str

    def __repr__(self) -> str:
        return "NodeReport<id={!r}>".format(self.id)

    @property
    def host(self) -> str:
        """Host of its NodeManager."""
        return self.id.rpartition(":")[0]

    @property
    def port(self) -> int:
        """Port of its NodeManager."""
        return int(self.id.rpartition(":")[2])


class Queue(_Report):
    """Status of a queue."""

    _params = ("name", "state", "capacity", "max_capacity", "percent_used", "node_labels", "default_node_label")
    _kinds = {"state": QueueState, "node_labels": set}

    name: str
    percent_used: float

    def __repr__(self) -> str:
        return "Queue<name={!r}, percent_used={:.2f}>".format(self.name, self.percent_used)


class ApplicationLogs(Mapping):  # type: ignore[type-arg]
    """Mapping of containers to their logs."""

    def __init__(self, app_id: str, logs: Dict[str, str]) -> None:
        self.app_id, self.logs = app_id, logs

    def __getitem__(self, key: str) -> str:
        return self.logs[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.logs)

    def __len__(self) -> int:
        return len(self.logs)

    def __repr__(self) -> str:
        return "ApplicationLogs<{}>".format(self.app_id)

    def _repr_html_(self) -> str:
        logs = "".join(
            "<details><summary>{}</summary><pre>{}</pre></details>".format(html.escape(name), html.escape(log))
            for name, log in sorted(self.logs.items())
        )
        return "<h3>{}</h3>{}".format(html.escape(self.app_id), logs)

    def dump(self, file: Any = None) -> None:
        """Writes the logs to a file, by default to stdout."""
        (file or sys.stdout).write(self.dumps())

    def dumps(self) -> str:
        """Returns the logs as text."""
        parts = ["{}\n{}\n{}\n".format(name, "=" * len(name), log) for name, log in sorted(self.logs.items())]
        return "** Logs for {} **\n\n".format(self.app_id) + "\n".join(parts)


def no_resources() -> Resources:
    """Returns resources of an unknown amount, as zero."""
    return Resources(memory=0, vcores=0)


def time_of(ms: Any) -> Optional[datetime]:
    """Converts ms since 1970 to a local time; 0 and None are unknown."""
    return datetime.fromtimestamp(ms / 1000.0) if ms else None
