"""Process of a distributed function."""

import logging
import os
from typing import NamedTuple

from .._task_commons import cluster_instances, get_task_key, load_experiment_fn, rank_and_world, roles, setup_logging, use_spawn
from ..lifecycle import run_task

logger = logging.getLogger(__name__)


class TaskParameters(NamedTuple):
    """Identity of a process. `task_id` is its rank, with chiefs before workers."""

    task_type: str
    task_id: int
    world_size: int
    master_address: str
    master_port: int
    n_workers_per_executor: int = 1


def get_task(local_rank: int) -> TaskParameters:
    """Returns the identity of this process, for functions. The master port was free when the program of rank 0 started."""
    key = get_task_key()
    rank, world = rank_and_world(local_rank)
    processes = {kind: each for kind, _, each in cluster_instances()}[key.type]
    first = next(role for role in roles() if role["role"] == cluster_instances()[0][0])["endpoints"][0]
    return TaskParameters(key.type, rank, world, first["host"], first["ports"]["master"], processes)


def main() -> None:
    setup_logging()
    use_spawn()
    local = int(os.environ.get("YDL_LOCAL_RANK", "0"))
    run_task(lambda: load_experiment_fn()(local))


if __name__ == "__main__":
    main()
