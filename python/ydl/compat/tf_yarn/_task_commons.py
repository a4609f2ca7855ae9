"""Who a task is, and how it gets the experiment that it runs."""

import json
import logging
import os
import pickle
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

from . import event
from ._internal import iter_tasks, reserve_sock_addr
from .bundle import EXPERIMENT
from .topologies import OUTSIDE, ContainerKey, ContainerTask

MASTER_ADDR = "MASTER_ADDR"
MASTER_PORT = "MASTER_PORT"

logger = logging.getLogger(__name__)


def setup_logging() -> None:
    """What the task says goes to stderr, with the time."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s:%(levelname)s:%(name)s: %(message)s"
    )


def n_try() -> int:
    """Which try this is, from 0."""
    return int(os.environ.get("TF_YARN_N_TRY", "0"))


def get_task_key() -> ContainerKey:
    """Which task this is."""
    skein = os.environ.get("SKEIN_CONTAINER_ID")
    if "YDL_ROLE" in os.environ:
        return ContainerKey(os.environ["YDL_ROLE"], int(os.environ.get("YDL_INDEX", "0")))
    if not skein:
        raise RuntimeError("this is not a task: neither `YDL_ROLE` nor `SKEIN_CONTAINER_ID` is set")
    kind, _, number = skein.rpartition("_")
    return ContainerKey(kind, int(number))


def _is(kind: str, task_type: Optional[str]) -> bool:
    return (task_type or get_task_key().type) == kind


def is_worker(task_type: Optional[str] = None) -> bool:
    return _is("worker", task_type)


def is_evaluator(task_type: Optional[str] = None) -> bool:
    return _is("evaluator", task_type)


def is_chief(task_type: Optional[str] = None) -> bool:
    return _is("chief", task_type)


def roles() -> List[Dict[str, Any]]:
    """Everybody in the job, as ydl tells its programs."""
    text = os.environ.get("YDL_CLUSTER")
    if not text:
        with open(os.environ["YDL_CLUSTER_FILE"], encoding="utf-8") as file:
            text = file.read()
    return json.loads(text)["roles"]


def cluster_instances() -> List[Tuple[str, int, int]]:
    """Those who work together: type, how many, and how many processes each."""
    inside = [role for role in roles() if role["role"] not in OUTSIDE]
    return [(role["role"], role["instances"], role.get("processes", 1)) for role in inside]


def _get_cluster_tasks(client: Any = None) -> List[ContainerTask]:
    """Every task that works with the others; as the store has it, or as ydl tells. Task modules of users call it."""
    if client is not None:
        return list(iter_tasks([tuple(row) for row in json.loads(client.kv.wait("cluster_instances").decode())]))
    return list(iter_tasks(cluster_instances()))


def _compute_world_size(cluster_tasks: List[ContainerTask]) -> int:
    """How many processes these tasks have together."""
    return sum(task.nb_proc for task in cluster_tasks)


def _get_nb_workers(task_id: int, cluster_tasks: List[ContainerTask]) -> int:
    """How many processes the task of that number has."""
    return next(task.nb_proc for task in cluster_tasks if task.id == task_id)


def _setup_container_logs(client: Any) -> None:
    """Tells when this task began, and where people find what it prints."""
    task = get_task_key()
    event.broadcast_container_start_time(client, task)
    event.logs_event(client, task, logs_url())


class catchtime:
    """How long what it encloses takes: `time` in seconds, and `readout`, which is printed at the end."""

    time = 0.0
    readout = ""

    def __enter__(self) -> "catchtime":
        self.began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.time = time.perf_counter() - self.began
        self.readout = "Time: {:.3f} seconds".format(self.time)
        print(self.readout)


def compute_rank(task_id: int, local_rank: int, n_workers: int) -> int:
    """A process's number where all tasks are of one type."""
    return task_id * n_workers + local_rank


def rank_and_world(local_rank: int = 0) -> Tuple[int, int]:
    """A process's number among all that work together, and how many these are. Types count in their order."""
    key, before, world, rank = get_task_key(), 0, 0, None
    for kind, instances, processes in cluster_instances():
        if kind == key.type:
            rank = before + compute_rank(key.id, local_rank, processes)
        before += instances * processes
        world = before
    if rank is None:
        raise RuntimeError("{} is not among those who work together".format(key.to_kv_str()))
    return rank, world


def get_pickled_experiment(client: Any = None) -> bytes:
    """The experiment function as the caller pickled it: a file of the job, because everybody in it can write to the store."""
    with open(EXPERIMENT, "rb") as file:
        return file.read()


def load_experiment_fn() -> Any:
    return pickle.loads(get_pickled_experiment())


def _get_experiment(client: Any) -> Any:
    """What the experiment function returns; where it cannot be had, everybody is told that this task began and failed."""
    try:
        return load_experiment_fn()()
    except BaseException as failure:
        task = get_task_key()
        event.start_event(client, task)
        event.stop_event(client, task, failure)
        raise


def choose_master(client: Any, rank: int) -> Tuple[str, int]:
    """Where rank 0 may listen; it says so in the store, and the others read it there."""
    if rank == 0:
        with reserve_sock_addr() as (host, port):
            event.broadcast(client, MASTER_ADDR, host)
            event.broadcast(client, MASTER_PORT, str(port))
            return host, port
    return event.wait(client, MASTER_ADDR), int(event.wait(client, MASTER_PORT))


def logs_url() -> str:
    """Where people find what this container prints."""
    node, port = os.environ.get("NM_HOST"), os.environ.get("NM_HTTP_PORT")
    container = os.environ.get("CONTAINER_ID")
    if node and port and container:
        user = os.environ.get("USER") or os.environ.get("HADOOP_USER_NAME", "")
        return "http://{}:{}/node/containerlogs/{}/{}".format(node, port, container, user)
    return "ydl logs {} {}".format(os.environ.get("YDL_JOB", ""), get_task_key().to_kv_str())
