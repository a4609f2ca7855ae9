"""What a job consists of: how many tasks of which type, and how large each is."""

import math
import re
from enum import Enum
from typing import Dict, NamedTuple, Optional, Union

KiB = 2**10
MiB = 2**20
GiB = 2**30

GB = 2**10
"""What tf-yarn calls so: as much in MiB, in which memory is counted."""
MAX_MEMORY_CONTAINER = 48 * GB
MAX_VCORES_CONTAINER = 48

# The order is that of ranks, where a framework has such: those who train come first.
ALL_TASK_TYPES = ("chief", "worker", "ps", "evaluator", "tensorboard")
OUTSIDE = ("evaluator", "tensorboard")
"""They look at what the others write, and are in nobody's cluster."""

_UNITS = {"k": KiB, "m": MiB, "g": GiB, "t": 2**40, "p": 2**50}


class NodeLabel(Enum):
    """On which nodes a task runs: those without a label, or those labelled `gpu`."""

    CPU = ""
    GPU = "gpu"


class ContainerKey(NamedTuple):
    """Which task: the number `id` of a type."""

    type: str
    id: int

    def to_kv_str(self) -> str:
        return "{}:{}".format(self.type, self.id)

    @staticmethod
    def from_kv_str(kv_str: str) -> "ContainerKey":
        kind, number = kv_str.split(":")
        return ContainerKey(kind, int(number))


class ContainerTask(NamedTuple):
    """A task, and how many processes it has."""

    type: str
    id: int
    nb_proc: int

    def to_container_key(self) -> ContainerKey:
        return ContainerKey(self.type, self.id)

    def to_kv_str(self) -> str:
        return "{}:{}:{}".format(self.type, self.id, self.nb_proc)


def memory_mib(memory: Union[int, float, str]) -> int:
    """A size in MiB: a number is one, a text has a unit (`"2 GiB"`, `"512 MB"`)."""
    if isinstance(memory, bool):
        raise ValueError("memory is a size, not `{}`".format(memory))
    if isinstance(memory, (int, float)):
        size = float(memory) * MiB
    else:
        found = re.match(r"^\s*(\d+(?:\.\d+)?)\s*(?:([kmgtp])(i?b)?|b)?\s*$", memory, re.IGNORECASE)
        if not found:
            raise ValueError("`{}` is no size; write it like `2 GiB`".format(memory))
        number, unit, kind = found.groups()
        if unit is None:
            size = float(number) * (1 if memory.strip().lower().endswith("b") else MiB)
        elif (kind or "").lower() == "b":
            size = float(number) * 1000 ** (1 + "kmgtp".index(unit.lower()))
        else:
            size = float(number) * _UNITS[unit.lower()]
    mib = math.ceil(size / MiB)
    if mib < 1:
        raise ValueError("`{}` is too little memory".format(memory))
    return mib


class TaskSpec:
    """How many tasks of a type there are, and what each of them gets.

    `memory` is a number of MiB or a text with a unit. `gpus` is ydl's own: so many devices for each task, where the cluster
    counts them; with the label alone a task sees all that its node has.
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
    ) -> None:
        # The older signature has the label in the fourth place, and all that follows one place earlier, too.
        if isinstance(nb_proc_per_worker, NodeLabel):
            if isinstance(label, int):
                if isinstance(tb_termination_timeout_seconds, str):
                    tb_extra_args = tb_extra_args if tb_model_dir is None else tb_model_dir
                    tb_model_dir = tb_termination_timeout_seconds
                tb_termination_timeout_seconds = label
            label, nb_proc_per_worker = nb_proc_per_worker, 1
        if not isinstance(tb_termination_timeout_seconds, (int, type(None))):
            raise TypeError("`{!r}` is no number of seconds".format(tb_termination_timeout_seconds))
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
            raise ValueError("a task has one virtual core at least, not `{}`".format(value))
        self._vcores = int(value)

    def __repr__(self) -> str:
        return "TaskSpec(memory={}, vcores={}, instances={}, nb_proc_per_worker={}, label={})".format(
            self.memory, self.vcores, self.instances, self.nb_proc_per_worker, self.label
        )


TaskSpecs = Dict[str, TaskSpec]


def check_types(task_specs: TaskSpecs) -> None:
    """Every type is one of the five; ValueError otherwise."""
    unknown = [kind for kind in task_specs if kind not in ALL_TASK_TYPES]
    if unknown:
        known = ", ".join("`{}`".format(kind) for kind in ALL_TASK_TYPES)
        raise ValueError("`{}` is no type of task; there are {}".format(unknown[0], known))


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
    for kind in OUTSIDE:
        if kind in task_specs and task_specs[kind].instances > 1:
            raise ValueError("a topology has one {} at most".format(kind))
    if "ps" not in task_specs or task_specs["ps"].instances < 1:
        raise ValueError("parameter servers are needed: `nb_ps` is one at least")


def single_server_topology(
    memory: Union[int, str] = MAX_MEMORY_CONTAINER, vcores: int = MAX_VCORES_CONTAINER
) -> TaskSpecs:
    """One task that trains, one that evaluates, and TensorBoard."""
    topology = {kind: TaskSpec(memory, vcores) for kind in ("chief", *OUTSIDE)}
    _check_general(topology)
    return topology


def ps_strategy_topology(
    nb_workers: int = 2,
    nb_ps: int = 1,
    memory: Union[int, str] = MAX_MEMORY_CONTAINER,
    vcores: int = MAX_VCORES_CONTAINER,
) -> TaskSpecs:
    """A chief and workers that train, servers that hold the variables, an evaluator, and TensorBoard."""
    several = {"worker": nb_workers, "ps": nb_ps}
    topology = {kind: TaskSpec(memory, vcores, several.get(kind, 1)) for kind in ALL_TASK_TYPES}
    _check_ps(topology)
    return topology
