"""Experiments of the tests: functions of a module, which travel without cloudpickle."""

import os

LONG_S = 1000


def meet(local_rank):
    """Every process writes down who it is."""
    from tf_yarn.distributed.task import get_task

    task = get_task(local_rank)
    assert os.environ["SKEIN_CONTAINER_ID"] == "{}_{}".format(os.environ["YDL_ROLE"], os.environ["YDL_INDEX"])
    told = "{} {} {}\n".format(task.task_type, task.task_id, task.world_size)
    with open(os.path.join(os.environ["SEEN"], str(task.task_id)), "w") as file:
        file.write(told)


def fail_at_first(local_rank):
    """Fails as often as it is told."""
    from tf_yarn.cluster import n_try

    with open(os.path.join(os.environ["SEEN"], "tries"), "a") as file:
        file.write("{}\n".format(n_try()))
    if n_try() < int(os.environ["FAILURES"]):
        raise ArithmeticError("try {} was in vain".format(n_try()))


def one_rank_dies(local_rank):
    """The second process of a container dies, the first would wait for long."""
    import time

    if local_rank == 1:
        os._exit(3)
    time.sleep(LONG_S)


def for_ever(local_rank):
    import time

    import skein
    from tf_yarn import event

    client = skein.ApplicationClient.from_current()
    event.broadcast(client, "hook", "here")
    assert client.kv["hook"] == b"here" and "hook" in client.kv and skein.properties.container_id == "worker_0"
    time.sleep(1000)


def experiment_with(what):
    return "experiment", what
