"""tf-yarn's interface with real jobs on this machine: what comes back, and what a failure costs."""

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import ydl
from ydl.compat import tf_yarn
from ydl.compat.tf_yarn.bin import check_hadoop_env
from ydl.compat.tf_yarn.distributed.client import run_on_yarn
from ydl.compat.cluster_pack import yarn_launcher

from . import user_module, tf_yarn_functions
from .harness import LocalJobTestCase, until


def tasks(kind="worker", **more):
    return {kind: tf_yarn.TaskSpec(128, 2, **more)}


class Runs(LocalJobTestCase):
    def setUp(self):
        super().setUp()
        self.seen = tempfile.mkdtemp(prefix="tf_yarn-seen-")
        self.addCleanup(shutil.rmtree, self.seen, ignore_errors=True)
        self.options = {"cluster": "local", "pyenv_zip_path": sys.executable, "env": {"SEEN": self.seen}}

    def jobs(self):
        return ydl.runs(cluster="local")

    def test_every_process_has_its_rank_and_durations_are_returned(self):
        specs = {**tasks("chief"), **tasks(instances=2, nb_proc_per_worker=2)}
        metrics = run_on_yarn(tf_yarn_functions.meet, specs, **self.options)
        expected = {"0": "chief 0 5", "1": "worker 1 5", "2": "worker 2 5", "3": "worker 3 5", "4": "worker 4 5"}
        found = {path.name: path.read_text().strip() for path in Path(self.seen).iterdir()}
        self.assertEqual(found, expected)
        keys = [tf_yarn.ContainerKey("chief", 0), tf_yarn.ContainerKey("worker", 0), tf_yarn.ContainerKey("worker", 1)]
        self.assertEqual(sorted(metrics.container_duration), keys)
        self.assertTrue(all(metrics.container_duration.values()), metrics)
        self.assertIsNotNone(metrics.total_training_duration)
        self.assertEqual(self.options["env"], {"SEEN": self.seen})

    def test_a_failing_experiment_is_retried_up_to_the_limit(self):
        for retries, failures, tries in ((0, 0, 1), (1, 1, 2), (1, 2, 2)):
            path = os.path.join(self.seen, "tries")
            if os.path.exists(path):
                os.remove(path)
            self.options["env"]["FAILURES"] = str(failures)
            call = lambda: run_on_yarn(tf_yarn_functions.fail_at_first, tasks(), nb_retries=retries, **self.options)  # noqa: E731
            if failures > retries:
                with self.assertRaises(tf_yarn.RunFailed) as failed:
                    call()
                self.assertEqual(failed.exception.task, "worker:0")
                self.assertIn("ArithmeticError: try 1 was in vain", failed.exception.traceback)
                self.assertIn("was in vain", str(failed.exception))
                self.assertIsNone(failed.exception.metrics.total_training_duration)
            else:
                self.assertIsNotNone(call().total_training_duration)
            with open(path) as file:
                self.assertEqual(file.read().split(), [str(number) for number in range(tries)])

    def test_one_dead_process_of_a_container_fails_the_job_at_once(self):
        began = time.monotonic()
        with self.assertRaises(tf_yarn.RunFailed) as failed:
            run_on_yarn(tf_yarn_functions.one_rank_dies, tasks(instances=2, nb_proc_per_worker=2), **self.options)
        self.assertEqual(failed.exception.__cause__.code, 3)
        # The other processes would have stayed for longer.
        self.assertLess(time.monotonic() - began, tf_yarn_functions.LONG_S)

    def test_a_killed_job_ends_without_an_exception_and_hooks_share_its_store(self):
        def kill():
            run = until(lambda: next((one for one in self.jobs() if one.name == "victim"), None))
            self.assertEqual(until(lambda: hook(run)), b"here")
            run.kill(now=True)

        def hook(run):
            try:
                return run.kv.get("hook", None)
            except ydl.Error:
                return None

        killer = threading.Thread(target=kill)
        killer.start()
        metrics = run_on_yarn(tf_yarn_functions.for_ever, tasks(), name="victim", **self.options)
        killer.join()
        self.assertIsNone(metrics.total_training_duration)

    def test_an_interrupt_kills_the_job_without_a_retry(self):
        child = self.program()
        until(lambda: any(self.runs_well(one) for one in self.jobs()))
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=180)
        self.assertIn(b"KeyboardInterrupt", said)
        until(lambda: [one.summary.get("state") for one in self.jobs()] == ["killed"])

    def test_sigterm_kills_the_job_and_ends_the_program(self):
        child = self.program()
        until(lambda: any(self.runs_well(one) for one in self.jobs()))
        child.send_signal(signal.SIGTERM)
        _, said = child.communicate(timeout=180)
        self.assertEqual((child.returncode, b"Traceback" in said), (128 + signal.SIGTERM, False), said)
        # `kill` waits for the end of the job: nothing is left to wait for.
        self.assertEqual([one.summary.get("state") for one in self.jobs()], ["killed"])

    def test_an_existing_sigterm_handler_is_kept(self):
        heard = []
        before = signal.signal(signal.SIGTERM, lambda *_: heard.append(True))
        self.addCleanup(signal.signal, signal.SIGTERM, before)

        def term():
            until(lambda: any(self.runs_well(one) for one in self.jobs()))
            os.kill(os.getpid(), signal.SIGTERM)
            until(lambda: heard)
            self.jobs()[0].kill(now=True)

        killer = threading.Thread(target=term)
        killer.start()
        run_on_yarn(tf_yarn_functions.for_ever, tasks(), **self.options)
        killer.join()
        self.assertEqual(heard, [True])

    def program(self):
        """A client that waits for a job that never ends by itself."""
        program = (
            "import sys\nfrom ydl.compat.tf_yarn import TaskSpec\nfrom ydl.compat.tf_yarn.distributed.client import run_on_yarn\n"
            "from tests import tf_yarn_functions\n"
            "run_on_yarn(tf_yarn_functions.for_ever, {'worker': TaskSpec(128, 1)}, nb_retries=3, name='interrupted',\n"
            "            cluster='local', pyenv_zip_path=sys.executable)\n"
        )
        root = os.path.dirname(os.path.dirname(os.path.abspath(ydl.__file__)))
        place = os.path.dirname(os.path.dirname(os.path.abspath(tf_yarn_functions.__file__)))
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([root, place])}
        return subprocess.Popen([sys.executable, "-c", program], env=env, stderr=subprocess.PIPE, start_new_session=True)

    def runs_well(self, job):
        try:
            return job.kv.get("hook", None) == b"here"
        except ydl.Error:
            return False

    def test_check_hadoop_env_reports_ok_and_writes_its_log(self):
        before = os.getcwd()
        os.chdir(self.seen)
        self.addCleanup(os.chdir, before)
        with self.assertLogs("tf_yarn.bin.check_hadoop_env", logging.INFO) as logs:
            code = check_hadoop_env.main(["--cluster", "local"])
        self.assertEqual(code, 0, logs.output)
        with open(check_hadoop_env.LOG) as file:
            written = file.read()
        self.assertIn("remote_check: True", written)
        self.assertIn("Hadoop setup: OK", written.splitlines()[-1])

    def test_the_launcher_calls_functions_and_runs_modules(self):
        one = yarn_launcher.submit_func(None, user_module.double, [4], package_path=sys.executable, cluster="local")
        two = yarn_launcher.submit(None, "platform", package_path=sys.executable, cluster="local", memory="128 MiB")
        self.assertTrue(yarn_launcher.wait_for_finished(None, one, 0.2))
        self.assertTrue(yarn_launcher.wait_for_finished(None, two, 0.2))
        self.assertIn("Linux", yarn_launcher.get_application_logs(None, two)["worker:0"])


if __name__ == "__main__":
    unittest.main()
