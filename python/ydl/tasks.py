"""Identity of a task's process, and the addresses of its peers."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, List, Mapping, Optional, Tuple

from .errors import Error, NotInTask

_PORT = "YDL_PORT_"
_INPUT = "YDL_INPUT_"


@dataclass(frozen=True)
class Endpoint:
    """Addresses of a task of this round."""

    index: int
    host: str
    ports: Mapping[str, int]


@dataclass(frozen=True)
class ClusterRole:
    """A role of this round."""

    role: str
    instances: int
    #: Empty in jobs without a gang.
    endpoints: Tuple[Endpoint, ...]


@dataclass(frozen=True)
class Cluster:
    """All roles of this round."""

    round: int
    roles: Tuple[ClusterRole, ...]

    def __getitem__(self, role: str) -> ClusterRole:
        for candidate in self.roles:
            if candidate.role == role:
                return candidate
        names = ", ".join(f"`{other.role}`" for other in self.roles)
        raise KeyError(f"unknown role `{role}`; the roles are {names}")

    def __contains__(self, role: object) -> bool:
        return any(other.role == role for other in self.roles)

    def hosts(self, role: str, port: Optional[str] = None) -> List[str]:
        """Returns the hosts of a role, with the name of a port as `host:port`, in the order of their indexes."""
        endpoints = self[role].endpoints
        if port is None:
            return [endpoint.host for endpoint in endpoints]
        return [f"{endpoint.host}:{endpoint.ports[port]}" for endpoint in endpoints]


@dataclass(frozen=True)
class Task:
    """Identity of this process."""

    job: str
    role: str
    index: int
    #: Number of the attempt, from 1.
    attempt: int
    #: Number of the round, from 1.
    round: int
    #: Number of this process among all processes of the job.
    rank: int
    #: Number of processes of the job.
    world_size: int
    local_rank: int
    local_world_size: int
    cluster: Cluster
    #: A directory that survives attempts, rounds and nodes.
    checkpoint: Optional[Path]
    container: str
    #: Ports of the task, by name in lower case.
    ports: Mapping[str, int]
    #: Inputs of the role, by name in lower case.
    inputs: Mapping[str, Path]

    @property
    def name(self) -> str:
        """Name in `ydl status`: `worker:3`."""
        return f"{self.role}:{self.index}"

    def __str__(self) -> str:
        return self.name


def in_task() -> bool:
    """Returns True if this process runs in a task."""
    return bool(os.environ.get("YDL_JOB")) and bool(os.environ.get("YDL_ROLE"))


def task() -> Task:
    """Returns the identity of this process. Raises :class:`NotInTask` outside of a task, see :func:`in_task`."""
    if not in_task():
        raise NotInTask(
            "this process is not a task of a job",
            "check with `ydl.in_task()`; `ydl submit` starts tasks",
        )
    env = os.environ
    checkpoint = env.get("YDL_CHECKPOINT")
    return Task(
        job=env["YDL_JOB"],
        role=env["YDL_ROLE"],
        index=_number("YDL_INDEX", 0),
        attempt=_number("YDL_ATTEMPT", 1),
        round=_number("YDL_ROUND", 1),
        rank=_number("YDL_RANK", 0),
        world_size=_number("YDL_WORLD_SIZE", 1),
        local_rank=_number("YDL_LOCAL_RANK", 0),
        local_world_size=_number("YDL_LOCAL_WORLD_SIZE", 1),
        cluster=_cluster(),
        checkpoint=Path(checkpoint) if checkpoint else None,
        container=env.get("YDL_CONTAINER", ""),
        ports={name[len(_PORT):].lower(): _number(name, 0) for name in env if name.startswith(_PORT)},
        inputs={name[len(_INPUT):].lower(): Path(env[name]) for name in env if name.startswith(_INPUT)},
    )


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise Error(f"`{name}` is `{text}`, which is not a number") from None


def _cluster() -> Cluster:
    text = os.environ.get("YDL_CLUSTER", "")
    file = os.environ.get("YDL_CLUSTER_FILE", "")
    try:
        if not text and file:
            text = Path(file).read_text(encoding="utf-8")
        cluster: Any = json.loads(text or '{"round": 1, "roles": []}')
        return Cluster(round=int(cluster["round"]), roles=tuple(_role(role) for role in cluster["roles"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Error(f"cannot read the cluster in `YDL_CLUSTER`: {error}") from None


def _role(role: Any) -> ClusterRole:
    endpoints = role.get("endpoints") or []
    # A role with gaps lists its indexes.
    indexes = role.get("indexes") or range(len(endpoints))
    return ClusterRole(
        role=str(role["role"]),
        instances=int(role["instances"]),
        endpoints=tuple(
            Endpoint(index=int(index), host=str(endpoint["host"]), ports=dict(endpoint.get("ports") or {}))
            for index, endpoint in zip(indexes, endpoints)
        ),
    )
