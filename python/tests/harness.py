"""Common parts of the tests: a temporary state directory, and jobs on this machine."""

import os
import shutil
import tempfile
import time
import unittest

import ydl

#: Generous timeout for a busy machine.
TEST_TIMEOUT_S = 180.0


class LocalJobTestCase(unittest.TestCase):
    """Tests that submit jobs, whose files and processes are removed afterwards."""

    def setUp(self) -> None:
        directory = tempfile.mkdtemp(prefix="ydl-python-")
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        self.directory = directory
        before = {name: os.environ.get(name) for name in ("XDG_STATE_HOME", "HADOOP_CONF_DIR", "HADOOP_HOME")}
        self.addCleanup(restore, before)
        for name in before:
            os.environ.pop(name, None)
        os.environ["XDG_STATE_HOME"] = directory
        self.runs = []
        self.addCleanup(self.kill_all)

    def submit(self, job: ydl.Job) -> ydl.Run:
        # More cores than the machine may have, so that all tests fit.
        run = job.submit(cluster="local", resources="vcores=16,memory=4GiB,gpus=0")
        self.runs.append(run)
        return run

    def kill_all(self) -> None:
        for run in self.runs:
            if not run.done:
                run.kill(now=True)


def restore(variables) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def until(condition):
    """Waits until a condition is true, and returns its value."""
    end = time.monotonic() + TEST_TIMEOUT_S
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= end:
            raise AssertionError("the condition was not met in time")
        time.sleep(0.05)
