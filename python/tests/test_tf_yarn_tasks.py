"""tf-yarn's tasks without a cluster."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

import ydl
from ydl.compat.tf_yarn import cluster, event, hadoop, lifecycle, start
from ydl.compat.tf_yarn._internal import MonitoredThread, own_address, reserve_sock_addr, xset_environ
from ydl.compat.tf_yarn._task_commons import _get_experiment, choose_master, get_task_key
from ydl.compat.tf_yarn.application import Application
from ydl.compat.tf_yarn.bundle import EXPERIMENT, FOLDER
from ydl.compat.tf_yarn.constants import KV_EXPERIMENT_FN
from ydl.compat.tf_yarn.lifecycle import run_task
from ydl.compat.tf_yarn.start import task_environment
from ydl.compat.tf_yarn.tensorflow.cluster import start_cluster, start_tf_server
from ydl.compat.tf_yarn.tensorflow.tasks import evaluator_task
from ydl.compat.tf_yarn.tensorflow.tasks.evaluator_task import pending, step_of
from ydl.compat.tf_yarn.topologies import ContainerKey, ContainerTask

from .harness import TEST_TIMEOUT_S


class Kv(dict):
    """Fake store of a try. `wait` for a missing key raises KeyError."""

    def wait(self, key):
        return self[key]


class JobStore(dict):
    """Fake store of the job, which all tries share."""

    def put(self, key, value):
        self[key] = value.encode() if isinstance(value, str) else value

    def get(self, key):
        return self[key]

    def list(self, prefix):
        return {key: value for key, value in self.items() if key.startswith(prefix)}

    def wait(self, key, timeout):
        return self[key]

    def delete(self, key):
        return self.pop(key, None) is not None

    def delete_prefix(self, prefix):
        found = self.list(prefix)
        for key in found:
            del self[key]
        return len(found)


class BlockedJob:
    """Fake job whose store blocks writes until the gate is opened."""

    def __init__(self):
        self.gate, self.requested = threading.Event(), threading.Event()
        self.written = {}
        self.kv = self

    def __setitem__(self, key, value):
        self.requested.set()
        self.gate.wait()
        self.written[key] = value


class Job:
    def __init__(self, **entries):
        self.kv = Kv({key: value for key, value in entries.items()})


class Tasks(unittest.TestCase):
    def setUp(self):
        patch = mock.patch.dict(os.environ)
        patch.start()
        self.addCleanup(patch.stop)
        for name in [name for name in os.environ if name.startswith(("YDL_", "SKEIN_", "TF_", "MLFLOW_", "HOROVOD_"))]:
            if name != "YDL_BINARY":
                del os.environ[name]
        os.environ["SKEIN_CONTAINER_ID"] = "worker_1"

    def test_a_task_has_its_identity(self):
        self.assertEqual(get_task_key(), ContainerKey("worker", 1))
        self.assertEqual(cluster.get_task(), "worker:1")
        self.assertEqual(cluster.get_task_description(), ("worker", 1))
        self.assertTrue(cluster.is_worker() and not cluster.is_chief() and cluster.is_chief("chief"))
        os.environ.update(YDL_ROLE="evaluator", YDL_INDEX="0")
        self.assertTrue(cluster.is_evaluator())

    def test_addresses_are_in_the_order_of_task_numbers(self):
        job = Job(**{"worker:0/init": b"b:2", "worker:1/init": b"a:1", "chief:0/init": b"c:3"})
        tasks = [ContainerTask("worker", 1, 1), ContainerTask("chief", 0, 1), ContainerTask("worker", 0, 1)]
        self.assertEqual(cluster.aggregate_spec(job, tasks), {"worker": ["b:2", "a:1"], "chief": ["c:3"]})

    def test_a_task_reports_its_address_before_waiting_for_others(self):
        job = Job()
        spec = start_cluster(("10.0.0.1", 4711), job, ["worker:1"])
        self.assertEqual(job.kv["worker:1/init"], b"10.0.0.1:4711")
        self.assertEqual(spec, {"worker": ["10.0.0.1:4711"]})

    def test_parameter_servers_start_no_second_server(self):
        os.environ["SKEIN_CONTAINER_ID"] = "ps_0"
        self.assertIsNone(start_tf_server({"ps": ["a:1"]}))

    def test_a_failing_experiment_function_is_reported(self):
        job = Job()
        with tempfile.TemporaryDirectory() as directory:
            previous = os.getcwd()
            os.chdir(directory)
            self.addCleanup(os.chdir, previous)
            with self.assertRaises(FileNotFoundError):
                _get_experiment(job)
        self.assertEqual(job.kv["worker:1/start"], b"")
        self.assertIn(b"FileNotFoundError", job.kv["worker:1/stop"])

    def test_rank_0_chooses_the_master_address(self):
        job = Job()
        host, port = choose_master(job, 0)
        self.assertEqual(choose_master(job, 1), (host, port))

    def test_the_lifecycle_of_a_task_is_reported_and_ends_with_its_work(self):
        os.environ.update(YDL_ROLE="worker", YDL_INDEX="1", YDL_ROUND="2", YDL_CLUSTER='{"round": 2, "roles": []}')
        job = Job()
        run_task(lambda: None, "10.0.0.1:1", job)
        self.assertEqual(job.kv["worker:1/stop"], b"")
        names = ("init", "start", "logs", "container_start_time", "container_stop_time", "train_eval_stop_time")
        self.assertTrue(all("worker:1/" + name in job.kv for name in names))
        self.assertIn("ended/worker:1", job.kv)

        def fail():
            raise ArithmeticError("no such number")

        with self.assertRaises(ArithmeticError):
            run_task(fail, client=job)
        self.assertIn(b"no such number", job.kv["worker:1/stop"])

    def test_side_tasks_have_no_ranks(self):
        roles = '{"round": 1, "roles": [%s]}' % ", ".join(
            '{"role": "%s", "instances": %d, "processes": %d, "endpoints": []}' % row
            for row in (("chief", 1, 1), ("worker", 2, 2), ("evaluator", 1, 1), ("tensorboard", 1, 1))
        )
        os.environ.update(YDL_ROLE="worker", YDL_INDEX="1", YDL_CLUSTER=roles, WORLD_SIZE="7", HOROVOD_SIZE="7")
        os.environ.update(HOROVOD_CROSS_SIZE="5", HOROVOD_LOCAL_RANK="1", YDL_ROUND="3")
        env = task_environment(os.environ)
        self.assertEqual((env["WORLD_SIZE"], env["HOROVOD_SIZE"], env["HOROVOD_CROSS_SIZE"]), ("5", "5", "2"))
        self.assertEqual(env["TF_YARN_N_TRY"], "2")

    def test_a_thread_stores_its_exception(self):
        thread = MonitoredThread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
        self.assertIsInstance(thread.exception, ZeroDivisionError)
        self.assertEqual(thread.state, "FAILED")

    def test_a_reserved_port_is_exclusive(self):
        with reserve_sock_addr() as (_, port), socket.socket() as other:
            with self.assertRaises(OSError):
                other.bind(("", port))

    def test_a_variable_is_set_once(self):
        xset_environ(TF_YARN_TEST_VARIABLE="1")
        self.assertEqual(os.environ["TF_YARN_TEST_VARIABLE"], "1")
        with self.assertRaises(RuntimeError):
            xset_environ(TF_YARN_TEST_VARIABLE="2")

    def test_only_new_checkpoints_are_evaluated(self):
        names = ["m/model.ckpt-{}".format(step) for step in (200, 0, 1000)]
        self.assertEqual([step_of(name) for name in pending(names, [])], [0, 200, 1000])
        self.assertEqual(pending(names, [0, 1000]), ["m/model.ckpt-200"])
        self.assertEqual(pending(names, [0, 200, 1000]), [])

    def evaluate(self, checkpoints, evaluated=(), **spec):
        """Runs an evaluator that finds these lists of checkpoints, one per poll. Returns its evaluations and exports, and its pauses."""
        done = []
        estimator = mock.Mock(model_dir="m")
        estimator.evaluate.side_effect = lambda *_, checkpoint_path, **__: done.append(step_of(checkpoint_path))
        exporter = mock.Mock()
        exporter.export.side_effect = lambda _, path, checkpoint, __, last: done.append((path, step_of(checkpoint), last))
        exporter.name = "best"
        values = {"start_delay_secs": 3, "throttle_secs": 600, "exporters": [exporter], "name": None, "hooks": (), **spec}
        experiment = mock.Mock(estimator=estimator, eval_spec=mock.Mock(**values))
        experiment.eval_spec.name = None
        experiment.train_spec.max_steps = 300
        fake = types.ModuleType("metrics")
        fake.EvaluatedSteps = mock.Mock()
        fake.EvaluatedSteps.return_value.steps.return_value = set(evaluated)
        polls = [{"m/model.ckpt-{}".format(step) for step in poll} for poll in checkpoints]
        pauses = []
        with mock.patch.dict(sys.modules, {"ydl.compat.tf_yarn.tensorflow.metrics": fake}), mock.patch.object(
            evaluator_task, "_get_all_checkpoints", side_effect=polls
        ), mock.patch.object(evaluator_task.time, "sleep", side_effect=pauses.append):
            evaluator_task.evaluate(experiment, evaluator_task.IdleTimeout(0.0 if spec.get("name") == "idle" else 1e9))
        return done, pauses

    def test_every_checkpoint_is_evaluated_and_exported_once_until_the_last_step(self):
        done, pauses = self.evaluate([[100], [100, 200], [200, 300]], evaluated=[100])
        path = os.path.join("m", "export", "best")
        self.assertEqual(done, [200, (path, 200, False), 300, (path, 300, True)])
        # It waits before the first poll and between polls.
        self.assertEqual((pauses[0], len(pauses)), (3, 3))
        self.assertTrue(all(500 < seconds <= 600 for seconds in pauses[1:]))

    def test_an_evaluator_without_new_checkpoints_ends(self):
        done, pauses = self.evaluate([[100]], evaluated=[100], name="idle")
        self.assertEqual((done, pauses), ([], [3]))

    def test_an_exception_is_reported_as_a_traceback(self):
        self.assertEqual(event.maybe_format_exception(None), "")
        try:
            raise ArithmeticError("no such number")
        except ArithmeticError as failure:
            self.assertRegex(event.maybe_format_exception(failure), "(?s)Traceback.*no such number")

    def test_an_unreachable_store_delays_neither_training_nor_exit(self):
        os.environ.update(YDL_ROLE="worker", YDL_INDEX="1", YDL_CLUSTER='{"round": 1, "roles": []}')
        blocked, results = BlockedJob(), []
        self.addCleanup(blocked.gate.set)
        with mock.patch.object(lifecycle, "FLUSH_SECONDS", 0.1), self.assertLogs("ydl.compat.tf_yarn", "WARNING") as logs:
            # The task runs and ends while the first write is blocked.
            run_task(lambda: results.append(blocked.requested.wait(TEST_TIMEOUT_S)), client=blocked)
        self.assertEqual((results, blocked.written), ([True], {}))
        self.assertIn("not written to the job's store", logs.output[-1])

    def test_delayed_reports_are_written_in_order(self):
        os.environ.update(YDL_ROLE="worker", YDL_INDEX="1", YDL_CLUSTER='{"round": 1, "roles": []}')
        blocked = BlockedJob()

        def work():
            blocked.requested.wait(TEST_TIMEOUT_S)
            blocked.gate.set()

        with mock.patch.object(lifecycle, "FLUSH_SECONDS", TEST_TIMEOUT_S):
            run_task(work, client=blocked)
        keys = [key for key in blocked.written if key.startswith("worker:1/")]
        self.assertEqual((keys[0], keys[-1]), ("worker:1/container_start_time", "worker:1/stop"))
        self.assertEqual(list(blocked.written)[-1], "ended/worker:1")

    def test_a_finished_task_exits_on_sigterm(self):
        program = (
            "import sys, threading\nfrom ydl.compat.tf_yarn import lifecycle\n"
            "class BlockedStore:\n"
            "    def __setitem__(self, key, value):\n"
            "        threading.Event().wait()\n"
            "class Job:\n    kv = BlockedStore()\n"
            "flush = lifecycle.Outbox.flush\n"
            "def report_flush(self, seconds):\n    print('flushing', flush=True)\n    return flush(self, seconds)\n"
            "lifecycle.Outbox.flush, lifecycle.FLUSH_SECONDS = report_flush, 100000.0\n"
            "lifecycle.run_task(lambda: None, client=Job())\n"
        )
        root = os.path.dirname(os.path.dirname(os.path.abspath(ydl.__file__)))
        env = {**os.environ, "PYTHONPATH": root, "YDL_ROLE": "worker", "YDL_CLUSTER": '{"round": 1, "roles": []}'}
        child = subprocess.Popen([sys.executable, "-B", "-c", program], env=env, stdout=subprocess.PIPE)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.kill)
        self.assertEqual(child.stdout.readline(), b"flushing\n")
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(TEST_TIMEOUT_S), lifecycle.TERMINATED)

    def test_signal_handlers_are_restored_after_a_task(self):
        os.environ.update(YDL_ROLE="worker", YDL_INDEX="1", YDL_CLUSTER='{"round": 1, "roles": []}')
        handler = signal.getsignal(signal.SIGTERM)
        run_task(lambda: None, client=Job())
        self.assertEqual(signal.getsignal(signal.SIGTERM), handler)

    def test_libhdfs_finds_the_classes_of_its_node(self):
        with tempfile.TemporaryDirectory() as home:
            os.mkdir(os.path.join(home, "bin"))
            for name in ("a.jar", "b.jar", "other.txt"):
                open(os.path.join(home, name), "w").close()
            program = os.path.join(home, "bin", "hadoop")

            def write_hadoop(script):
                with open(program, "w") as file:
                    file.write("#!/bin/sh\n" + script)
                os.chmod(program, 0o755)

            env = {"PATH": "/usr/bin:/bin", "HADOOP_HOME": home, "HADOOP_CONF_DIR": "/conf"}
            write_hadoop("echo a warning; echo \"$HADOOP_CONF_DIR:$HADOOP_HOME/*::$1\"\n")
            expected = ":".join(["/conf", os.path.join(home, "a.jar"), os.path.join(home, "b.jar"), "classpath"])
            self.assertEqual(hadoop.hadoop_class_path(env), {"CLASSPATH": expected})
            with mock.patch.object(hadoop, "MAX_CHARACTERS", 10):
                self.assertEqual(hadoop.hadoop_class_path(env), {"CLASSPATH": "/conf:{}/*::classpath".format(home)})
            # A given class path is kept, and a missing `hadoop` command is no error.
            self.assertEqual(hadoop.hadoop_class_path({**env, "CLASSPATH": "own.jar"}), {})
            self.assertEqual(hadoop.hadoop_class_path({"PATH": "/missing"}), {})
            for script in ("exit 3\n", "exec sleep 1000\n"):
                write_hadoop(script)
                with mock.patch.object(hadoop, "TIMEOUT_SECONDS", 0.2), self.assertLogs(hadoop.logger, "WARNING"):
                    self.assertEqual(hadoop.hadoop_class_path(env), {})

    def test_task_modules_of_users_find_the_experiment_under_its_key(self):
        previous = os.getcwd()
        store = JobStore(experiment_fn=b"untrusted")
        with tempfile.TemporaryDirectory() as directory:
            os.chdir(directory)
            self.addCleanup(os.chdir, previous)
            os.mkdir(FOLDER)
            with open(EXPERIMENT, "wb") as file:
                file.write(b"trusted")
            for n_try in (0, 1):
                kv = Application(store, "job", n_try).kv
                self.assertEqual((kv.wait(KV_EXPERIMENT_FN), kv[KV_EXPERIMENT_FN]), (b"trusted", b"trusted"))
            os.chdir(previous)

    def test_a_try_reads_no_keys_of_an_earlier_try(self):
        store = JobStore()
        first, second = Application(store, "job", 0), Application(store, "job", 1)
        self.assertEqual(choose_master(first, 0), choose_master(first, 1))
        event.init_event(first, "chief:0", "old:1")
        for call in (lambda: choose_master(second, 1), lambda: cluster.aggregate_spec(second, ["chief:0"])):
            with self.assertRaises(KeyError):
                call()
        event.init_event(second, "chief:0", "new:1")
        self.assertEqual(cluster.aggregate_spec(second, ["chief:0"]), {"chief": ["new:1"]})
        self.assertEqual(store["chief:0/init"], b"old:1")
        self.assertEqual((list(second.kv), len(second.kv)), (["chief:0/init"], 1))
        self.assertEqual(second.kv.clear_prefix("chief:0/"), 1)
        self.assertIn("chief:0/init", store)

    def test_the_store_of_the_current_job_is_that_of_its_round(self):
        os.environ.update(YDL_JOB="job", YDL_ROLE="worker", YDL_ROUND="3")
        with mock.patch.object(ydl, "kv", JobStore()):
            Application.from_current().kv["a"] = b"b"
            self.assertEqual(dict(ydl.kv), {"try-2/a": b"b"})

    def test_the_end_of_a_user_module_is_reported(self):
        os.environ.update(YDL_JOB="job", YDL_ROLE="worker", YDL_INDEX="1")
        store = JobStore()
        current = mock.patch.object(Application, "from_current", side_effect=lambda *_: Application(store, "job"))
        runs = mock.patch.object(start.runpy, "run_module", side_effect=[None, SystemExit(3)])
        reported = mock.patch.object(lifecycle.TaskLifecycle, "end_reported", False)
        argv = mock.patch.object(sys, "argv", [])
        with current, runs, reported, argv, mock.patch("ydl.compat.alias.alias"):
            start.main(["my.module"])
            self.assertEqual(store, {"ended/worker:1": b""})
            store.clear()
            with self.assertRaises(SystemExit):
                start.main(["my.module"])
            self.assertEqual(store, {"ended/worker:1": b""})

    def test_an_unreachable_store_does_not_block_the_start_of_a_task(self):
        os.environ.update(YDL_JOB="job", YDL_ROLE="worker", YDL_INDEX="1", YDL_ATTEMPT="2")
        timeouts = []

        def unreachable(retry_timeout):
            timeouts.append(retry_timeout)
            raise ydl.Unreachable("connection refused")

        with mock.patch.object(Application, "from_current", side_effect=unreachable), self.assertLogs(start.logger, "WARNING"):
            start._delete_earlier_reports()
            with mock.patch.object(lifecycle.TaskLifecycle, "end_reported", False):
                start._report_end()
        self.assertEqual(timeouts, [start.RETRY_SECONDS] * 2)

    def test_the_address_of_a_task_is_the_one_in_the_cluster(self):
        endpoints = [{"host": "10.0.0.{}".format(number), "ports": {}} for number in range(2)]
        roles = {"round": 1, "roles": [{"role": "worker", "instances": 2, "endpoints": endpoints}]}
        os.environ.update(YDL_JOB="job", YDL_ROLE="worker", YDL_INDEX="1", YDL_CLUSTER=json.dumps(roles))
        self.assertEqual(own_address(), "10.0.0.1")
        os.environ["YDL_ROLE"] = "unknown"
        self.assertNotEqual(own_address(), "10.0.0.1")

    def test_bytes_are_broadcast_as_they_are(self):
        job = Job()
        event.broadcast(job, "a", b"\xff")
        event.broadcast(job, "b", "text")
        self.assertEqual(job.kv, {"a": b"\xff", "b": b"text"})


if __name__ == "__main__":
    unittest.main()
