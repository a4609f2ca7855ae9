"""Test harness: a temporary state directory, and jobs on this machine."""

import os
import shutil
import tempfile
import time
import unittest

import ydl

#: Generous timeout for a busy machine.
TEST_TIMEOUT_S = 180.0


class LocalJobTestCase(unittest.TestCase):
    """Test case that submits jobs and afterwards removes their files and processes."""

    def setUp(self) -> None:
        directory = tempfile.mkdtemp(prefix="ydl-python-")
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        self.directory = directory
        previous = {name: os.environ.get(name) for name in ("XDG_STATE_HOME", "HADOOP_CONF_DIR", "HADOOP_HOME")}
        self.addCleanup(restore_variables, previous)
        for name in previous:
            os.environ.pop(name, None)
        os.environ["XDG_STATE_HOME"] = directory
        self.runs = []
        self.addCleanup(self.kill_all)

    def submit(self, job: ydl.Job) -> ydl.Run:
        # Resources beyond those of a small machine, so that no job waits.
        run = job.submit(cluster="local", resources="vcores=16,memory=4GiB,gpus=0")
        self.runs.append(run)
        return run

    def kill_all(self) -> None:
        for run in self.runs:
            if not run.done:
                run.kill(now=True)


def restore_variables(variables) -> None:
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
            raise AssertionError(f"the condition was not met within {TEST_TIMEOUT_S} s")
        time.sleep(0.05)
