"""tf-yarn's interface with real jobs on this machine: results, failures and interrupts."""

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


def tasks(kind="worker", **options):
    return {kind: tf_yarn.TaskSpec(128, 2, **options)}


class Runs(LocalJobTestCase):
    def setUp(self):
        super().setUp()
        self.results = tempfile.mkdtemp(prefix="tf_yarn-results-")
        self.addCleanup(shutil.rmtree, self.results, ignore_errors=True)
        self.options = {"cluster": "local", "pyenv_zip_path": sys.executable, "env": {"RESULTS_DIR": self.results}}

    def jobs(self):
        return ydl.runs(cluster="local")

    def test_every_process_has_its_rank_and_durations_are_returned(self):
        specs = {**tasks("chief"), **tasks(instances=2, nb_proc_per_worker=2)}
        metrics = run_on_yarn(tf_yarn_functions.write_identity, specs, **self.options)
        expected = {"0": "chief 0 5", "1": "worker 1 5", "2": "worker 2 5", "3": "worker 3 5", "4": "worker 4 5"}
        found = {path.name: path.read_text().strip() for path in Path(self.results).iterdir()}
        self.assertEqual(found, expected)
        keys = [tf_yarn.ContainerKey("chief", 0), tf_yarn.ContainerKey("worker", 0), tf_yarn.ContainerKey("worker", 1)]
        self.assertEqual(sorted(metrics.container_duration), keys)
        self.assertTrue(all(metrics.container_duration.values()), metrics)
        self.assertIsNotNone(metrics.total_training_duration)
        self.assertEqual(self.options["env"], {"RESULTS_DIR": self.results})

    def test_a_failing_experiment_is_retried_up_to_the_limit(self):
        for retries, failures, tries in ((0, 0, 1), (1, 1, 2), (1, 2, 2)):
            path = os.path.join(self.results, "tries")
            if os.path.exists(path):
                os.remove(path)
            self.options["env"]["FAILURES"] = str(failures)
            call = lambda: run_on_yarn(tf_yarn_functions.fail_first_tries, tasks(), nb_retries=retries, **self.options)  # noqa: E731
            if failures > retries:
                with self.assertRaises(tf_yarn.RunFailed) as raised:
                    call()
                self.assertEqual(raised.exception.task, "worker:0")
                self.assertIn("ArithmeticError: try 1 failed", raised.exception.traceback)
                self.assertIn("try 1 failed", str(raised.exception))
                self.assertIsNone(raised.exception.metrics.total_training_duration)
            else:
                self.assertIsNotNone(call().total_training_duration)
            with open(path) as file:
                self.assertEqual(file.read().split(), [str(number) for number in range(tries)])

    def test_the_exit_of_one_process_of_a_container_fails_the_job_at_once(self):
        started = time.monotonic()
        with self.assertRaises(tf_yarn.RunFailed) as raised:
            run_on_yarn(tf_yarn_functions.one_process_exits, tasks(instances=2, nb_proc_per_worker=2), **self.options)
        self.assertEqual(raised.exception.__cause__.exit_code, 3)
        # The other processes would run longer.
        self.assertLess(time.monotonic() - started, tf_yarn_functions.LONG_S)

    def test_the_first_of_two_failures_is_the_cause(self):
        with self.assertRaises(tf_yarn.RunFailed) as raised:
            run_on_yarn(tf_yarn_functions.fail_with_a_peer, tasks(instances=2), **self.options)
        failure = raised.exception
        self.assertEqual(failure.task, "worker:0")
        self.assertIn("OSError: disk full", failure.traceback)
        self.assertIn("OSError: disk full", str(failure))
        status = failure.run.status()
        self.assertIn("OSError: disk full", status.outcome.stderr_tail)
        self.assertTrue(any("cause-found" in event["kind"] for event in failure.run.history()))

    def test_a_killed_job_ends_without_an_exception_and_hooks_share_its_store(self):
        def kill():
            run = until(lambda: next((job for job in self.jobs() if job.name == "killed"), None))
            self.assertEqual(until(lambda: hook(run)), b"value")
            run.kill(now=True)

        def hook(run):
            try:
                return run.kv.get("hook", None)
            except ydl.Error:
                return None

        killer = threading.Thread(target=kill)
        killer.start()
        metrics = run_on_yarn(tf_yarn_functions.run_until_killed, tasks(), name="killed", **self.options)
        killer.join()
        self.assertIsNone(metrics.total_training_duration)

    def test_an_interrupt_kills_the_job_without_a_retry(self):
        child = self.program()
        until(lambda: any(self.is_running(job) for job in self.jobs()))
        child.send_signal(signal.SIGINT)
        _, stderr = child.communicate(timeout=180)
        self.assertIn(b"KeyboardInterrupt", stderr)
        until(lambda: [job.summary.get("state") for job in self.jobs()] == ["killed"])

    def test_sigterm_kills_the_job_and_ends_the_program(self):
        child = self.program()
        until(lambda: any(self.is_running(job) for job in self.jobs()))
        child.send_signal(signal.SIGTERM)
        _, stderr = child.communicate(timeout=180)
        self.assertEqual((child.returncode, b"Traceback" in stderr), (128 + signal.SIGTERM, False), stderr)
        # `kill` waits for the end of the job.
        self.assertEqual([job.summary.get("state") for job in self.jobs()], ["killed"])

    def test_an_existing_sigterm_handler_is_kept(self):
        received = []
        previous = signal.signal(signal.SIGTERM, lambda *_: received.append(True))
        self.addCleanup(signal.signal, signal.SIGTERM, previous)

        def term():
            until(lambda: any(self.is_running(job) for job in self.jobs()))
            os.kill(os.getpid(), signal.SIGTERM)
            until(lambda: received)
            self.jobs()[0].kill(now=True)

        killer = threading.Thread(target=term)
        killer.start()
        run_on_yarn(tf_yarn_functions.run_until_killed, tasks(), **self.options)
        killer.join()
        self.assertEqual(received, [True])

    def program(self):
        """Starts a client that waits for a job that runs until it is killed."""
        program = (
            "import sys\nfrom ydl.compat.tf_yarn import TaskSpec\nfrom ydl.compat.tf_yarn.distributed.client import run_on_yarn\n"
            "from tests import tf_yarn_functions\n"
            "run_on_yarn(tf_yarn_functions.run_until_killed, {'worker': TaskSpec(128, 1)}, nb_retries=3, name='interrupted',\n"
            "            cluster='local', pyenv_zip_path=sys.executable)\n"
        )
        root = os.path.dirname(os.path.dirname(os.path.abspath(ydl.__file__)))
        tests = os.path.dirname(os.path.dirname(os.path.abspath(tf_yarn_functions.__file__)))
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([root, tests])}
        return subprocess.Popen([sys.executable, "-c", program], env=env, stderr=subprocess.PIPE, start_new_session=True)

    def is_running(self, job):
        try:
            return job.kv.get("hook", None) == b"value"
        except ydl.Error:
            return False

    def test_check_hadoop_env_reports_ok_and_writes_its_log(self):
        previous = os.getcwd()
        os.chdir(self.results)
        self.addCleanup(os.chdir, previous)
        with self.assertLogs("tf_yarn.bin.check_hadoop_env", logging.INFO) as logs:
            code = check_hadoop_env.main(["--cluster", "local"])
        self.assertEqual(code, 0, logs.output)
        with open(check_hadoop_env.LOG) as file:
            log = file.read()
        self.assertIn("remote_check: True", log)
        self.assertIn("Hadoop setup: OK", log.splitlines()[-1])

    def test_the_launcher_calls_functions_and_runs_modules(self):
        function = yarn_launcher.submit_func(None, user_module.double, [4], package_path=sys.executable, cluster="local")
        module = yarn_launcher.submit(None, "platform", package_path=sys.executable, cluster="local", memory="128 MiB")
        self.assertTrue(yarn_launcher.wait_for_finished(None, function, 0.2))
        self.assertTrue(yarn_launcher.wait_for_finished(None, module, 0.2))
        self.assertIn("Linux", yarn_launcher.get_application_logs(None, module)["worker:0"])


if __name__ == "__main__":
    unittest.main()
