"""Experiments of the tests: functions of a module, which need no cloudpickle."""

import os

LONG_S = 1000


def write_identity(local_rank):
    """Writes the type, rank and world size of this process to a file."""
    from tf_yarn.distributed.task import get_task

    task = get_task(local_rank)
    assert os.environ["SKEIN_CONTAINER_ID"] == "{}_{}".format(os.environ["YDL_ROLE"], os.environ["YDL_INDEX"])
    identity = "{} {} {}\n".format(task.task_type, task.task_id, task.world_size)
    with open(os.path.join(os.environ["RESULTS_DIR"], str(task.task_id)), "w") as file:
        file.write(identity)


def fail_first_tries(local_rank):
    """Fails in the first `FAILURES` tries."""
    from tf_yarn.cluster import n_try

    with open(os.path.join(os.environ["RESULTS_DIR"], "tries"), "a") as file:
        file.write("{}\n".format(n_try()))
    if n_try() < int(os.environ["FAILURES"]):
        raise ArithmeticError("try {} failed".format(n_try()))


def one_process_exits(local_rank):
    """Exits in the second process of a container; the first one runs for long."""
    import time

    if local_rank == 1:
        os._exit(3)
    time.sleep(LONG_S)


def fail_with_a_peer(local_rank):
    """The first worker fails and cleans up for long. The second one loses its connection to it, and ends first."""
    import atexit
    import time

    import skein
    from tf_yarn import event
    from tf_yarn.distributed.task import get_task

    client = skein.ApplicationClient.from_current()

    def clean_up():
        # Python has printed the traceback.
        event.broadcast(client, "failed", "")
        time.sleep(LONG_S)

    if get_task(local_rank).task_id == 0:
        atexit.register(clean_up)
        raise OSError("disk full")
    event.wait(client, "failed")
    raise ConnectionError("Connection closed by peer")


def run_until_killed(local_rank):
    """Uses the job's store through skein, and waits to be killed."""
    import time

    import skein
    from tf_yarn import event

    client = skein.ApplicationClient.from_current()
    event.broadcast(client, "hook", "value")
    assert client.kv["hook"] == b"value" and "hook" in client.kv and skein.properties.container_id == "worker_0"
    time.sleep(LONG_S)


def experiment_with(data):
    return "experiment", data
