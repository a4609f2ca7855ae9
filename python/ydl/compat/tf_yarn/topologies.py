"""Topology of a job: number and size of the tasks of each type."""

import math
import re
from enum import Enum
from typing import Dict, NamedTuple, Optional, Union

KiB = 2**10
MiB = 2**20
GiB = 2**30

GB = 2**10
"""A gigabyte of tf-yarn, in MiB."""
MAX_MEMORY_CONTAINER = 48 * GB
MAX_VCORES_CONTAINER = 48

# In the order of ranks: tasks that train come first.
ALL_TASK_TYPES = ("chief", "worker", "ps", "evaluator", "tensorboard")
SIDE_TASKS = ("evaluator", "tensorboard")
"""Types that read what the others write and are not part of the cluster."""

_UNITS = {"k": KiB, "m": MiB, "g": GiB, "t": 2**40, "p": 2**50}


class NodeLabel(Enum):
    """Label of the nodes of a task: none, or `gpu`."""

    CPU = ""
    GPU = "gpu"


class ContainerKey(NamedTuple):
    """Type and number of a task."""

    type: str
    id: int

    def to_kv_str(self) -> str:
        return "{}:{}".format(self.type, self.id)

    @staticmethod
    def from_kv_str(kv_str: str) -> "ContainerKey":
        kind, number = kv_str.split(":")
        return ContainerKey(kind, int(number))


class ContainerTask(NamedTuple):
    """Type, number and process count of a task."""

    type: str
    id: int
    nb_proc: int

    def to_container_key(self) -> ContainerKey:
        return ContainerKey(self.type, self.id)

    def to_kv_str(self) -> str:
        return "{}:{}:{}".format(self.type, self.id, self.nb_proc)


def memory_mib(memory: Union[int, float, str]) -> int:
    """Parses a size into MiB. A number is in MiB, a text has a unit (`"2 GiB"`, `"512 MB"`)."""
    if isinstance(memory, bool):
        raise ValueError("`{}` is not a size of memory".format(memory))
    if isinstance(memory, (int, float)):
        size = float(memory) * MiB
    else:
        found = re.match(r"^\s*(\d+(?:\.\d+)?)\s*(?:([kmgtp])(i?b)?|b)?\s*$", memory, re.IGNORECASE)
        if not found:
            raise ValueError("`{}` is not a size; write it like `2 GiB`".format(memory))
        number, unit, kind = found.groups()
        if unit is None:
            size = float(number) * (1 if memory.strip().lower().endswith("b") else MiB)
        elif (kind or "").lower() == "b":
            size = float(number) * 1000 ** (1 + "kmgtp".index(unit.lower()))
        else:
            size = float(number) * _UNITS[unit.lower()]
    mib = math.ceil(size / MiB)
    if mib < 1:
        raise ValueError("`{}` is less than 1 MiB of memory".format(memory))
    return mib


