"""What the tests share: a state directory of their own, and jobs on this machine."""

import os
import shutil
import tempfile
import time
import unittest

import ydl

#: For a machine that is busy with other tests; nothing waits for it in vain.
PATIENCE_S = 180.0


class OnThisMachine(unittest.TestCase):
    """Tests that submit jobs. What a job leaves behind goes with the test."""

    def setUp(self) -> None:
        place = tempfile.mkdtemp(prefix="ydl-python-")
        self.addCleanup(shutil.rmtree, place, ignore_errors=True)
        self.place = place
        before = {name: os.environ.get(name) for name in ("XDG_STATE_HOME", "HADOOP_CONF_DIR", "HADOOP_HOME")}
        self.addCleanup(restore, before)
        for name in before:
            os.environ.pop(name, None)
        os.environ["XDG_STATE_HOME"] = place
        self.started = []
        self.addCleanup(self.end_all)

    def submit(self, job: ydl.Job) -> ydl.Run:
        # As many tasks as a test wants, however few cores this machine has.
        run = job.submit(cluster="local", resources="vcores=16,memory=4GiB,gpus=0")
        self.started.append(run)
        return run

    def end_all(self) -> None:
        for run in self.started:
            if not run.over:
                run.kill(now=True)


def restore(variables) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def until(what):
    """Waits for a fact: the first true answer."""
    end = time.monotonic() + PATIENCE_S
    while True:
        answer = what()
        if answer:
            return answer
        if time.monotonic() >= end:
            raise AssertionError("what was waited for has not happened")
        time.sleep(0.05)
