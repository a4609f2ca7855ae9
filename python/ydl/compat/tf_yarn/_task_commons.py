"""Identity of a task, and access to its experiment."""

import json
import logging
import logging.config
import multiprocessing
import os
import pickle
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

from . import _internal, event
from ._internal import iter_tasks
from .application import read_experiment
from .constants import KV_EXPERIMENT_FN
from .topologies import SIDE_TASKS, ContainerKey, ContainerTask

MASTER_ADDR = "MASTER_ADDR"
MASTER_PORT = "MASTER_PORT"

logger = logging.getLogger(__name__)


LOG_CONF = "TF_YARN_LOG_CONF"
"""Variable with the file of a logging configuration, which a program of tf-yarn 0.3 passes as `log_conf_file`."""


def setup_logging() -> None:
    """Logs as configured by the program, otherwise to stderr with timestamps."""
    configuration = os.environ.get(LOG_CONF)
    if configuration:
        logging.config.fileConfig(configuration, disable_existing_loggers=False)
        return
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s:%(levelname)s:%(name)s: %(message)s"
    )


def use_spawn() -> None:
    """Starts child processes by `spawn` if the task has several processes, as tf-yarn's processes inherit it. Workers of data
    loaders that are forked may inherit the locks and threads of libraries such as libhdfs."""
    key = get_task_key()
    if any(kind == key.type and processes > 1 for kind, _, processes in cluster_instances()):
        multiprocessing.set_start_method("spawn", force=True)


def n_try() -> int:
    """Returns the number of the try, from 0."""
    return int(os.environ.get("TF_YARN_N_TRY", "0"))


def get_task_key() -> ContainerKey:
    """Returns type and number of this task."""
    skein = os.environ.get("SKEIN_CONTAINER_ID")
    if "YDL_ROLE" in os.environ:
        return ContainerKey(os.environ["YDL_ROLE"], int(os.environ.get("YDL_INDEX", "0")))
    if not skein:
        raise RuntimeError("this process is not a task: neither `YDL_ROLE` nor `SKEIN_CONTAINER_ID` is set")
    kind, _, number = skein.rpartition("_")
    return ContainerKey(kind, int(number))


def get_task() -> str:
    """Returns the name of this task, `type:id`."""
    return get_task_key().to_kv_str()


def get_task_type(task: Optional[str] = None) -> str:
    """Returns the type of a task, by default of this one."""
    return (task or get_task()).split(":")[0]


def get_task_description() -> Tuple[str, int]:
    """Returns type and number of this task."""
    key = get_task_key()
    return key.type, key.id


def _is(kind: str, task_type: Optional[str]) -> bool:
    return (task_type or get_task_key().type) == kind


def is_worker(task_type: Optional[str] = None) -> bool:
    return _is("worker", task_type)


def is_evaluator(task_type: Optional[str] = None) -> bool:
    return _is("evaluator", task_type)


def is_chief(task_type: Optional[str] = None) -> bool:
    return _is("chief", task_type)


def roles() -> List[Dict[str, Any]]:
    """Returns the roles of the job from ydl's variables."""
    text = os.environ.get("YDL_CLUSTER")
    if not text:
        with open(os.environ["YDL_CLUSTER_FILE"], encoding="utf-8") as file:
            text = file.read()
    return json.loads(text)["roles"]


def cluster_instances() -> List[Tuple[str, int, int]]:
    """Returns type, instances and processes per instance of all roles of the cluster."""
    members = [role for role in roles() if role["role"] not in SIDE_TASKS]
    return [(role["role"], role["instances"], role.get("processes", 1)) for role in members]


def _get_cluster_tasks(client: Any = None) -> List[ContainerTask]:
    """Returns all tasks of the cluster, from the store or from ydl's variables. Called by task modules of users."""
    if client is not None:
        return list(iter_tasks([tuple(row) for row in json.loads(client.kv.wait("cluster_instances").decode())]))
    return list(iter_tasks(cluster_instances()))


def _compute_world_size(cluster_tasks: List[ContainerTask]) -> int:
    """Returns the number of processes of these tasks."""
    return sum(task.nb_proc for task in cluster_tasks)


def _get_nb_workers(task_id: int, cluster_tasks: List[ContainerTask]) -> int:
    """Returns the number of processes of a task."""
    return next(task.nb_proc for task in cluster_tasks if task.id == task_id)


def _setup_container_logs(client: Any) -> None:
    """Reports start time and log address of this task."""
    task = get_task_key()
    event.broadcast_container_start_time(client, task)
    event.logs_event(client, task, logs_url())


class catchtime:
    """Context manager that measures its `time` in seconds and prints it as `readout`."""

    time = 0.0
    readout = ""

    def __enter__(self) -> "catchtime":
        self.started = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.time = time.perf_counter() - self.started
        self.readout = "Time: {:.3f} seconds".format(self.time)
        print(self.readout)


def compute_rank(task_id: int, local_rank: int, n_workers: int) -> int:
    """Returns the rank of a process if all tasks have one type."""
    return task_id * n_workers + local_rank


def rank_and_world(local_rank: int = 0) -> Tuple[int, int]:
    """Returns the rank of a process in the cluster, and the world size. Ranks follow the order of types."""
    key, offset, world, rank = get_task_key(), 0, 0, None
    for kind, instances, processes in cluster_instances():
        if kind == key.type:
            rank = offset + compute_rank(key.id, local_rank, processes)
        offset += instances * processes
        world = offset
    if rank is None:
        raise RuntimeError("{} is not part of the cluster".format(key.to_kv_str()))
    return rank, world


def get_pickled_experiment(client: Any = None) -> bytes:
    """Reads the pickled experiment function from a file of the job, which a client's store does, too: all tasks can write to the
    job's own store."""
    if client is not None:
        return bytes(client.kv.wait(KV_EXPERIMENT_FN))
    return read_experiment()


def load_experiment_fn(client: Any = None) -> Any:
    return pickle.loads(get_pickled_experiment(client))


def _get_experiment(client: Any) -> Any:
    """Calls the experiment function. If it fails, reports start and failure of this task."""
    try:
        return load_experiment_fn(client)()
    except BaseException as failure:
        task = get_task_key()
        event.start_event(client, task)
        event.stop_event(client, task, failure)
        raise


def choose_master(client: Any, rank: int) -> Tuple[str, int]:
    """Returns the address of rank 0, which it publishes in the store for the others."""
    if rank == 0:
        with _internal.reserve_sock_addr() as (host, port):
            event.broadcast(client, MASTER_ADDR, host)
            event.broadcast(client, MASTER_PORT, str(port))
            return host, port
    return event.wait(client, MASTER_ADDR), int(event.wait(client, MASTER_PORT))


def logs_url() -> str:
    """Returns the address of this container's log, or the command that prints it."""
    node, port = os.environ.get("NM_HOST"), os.environ.get("NM_HTTP_PORT")
    container = os.environ.get("CONTAINER_ID")
    if node and port and container:
        user = os.environ.get("USER") or os.environ.get("HADOOP_USER_NAME", "")
        return "http://{}:{}/node/containerlogs/{}/{}".format(node, port, container, user)
    return "ydl logs {} {}".format(os.environ.get("YDL_JOB", ""), get_task_key().to_kv_str())
