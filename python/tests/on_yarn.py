"""Functions on a cluster. The Rust test `yarn::python` starts this with the configuration of one.

Tasks run on an interpreter without any package: what they need travels with the job.
"""

import os
import sys
import unittest

import ydl

from . import user_module

PYTHON = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
JOB_KEYS = {"environment": "system", "python": PYTHON, "memory": 256}


class OnYarn(unittest.TestCase):
    def test_an_exception_of_a_closure_is_raised_at_the_client(self) -> None:
        wanted = 1

        def train(what):
            if ydl.task().index == wanted:
                user_module.reject(what)
            ydl.kv.wait("never")

        run = ydl.Job.from_function(train, ("no more data",), instances=2, **JOB_KEYS).submit(cluster="yarn")
        with self.assertRaises(ydl.JobFailed) as raised:
            run.wait()
        failure = raised.exception
        self.assertEqual(failure.task, "worker:1")
        self.assertIn("user_module.reject(what)", failure.traceback)
        self.assertIn("Rejected: no more data", str(failure))
        self.assertIsInstance(failure.exception, user_module.Rejected)

    def test_results_are_readable_by_the_owner_only(self) -> None:
        # Other outputs may go where anybody writes; the job's own directory is not among them.
        keys = {"outputs": {"*.txt": "hdfs:///tmp/"}, "acls": {"view": "*"}, **JOB_KEYS}
        run = ydl.Job.from_function(user_module.double, (21,), **keys).submit(cluster="yarn")
        self.assertEqual(run.results(), {"worker:0": 42})
        # Who submitted it need not be this very object.
        self.assertEqual(ydl.Run(run.id, cluster="yarn").results(), {"worker:0": 42})
        other = ydl.Run(run.id, cluster="yarn", env={"HADOOP_USER_NAME": "somebody"})
        self.assertTrue(other.wait().succeeded)
        with self.assertRaises(ydl.Error) as raised:
            other.results()
        self.assertIn("so its results are not read", raised.exception.message)


def through_deaths() -> None:
    """A job whose tasks ask and tell while its master is killed by whoever reads what this prints."""

    def train():
        me = ydl.task()
        ydl.report(step=1, loss=1.0)
        assert ydl.report_flush(120)
        ydl.kv.put(f"begun/{me.index}", "")
        # Meanwhile the master dies and comes back elsewhere.
        word = ydl.kv.wait("end")
        ydl.report(step=2, loss=0.5)
        assert ydl.report_flush(120)
        return me.rank, word

    run = ydl.Job.from_function(train, instances=2, **JOB_KEYS).submit(cluster="yarn")
    print(run.id, flush=True)
    for index in range(2):
        run.kv.wait(f"begun/{index}")
    print("begun", flush=True)
    assert sys.stdin.readline() == "moved\n"
    run.kv.put("end", "well")
    assert run.results() == {"worker:0": (0, b"well"), "worker:1": (1, b"well")}, run.results()
    losses = {task: (metric["loss"].value, metric["loss"].step) for task, metric in run.metrics().items()}
    assert losses == {"worker:0": (0.5, 2), "worker:1": (0.5, 2)}, losses
    print("ended", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["through-deaths"]:
        through_deaths()
    else:
        unittest.main()
