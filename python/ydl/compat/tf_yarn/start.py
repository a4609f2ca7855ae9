"""`python -m ydl.compat.tf_yarn.start MODULE`: what every task runs. It makes the task's surroundings those of tf-yarn, and runs
the module as the program."""

import logging
import os
import runpy
import sys
from pathlib import Path
from typing import Dict, List

from .hadoop import classes
from .names import OWN, real_name

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 10.0
"""How long a store that is away may hold up a task's beginning, or its end."""


def main(words: List[str]) -> None:
    module = words[0]
    os.environ.update(surroundings(os.environ))
    _fits()
    os.environ.update(classes(os.environ))
    from ydl.compat.alias import alias

    from .bundle import SHIMS

    for name in SHIMS:
        alias(name, OWN + name)
    _forget_earlier_attempts()
    sys.argv = list(words)
    try:
        runpy.run_module(real_name(module), run_name="__main__", alter_sys=True)
    finally:
        _say_over()


def surroundings(env: "os._Environ[str]") -> Dict[str, str]:
    """Variables that tf-yarn's tasks have and ydl's have not, or that count those who only look."""
    from ._task_commons import get_task_key, rank_and_world
    from .topologies import OUTSIDE

    key = get_task_key()
    told = {
        "SKEIN_CONTAINER_ID": "{}_{}".format(key.type, key.id),
        "SKEIN_APPLICATION_ID": env.get("YDL_JOB", ""),
        # A round is a try: everybody begins anew.
        "TF_YARN_N_TRY": str(max(0, int(env.get("YDL_ROUND", "1")) - 1)),
    }
    # Evaluator and TensorBoard come last and are no ranks, whatever the framework thinks.
    if key.type not in OUTSIDE and ("WORLD_SIZE" in env or "HOROVOD_SIZE" in env):
        _, world = rank_and_world()
        for name in ("WORLD_SIZE", "HOROVOD_SIZE"):
            if name in env:
                told[name] = str(world)
        if "HOROVOD_CROSS_SIZE" in env:
            told["HOROVOD_CROSS_SIZE"] = str(_across(int(env.get("HOROVOD_LOCAL_RANK", "0"))))
        if "GROUP_WORLD_SIZE" in env:
            told["GROUP_WORLD_SIZE"] = str(_across(0))
    return told


def _across(local: int) -> int:
    from ._task_commons import cluster_instances

    return sum(instances for _, instances, processes in cluster_instances() if processes > local)


def _fits() -> None:
    """Code travels as bytecode, which each version of Python has its own of."""
    from ydl.run_function import UNFIT, misfit

    from .bundle import ABOUT

    if not os.path.exists(ABOUT):
        return
    unfit = misfit(Path(ABOUT), "the experiment")
    if unfit:
        print("error: " + unfit, file=sys.stderr)
        sys.exit(UNFIT)


def _speaks() -> bool:
    return os.environ.get("YDL_LOCAL_RANK", "0") == "0"


def _forget_earlier_attempts() -> None:
    """What this task said in an earlier attempt is not true any more. A try's words are its own, but a task may also come back
    alone."""
    if int(os.environ.get("YDL_ATTEMPT", "1")) > 1 and _speaks():
        from ydl import Error

        from ._task_commons import get_task_key
        from .application import Application

        try:
            Application.from_current(PATIENCE_SECONDS).kv.clear_prefix(get_task_key().to_kv_str() + "/")
        except Error as away:
            logger.warning("what this task said before is still in the job's store: %s", away.message)


def _say_over() -> None:
    """TensorBoard waits for everybody's end, and a module of the user's own need not know of it."""
    from ydl import Error

    from ._task_commons import get_task_key
    from .application import Application
    from .life import Life, over_key

    if Life.said_over or not _speaks():
        return
    try:
        Application.from_current(PATIENCE_SECONDS).kv[over_key(get_task_key().to_kv_str())] = b""
    except Error as away:
        logger.warning("nobody was told that this task has ended: %s", away.message)


if __name__ == "__main__":
    main(sys.argv[1:])
