"""Who this process is, inside of a task."""

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
    """Where a task of this round is reached."""

    index: int
    host: str
    ports: Mapping[str, int]


@dataclass(frozen=True)
class ClusterRole:
    """A role of this round."""

    role: str
    instances: int
    #: Empty in jobs whose tasks start on their own.
    endpoints: Tuple[Endpoint, ...]


@dataclass(frozen=True)
class Cluster:
    """Everybody in this round."""

    round: int
    roles: Tuple[ClusterRole, ...]

    def __getitem__(self, role: str) -> ClusterRole:
        for known in self.roles:
            if known.role == role:
                return known
        names = ", ".join(f"`{known.role}`" for known in self.roles)
        raise KeyError(f"there is no role `{role}`; there are {names}")

    def __contains__(self, role: object) -> bool:
        return any(known.role == role for known in self.roles)

    def hosts(self, role: str, port: Optional[str] = None) -> List[str]:
        """The hosts of a role, or with the name of a port `host:port`, in the order of their indexes."""
        endpoints = self[role].endpoints
        if port is None:
            return [endpoint.host for endpoint in endpoints]
        return [f"{endpoint.host}:{endpoint.ports[port]}" for endpoint in endpoints]


@dataclass(frozen=True)
class Task:
    """Who this process is."""

    job: str
    role: str
    index: int
    #: Which try of this task this is, from 1.
    attempt: int
    #: Which gathering of everybody this is, from 1.
    round: int
    #: Its number among all processes of the job.
    rank: int
    #: How many processes the job has.
    world: int
    local_rank: int
    local_world: int
    cluster: Cluster
    #: A directory that survives attempts, rounds and nodes.
    checkpoint: Optional[Path]
    container: str
    #: The ports that the role asked for, by their names in lower case.
    ports: Mapping[str, int]
    #: The role's inputs, by their names in lower case.
    inputs: Mapping[str, Path]

    @property
    def name(self) -> str:
        """As in `ydl status`: `worker:3`."""
        return f"{self.role}:{self.index}"

    def __str__(self) -> str:
        return self.name


def in_task() -> bool:
    """Whether this process runs in a task."""
    return bool(os.environ.get("YDL_JOB")) and bool(os.environ.get("YDL_ROLE"))


def task() -> Task:
    """Who this process is. Outside of a task that is an error; :func:`in_task` asks."""
    if not in_task():
        raise NotInTask(
            "this process is not a task of a job, so there is nothing to say about it",
            "`ydl.in_task()` tells; `ydl submit` starts tasks",
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
        world=_number("YDL_WORLD_SIZE", 1),
        local_rank=_number("YDL_LOCAL_RANK", 0),
        local_world=_number("YDL_LOCAL_WORLD_SIZE", 1),
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
        raise Error(f"`{name}` is `{text}`, which is no number") from None


def _cluster() -> Cluster:
    text = os.environ.get("YDL_CLUSTER", "")
    file = os.environ.get("YDL_CLUSTER_FILE", "")
    try:
        if not text and file:
            text = Path(file).read_text(encoding="utf-8")
        told: Any = json.loads(text or '{"round": 1, "roles": []}')
        return Cluster(round=int(told["round"]), roles=tuple(_role(role) for role in told["roles"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Error(f"cannot read the cluster in `YDL_CLUSTER`: {error}") from None


def _role(told: Any) -> ClusterRole:
    endpoints = told.get("endpoints") or []
    # A role with holes says who is there.
    indexes = told.get("indexes") or range(len(endpoints))
    return ClusterRole(
        role=str(told["role"]),
        instances=int(told["instances"]),
        endpoints=tuple(
            Endpoint(index=int(index), host=str(endpoint["host"]), ports=dict(endpoint.get("ports") or {}))
            for index, endpoint in zip(indexes, endpoints)
        ),
    )