class TaskSpec:
    """Number and resources of the tasks of a type.

    `memory` is a number of MiB or a text with a unit. `gpus` is an addition of ydl: the GPUs of each task if the cluster
    counts them. With the label alone a task sees all GPUs of its node.
    """

    __slots__ = (
        "_memory", "_vcores", "instances", "nb_proc_per_worker", "label", "tb_termination_timeout_seconds",
        "tb_model_dir", "tb_extra_args", "gpus",
    )  # fmt: skip

    def __init__(
        self,
        memory: Union[int, str],
        vcores: int,
        instances: int = 1,
        nb_proc_per_worker: Union[int, NodeLabel] = 1,
        label: Union[NodeLabel, str, int] = NodeLabel.CPU,
        tb_termination_timeout_seconds: Union[int, str, None] = -1,
        tb_model_dir: Optional[str] = None,
        tb_extra_args: Optional[str] = None,
        *,
        gpus: int = 0,
        termination_timeout_seconds: Optional[int] = None,
    ) -> None:
        # The older signature has no `nb_proc_per_worker`, so later positional arguments are one position earlier.
        if isinstance(nb_proc_per_worker, NodeLabel):
            if isinstance(label, int):
                if isinstance(tb_termination_timeout_seconds, str):
                    tb_extra_args = tb_extra_args if tb_model_dir is None else tb_model_dir
                    tb_model_dir = tb_termination_timeout_seconds
                tb_termination_timeout_seconds = label
            label, nb_proc_per_worker = nb_proc_per_worker, 1
        if termination_timeout_seconds is not None:
            # Its name up to 0.4.3.
            tb_termination_timeout_seconds = termination_timeout_seconds
        if not isinstance(tb_termination_timeout_seconds, (int, type(None))):
            raise TypeError("`{!r}` is not a number of seconds".format(tb_termination_timeout_seconds))
        self.memory = memory
        self.vcores = vcores
        self.instances = instances
        self.nb_proc_per_worker = nb_proc_per_worker
        self.label = label if isinstance(label, NodeLabel) else NodeLabel(label)
        self.tb_termination_timeout_seconds = tb_termination_timeout_seconds
        self.tb_model_dir = tb_model_dir
        self.tb_extra_args = tb_extra_args
        self.gpus = gpus

    @property
    def memory(self) -> int:
        return self._memory

    @memory.setter
    def memory(self, value: Union[int, str]) -> None:
        self._memory = memory_mib(value)

    @property
    def vcores(self) -> int:
        return self._vcores

    @vcores.setter
    def vcores(self, value: int) -> None:
        if int(value) != value or value < 1:
            raise ValueError("a task needs at least one virtual core, got `{}`".format(value))
        self._vcores = int(value)

    def __repr__(self) -> str:
        return "TaskSpec(memory={}, vcores={}, instances={}, nb_proc_per_worker={}, label={})".format(
            self.memory, self.vcores, self.instances, self.nb_proc_per_worker, self.label
        )


TaskSpecs = Dict[str, TaskSpec]


def check_types(task_specs: TaskSpecs) -> None:
    """Checks the types of tasks. Raises ValueError."""
    unknown = [kind for kind in task_specs if kind not in ALL_TASK_TYPES]
    if unknown:
        known = ", ".join("`{}`".format(kind) for kind in ALL_TASK_TYPES)
        raise ValueError("unknown type of task `{}`; the types are {}".format(unknown[0], known))


def _check_general(task_specs: TaskSpecs) -> None:
    check_types(task_specs)
    if "chief" not in task_specs or task_specs["chief"].instances != 1:
        raise ValueError("a topology has exactly one chief")
    for kind, spec in task_specs.items():
        if spec.memory > MAX_MEMORY_CONTAINER:
            raise ValueError("{}: {} MiB is more than {}".format(kind, spec.memory, MAX_MEMORY_CONTAINER))
        if spec.vcores > MAX_VCORES_CONTAINER:
            raise ValueError("{}: {} vcores are more than {}".format(kind, spec.vcores, MAX_VCORES_CONTAINER))
        if spec.nb_proc_per_worker > spec.vcores:
            raise ValueError("{}: {} processes on {} vcores".format(kind, spec.nb_proc_per_worker, spec.vcores))


def _check_ps(task_specs: TaskSpecs) -> None:
    _check_general(task_specs)
    for kind in SIDE_TASKS:
        if kind in task_specs and task_specs[kind].instances > 1:
            raise ValueError("a topology has at most one {}".format(kind))
    if "ps" not in task_specs or task_specs["ps"].instances < 1:
        raise ValueError("parameter servers are missing: `nb_ps` must be at least 1")


def single_server_topology(
    memory: Union[int, str] = MAX_MEMORY_CONTAINER, vcores: int = MAX_VCORES_CONTAINER
) -> TaskSpecs:
    """Returns a chief, an evaluator and TensorBoard."""
    topology = {kind: TaskSpec(memory, vcores) for kind in ("chief", *SIDE_TASKS)}
    _check_general(topology)
    return topology


def ps_strategy_topology(
    nb_workers: int = 2,
    nb_ps: int = 1,
    memory: Union[int, str] = MAX_MEMORY_CONTAINER,
    vcores: int = MAX_VCORES_CONTAINER,
) -> TaskSpecs:
    """Returns a chief, workers, parameter servers, an evaluator and TensorBoard."""
    counts = {"worker": nb_workers, "ps": nb_ps}
    topology = {kind: TaskSpec(memory, vcores, counts.get(kind, 1)) for kind in ALL_TASK_TYPES}
    _check_ps(topology)
    return topology
