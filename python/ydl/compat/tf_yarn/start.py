"""`python -m ydl.compat.tf_yarn.start MODULE` is the program of every task: sets the variables of tf-yarn and runs the module."""

import logging
import os
import runpy
import sys
from pathlib import Path
from typing import Dict, List

from .bundle import EXPERIMENT, EXPERIMENT_FILE, METADATA, SHIMS
from .hadoop import hadoop_class_path
from .names import PREFIX, real_name

logger = logging.getLogger(__name__)

RETRY_SECONDS = 10.0
"""Maximum delay of a task's start and end by an unreachable store."""


def main(arguments: List[str]) -> None:
    module = arguments[0]
    os.environ.update(task_environment(os.environ))
    _check_pickle()
    os.environ.update(hadoop_class_path(os.environ))
    from ydl.compat.alias import alias

    for name in SHIMS:
        alias(name, PREFIX + name)
    _delete_earlier_reports()
    sys.argv = list(arguments)
    try:
        runpy.run_module(real_name(module), run_name="__main__", alter_sys=True)
    finally:
        _report_end()


def task_environment(env: "os._Environ[str]") -> Dict[str, str]:
    """Returns variables of tf-yarn that ydl does not set, and world sizes without side tasks."""
    from ._task_commons import get_task_key, rank_and_world
    from .topologies import SIDE_TASKS

    key = get_task_key()
    variables = {
        "SKEIN_CONTAINER_ID": "{}_{}".format(key.type, key.id),
        "SKEIN_APPLICATION_ID": env.get("YDL_JOB", ""),
        # Each round is a try.
        EXPERIMENT_FILE: os.path.abspath(EXPERIMENT),
        "TF_YARN_N_TRY": str(max(0, int(env.get("YDL_ROUND", "1")) - 1)),
    }
    # Evaluator and TensorBoard have the last ranks, which do not count.
    if key.type not in SIDE_TASKS and ("WORLD_SIZE" in env or "HOROVOD_SIZE" in env):
        _, world = rank_and_world()
        for name in ("WORLD_SIZE", "HOROVOD_SIZE"):
            if name in env:
                variables[name] = str(world)
        if "HOROVOD_CROSS_SIZE" in env:
            variables["HOROVOD_CROSS_SIZE"] = str(_nodes_with(int(env.get("HOROVOD_LOCAL_RANK", "0"))))
        if "GROUP_WORLD_SIZE" in env:
            variables["GROUP_WORLD_SIZE"] = str(_nodes_with(0))
    return variables


def _nodes_with(local: int) -> int:
    from ._task_commons import cluster_instances

    return sum(instances for _, instances, processes in cluster_instances() if processes > local)


def _check_pickle() -> None:
    """Exits if this version of Python cannot read the pickle."""
    from ydl.run_function import INCOMPATIBLE, incompatibility


    if not os.path.exists(METADATA):
        return
    problem = incompatibility(Path(METADATA), "the experiment")
    if problem:
        print("error: " + problem, file=sys.stderr)
        sys.exit(INCOMPATIBLE)


def _is_first_process() -> bool:
    return os.environ.get("YDL_LOCAL_RANK", "0") == "0"


def _delete_earlier_reports() -> None:
    """Deletes the reports of an earlier attempt in the same try, in which a task may restart alone."""
    if int(os.environ.get("YDL_ATTEMPT", "1")) > 1 and _is_first_process():
        from ydl import Error

        from ._task_commons import get_task_key
        from .application import Application

        try:
            Application.from_current(RETRY_SECONDS).kv.clear_prefix(get_task_key().to_kv_str() + "/")
        except Error as error:
            logger.warning("cannot delete earlier reports of this task: %s", error.message)


def _report_end() -> None:
    """Reports the end of the task, for which TensorBoard waits, if the user's module has not."""
    from ydl import Error

    from ._task_commons import get_task_key
    from .application import Application
    from .lifecycle import TaskLifecycle, end_key

    if TaskLifecycle.end_reported or not _is_first_process():
        return
    try:
        Application.from_current(RETRY_SECONDS).kv[end_key(get_task_key().to_kv_str())] = b""
    except Error as error:
        logger.warning("cannot report the end of this task: %s", error.message)


if __name__ == "__main__":
    main(sys.argv[1:])
