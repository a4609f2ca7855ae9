"""Functions on a cluster. The Rust test `yarn::python` runs this module with the configuration of a cluster.

Tasks run on an interpreter without packages: the job ships everything that they need.
"""

import os
import sys
import unittest

import ydl

from . import user_module

PYTHON = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
JOB_KEYS = {"environment": "system", "python": PYTHON, "memory": 256}


class ClusterFunctions(unittest.TestCase):
    def test_an_exception_of_a_closure_is_raised_at_the_client(self) -> None:
        failing_index = 1

        def train(reason):
            if ydl.task().index == failing_index:
                user_module.reject(reason)
            ydl.kv.wait("never")

        run = ydl.Job.from_function(train, ("no more data",), instances=2, **JOB_KEYS).submit(cluster="yarn")
        with self.assertRaises(ydl.JobFailed) as raised:
            run.wait()
        failure = raised.exception
        self.assertEqual(failure.task, "worker:1")
        self.assertIn("user_module.reject(reason)", failure.traceback)
        self.assertIn("Rejected: no more data", str(failure))
        self.assertIsInstance(failure.exception, user_module.Rejected)

    def test_results_are_readable_by_the_owner_only(self) -> None:
        # Destinations of other outputs may be writable for all users; the job's own directory is not.
        keys = {"outputs": {"*.txt": "hdfs:///tmp/"}, "acls": {"view": "*"}, **JOB_KEYS}
        run = ydl.Job.from_function(user_module.double, (21,), **keys).submit(cluster="yarn")
        self.assertEqual(run.results(), {"worker:0": 42})
        # Another `Run` of the same user reads the results, too.
        self.assertEqual(ydl.Run(run.id, cluster="yarn").results(), {"worker:0": 42})
        other = ydl.Run(run.id, cluster="yarn", env={"HADOOP_USER_NAME": "mallory"})
        self.assertTrue(other.wait().succeeded)
        with self.assertRaises(ydl.Error) as raised:
            other.results()
        self.assertIn("so its results are not read", raised.exception.message)


def run_across_master_restart() -> None:
    """Runs a job whose tasks use the store and report metrics while the calling test kills its master."""

    def train():
        me = ydl.task()
        ydl.report(step=1, loss=1.0)
        assert ydl.report_flush(120)
        ydl.kv.put(f"started/{me.index}", "")
        # Meanwhile the test kills the master, which restarts in another container.
        value = ydl.kv.wait("end")
        ydl.report(step=2, loss=0.5)
        assert ydl.report_flush(120)
        return me.rank, value

    run = ydl.Job.from_function(train, instances=2, **JOB_KEYS).submit(cluster="yarn")
    print(run.id, flush=True)
    for index in range(2):
        run.kv.wait(f"started/{index}")
    print("begun", flush=True)
    assert sys.stdin.readline() == "moved\n"
    run.kv.put("end", "done")
    assert run.results() == {"worker:0": (0, b"done"), "worker:1": (1, b"done")}, run.results()
    losses = {task: (metric["loss"].value, metric["loss"].step) for task, metric in run.metrics().items()}
    assert losses == {"worker:0": (0.5, 2), "worker:1": (0.5, 2)}, losses
    print("ended", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["across-master-restart"]:
        run_across_master_restart()
    else:
        unittest.main()
