"""tf-yarn's tasks without a cluster."""

import functools
import importlib
import json
import logging
import os
import pickle
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
from ydl.compat.tf_yarn import cluster, event, hadoop, lifecycle, start, training_end
from ydl.compat.tf_yarn._internal import MonitoredThread, own_address, reserve_sock_addr, xset_environ
from ydl.compat.tf_yarn._task_commons import (
    LOG_CONF,
    _get_experiment,
    choose_master,
    get_pickled_experiment,
    get_task_key,
    setup_logging,
    use_spawn,
)
from ydl.compat.tf_yarn.application import Application
from ydl.compat.tf_yarn.bundle import EXPERIMENT, EXPERIMENT_FILE, FOLDER
from ydl.compat.tf_yarn.constants import KV_EXPERIMENT_FN
from ydl.compat.tf_yarn.lifecycle import run_task
from ydl.compat.tf_yarn.start import task_environment
from ydl.compat.tf_yarn.tensorflow.cluster import start_cluster, start_tf_server
from ydl.compat.tf_yarn.tensorflow.keras_experiment import KerasExperiment
from ydl.compat.tf_yarn.tensorflow.tasks import evaluator_task, gloo_allred_task
from ydl.compat.tf_yarn.tensorflow.tasks.evaluator_task import pending
from ydl.compat.tf_yarn.tensorflow.tasks.keras_checkpoints import checkpoint_step, keras_checkpoints, load_checkpoint
from ydl.compat.tf_yarn.topologies import ContainerKey, ContainerTask
from ydl.compat.tf_yarn.training_end import TrainingEnd

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
        job.kv[KV_EXPERIMENT_FN] = pickle.dumps(functools.partial(open, "/missing/file"))
        with self.assertRaises(FileNotFoundError):
            _get_experiment(job)
        self.assertEqual(job.kv["worker:1/start"], b"")
        self.assertIn(b"FileNotFoundError", job.kv["worker:1/stop"])
        job.kv[KV_EXPERIMENT_FN] = pickle.dumps(functools.partial(int, "7"))
        self.assertEqual(_get_experiment(job), 7)

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
        self.assertEqual(env[EXPERIMENT_FILE], os.path.join(os.getcwd(), EXPERIMENT))

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
        self.assertEqual([checkpoint_step(name) for name in pending(names, [])], [0, 200, 1000])
        self.assertEqual(pending(names, [0, 1000]), ["m/model.ckpt-200"])
        self.assertEqual(pending(names, [0, 200, 1000]), [])

    def evaluate(self, checkpoints, evaluated=(), stop=None, timeout=None, **spec):
        """Runs an evaluator that finds these lists of checkpoints, one per poll. Returns its evaluations and exports, and its pauses."""
        done = []
        estimator = mock.Mock(model_dir="m")
        estimator.evaluate.side_effect = lambda *_, checkpoint_path, **__: done.append(checkpoint_step(checkpoint_path))
        exporter = mock.Mock()
        exporter.export.side_effect = lambda _, path, checkpoint, __, last: done.append((path, checkpoint_step(checkpoint), last))
        exporter.name = "best"
        values = {"start_delay_secs": 3, "throttle_secs": 600, "exporters": (exporter,), "hooks": (), **spec}
        experiment = mock.Mock(estimator=estimator, eval_spec=mock.Mock(**values))
        experiment.eval_spec.name = None
        experiment.train_spec.max_steps = 300
        polls = [{"m/model.ckpt-{}".format(step) for step in poll} for poll in checkpoints]
        pauses = []
        with mock.patch.object(evaluator_task, "get_initial_evaluated_checkpoints", return_value=set(evaluated)), mock.patch.object(
            evaluator_task, "_get_all_checkpoints", side_effect=polls
        ), mock.patch.object(evaluator_task.time, "sleep", side_effect=pauses.append):
            evaluator_task.evaluate(experiment, stop, timeout)
        return done, pauses

    def test_every_checkpoint_is_evaluated_and_exported_once_until_the_last_step(self):
        done, pauses = self.evaluate([[100], [100, 200], [200, 300]], evaluated=[100])
        path = os.path.join("m", "best")
        self.assertEqual(done, [200, (path, 200, False), 300, (path, 300, True)])
        # It waits before the first poll and between polls.
        self.assertEqual((pauses[0], len(pauses)), (3, 3))
        self.assertTrue(all(500 < seconds <= 600 for seconds in pauses[1:]))

    def test_an_evaluator_of_a_complete_training_ends_at_once(self):
        self.assertEqual(self.evaluate([], evaluated=[100, 300]), ([], []))

    def test_an_evaluator_without_new_checkpoints_ends(self):
        done, pauses = self.evaluate([[100]], evaluated=[100], timeout=-1)
        self.assertEqual((done, pauses), ([], [3]))

    def test_an_evaluator_ends_with_the_training_after_its_last_checkpoint(self):
        # The training is shorter than `max_steps`, and the last checkpoint appears before its end.
        ends = iter([False, True])
        done, _ = self.evaluate([[100], [100, 200]], stop=lambda: next(ends), exporters=())
        self.assertEqual(done, [100, 200])

    def test_the_training_has_ended_when_chief_and_workers_have(self):
        roles = [{"role": name, "instances": number, "processes": 1} for name, number in (("chief", 1), ("worker", 2), ("ps", 1))]
        os.environ["YDL_CLUSTER"] = json.dumps({"round": 1, "roles": [*roles, {"role": "evaluator", "instances": 1}]})

        class EndedKeys(dict):
            def wait(self, key, timeout):
                if key not in self:
                    raise ydl.WaitTimeout("key `{}` was not set".format(key))
                return self[key]

        job = Job()
        job.kv = EndedKeys({"ended/chief:0": b"", "ended/worker:1": b""})
        training = TrainingEnd(job)
        with mock.patch.object(training_end.time, "sleep") as sleep:
            self.assertEqual((training.has_ended(), training.wait(30)), (False, False))
            self.assertEqual(sleep.call_count, 1)
            job.kv["ended/worker:0"] = b""
            self.assertEqual((training.wait(30), training.has_ended()), (True, True))
        # Without such tasks only the idle timeout ends an evaluator.
        self.assertFalse(TrainingEnd(job, []).has_ended())

    def test_a_job_of_an_evaluator_alone_trains_nothing(self):
        for kind, expected in (("evaluator", evaluator_task.evaluator_fn), ("chief", None)):
            os.environ.update(YDL_ROLE=kind, YDL_INDEX="0")
            with mock.patch.object(evaluator_task.tf_task_common, "prepare"), mock.patch.object(evaluator_task, "run_task") as runs:
                evaluator_task.main()
            work = runs.call_args[0][0]
            if expected is not None:
                self.assertIs(work, expected)
            else:
                with self.assertLogs(evaluator_task.logger, "INFO") as logs:
                    work()
                self.assertIn("chief:0: nothing to do", logs.output[0])

    def tensorflow(self, **attributes):
        """Returns a fake TensorFlow with local files."""
        gfile = types.SimpleNamespace(exists=os.path.exists, isdir=os.path.isdir, listdir=os.listdir)
        module = types.ModuleType("tensorflow")
        module.io = types.SimpleNamespace(gfile=gfile)
        module.errors = types.SimpleNamespace(OpError=ArithmeticError)
        for name, value in attributes.items():
            setattr(module, name, value)
        patch = mock.patch.dict(sys.modules, tensorflow=module)
        patch.start()
        self.addCleanup(patch.stop)
        return module

    def test_checkpoints_of_keras_are_weights_and_whole_models(self):
        self.tensorflow()
        with tempfile.TemporaryDirectory() as directory:
            for name in ("model.ckpt-1.index", "model.ckpt-1.data-00000-of-00001", "checkpoint", "m-2.keras", "m-3.h5", "m-4.weights.h5"):
                open(os.path.join(directory, name), "w").close()
            # tf-yarn's example writes whole models. One of them is incomplete.
            for name in ("checkpoint-5", "checkpoint-6", "eval"):
                os.mkdir(os.path.join(directory, name))
            open(os.path.join(directory, "checkpoint-5", "saved_model.pb"), "w").close()
            found = pending(keras_checkpoints(directory), [])
            names = ["model.ckpt-1", "m-2.keras", "m-3.h5", "m-4.weights.h5", "checkpoint-5"]
            self.assertEqual(found, [os.path.join(directory, name) for name in names])
            self.assertEqual(keras_checkpoints(os.path.join(directory, "none")), set())

    def test_a_saved_optimizer_is_not_loaded(self):
        loaded = mock.Mock()
        loaded.get_weights.return_value = [1, 2]
        models = mock.Mock()
        models.load_model.return_value = loaded
        self.tensorflow(keras=types.SimpleNamespace(models=models))
        model = mock.Mock()
        load_checkpoint(model, "m/m-2.keras")
        models.load_model.assert_called_once_with("m/m-2.keras", compile=False)
        model.set_weights.assert_called_once_with([1, 2])
        for weights in ("m/model.ckpt-1", "m/m-4.weights.h5"):
            load_checkpoint(model, weights)
            model.load_weights.assert_called_with(weights)

    def keras_evaluate(self, loads, ends):
        """Runs an evaluator of a Keras model whose loads have these effects. Returns evaluated data and written scalars."""
        data, scalars, number = [], [], iter(range(100))
        writer = mock.MagicMock()
        writer.as_default.side_effect = lambda step: scalars.append(step) or mock.MagicMock()
        summary = mock.Mock(scalar=lambda name, value: scalars.append((name, value)))
        summary.create_file_writer.return_value = writer
        self.tensorflow(summary=summary)
        model = mock.Mock()
        model.evaluate.side_effect = lambda *arguments, **_: data.append(arguments) or {"loss": 0.5}
        experiment = mock.Mock(model=model, model_dir="m", validation_data_fn=lambda: (next(number), "y"))
        ended = iter(ends)
        checkpoints = mock.patch.object(evaluator_task, "keras_checkpoints", return_value={"m/c-1", "m/c-2"})
        with checkpoints, mock.patch.object(evaluator_task, "load_checkpoint", side_effect=loads):
            evaluator_task.keras_evaluate(experiment, lambda: next(ended), None, lambda _: None)
        return data, scalars

    def test_a_keras_model_is_evaluated_with_new_data_for_each_checkpoint(self):
        data, scalars = self.keras_evaluate([None, None], [True])
        self.assertEqual(data, [(0, "y"), (1, "y")])
        self.assertEqual(scalars, [1, ("loss", 0.5), 2, ("loss", 0.5)])

    def test_an_incomplete_checkpoint_is_read_again_until_the_training_has_ended(self):
        with self.assertLogs(evaluator_task.logger, "WARNING"):
            data, _ = self.keras_evaluate([OSError("incomplete"), None, None], [False, True])
        self.assertEqual(len(data), 2)
        with self.assertRaises(OSError):
            self.keras_evaluate([OSError("broken")], [True])
        with self.assertLogs(evaluator_task.logger, "WARNING"), self.assertRaises(OSError):
            self.keras_evaluate([OSError("broken")] * 3, [False] * 3)

    def speed(self, steps, reported):
        """Runs the chief's hook in a training of so many steps. Returns the logged metrics."""

        class StepCounterHook:
            def __init__(self, every_n_steps, every_n_secs, output_dir, summary_writer):
                self.options = (every_n_steps, every_n_secs, output_dir, summary_writer)
                self._global_step_tensor = "global step"

            def after_run(self, context, values):
                if values.results in reported:
                    self._log_and_record(2, 0.5, values.results)

            def end(self, session):
                pass

        self.tensorflow(estimator=types.SimpleNamespace(StepCounterHook=StepCounterHook, SessionRunHook=object))
        os.environ.update(YDL_ROLE="chief", YDL_INDEX="0")
        name = "ydl.compat.tf_yarn.tensorflow.metrics"
        self.addCleanup(sys.modules.pop, name, None)
        sys.modules.pop(name, None)
        metrics = importlib.import_module(name)
        logged = []
        with mock.patch.object(metrics.mlflow.Background, "log_metric", lambda _, *row: logged.append(row)), mock.patch.object(
            ydl, "report"
        ), mock.patch.object(metrics.time, "monotonic", side_effect=[10.0, 14.0]):
            hook = metrics.StepPerSecondHook()
            self.assertEqual(hook.options, (100, None, None, None))
            for step in range(steps):
                hook.after_run(None, mock.Mock(results=step))
            session = mock.Mock()
            session.run.side_effect = {"global step": steps}.get
            hook.end(session)
        return logged

    def test_a_training_shorter_than_the_interval_reports_its_mean_speed(self):
        self.assertEqual(self.speed(20, []), [("steps_per_sec_0", 5.0, 20)])
        self.assertEqual(self.speed(20, [9]), [("steps_per_sec_0", 4.0, 9)])
        self.assertEqual(self.speed(0, []), [])

    def gloo(self, experiment, rank):
        """Trains an experiment in Horovod's task of a rank."""
        hvd = types.ModuleType("horovod.tensorflow")
        hvd.init, hvd.shutdown, hvd.rank, hvd.size = mock.Mock(), mock.Mock(), lambda: rank, lambda: 2
        horovod = types.ModuleType("horovod")
        horovod.tensorflow = hvd
        with mock.patch.dict(sys.modules, {"horovod": horovod, "horovod.tensorflow": hvd}):
            with mock.patch.object(gloo_allred_task.tf_task_common, "experiment", return_value=experiment):
                gloo_allred_task.train()

    def test_only_the_chief_of_keras_with_gloo_writes_checkpoints(self):
        checkpoint = type("ModelCheckpoint", (), {})
        self.tensorflow(keras=types.SimpleNamespace(callbacks=types.SimpleNamespace(ModelCheckpoint=checkpoint)))
        callbacks = [checkpoint(), "broadcast", type("Own", (checkpoint,), {})()]
        for rank, expected in ((0, callbacks), (1, ["broadcast"])):
            model = mock.Mock()
            params = {"callbacks": callbacks, "steps_per_epoch": 100}
            experiment = KerasExperiment(model, "m", params, lambda: "x", None, lambda: self.fail("for the evaluator only"))
            self.gloo(experiment, rank)
            model.fit.assert_called_once_with(callbacks=expected, steps_per_epoch=100, x="x")
            self.assertIs(params["callbacks"], callbacks)
        # Callbacks are optional.
        model = mock.Mock()
        self.gloo(KerasExperiment(model, "m", {"epochs": 1}, lambda: "x", lambda: "y", None), 1)
        model.fit.assert_called_once_with(epochs=1, x="x", y="y")

    def test_only_the_chief_of_an_estimator_with_gloo_writes_into_the_model_directory(self):
        for rank in (0, 1):
            estimator = mock.Mock(_model_dir="m", _config="own")
            estimator.config.replace.return_value = "silent"
            directories = []
            estimator.train.side_effect = lambda *_, **__: directories.append(estimator._model_dir)
            self.gloo(mock.Mock(estimator=estimator), rank)
            silent = dict.fromkeys(("save_summary_steps", "save_checkpoints_steps", "save_checkpoints_secs", "log_step_count_steps"))
            if rank == 0:
                self.assertEqual((directories, estimator._config), (["m"], "own"))
            else:
                self.assertNotEqual(directories, ["m"])
                self.assertFalse(os.path.exists(directories[0]))
                self.assertEqual(estimator._config, "silent")
                estimator.config.replace.assert_called_once_with(**silent)

    def test_the_evaluator_of_gloo_ends_with_the_training(self):
        os.environ.update(YDL_ROLE="evaluator", YDL_INDEX="0")
        with mock.patch.object(gloo_allred_task.tf_task_common, "prepare"), mock.patch.object(
            gloo_allred_task, "run_task", side_effect=lambda work: work()
        ), mock.patch.object(gloo_allred_task, "TrainingEnd", return_value="training"), mock.patch.object(
            gloo_allred_task, "evaluator_fn"
        ) as evaluates:
            gloo_allred_task.main()
        evaluates.assert_called_once_with(training="training")

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

    def test_a_failed_task_prints_its_failure_when_it_is_stopped_while_it_reports(self):
        # Its peers fail because of it, and their reports arrive first.
        program = (
            "import os, sys\nfrom ydl.compat.tf_yarn import lifecycle\n"
            "class Job:\n    kv = {}\n"
            "def flush(self, seconds):\n    print('flushing', flush=True)\n    sys.stdin.read()\n"
            "lifecycle.Outbox.flush = flush\n"
            "def fail():\n    raise OSError('disk full')\n"
            "lifecycle.run_task(fail, client=Job())\n"
        )
        child = self.child(program)
        self.assertEqual(child.stdout.readline(), b"flushing\n")
        child.send_signal(signal.SIGTERM)
        _, stderr = child.communicate(timeout=TEST_TIMEOUT_S)
        self.assertEqual(child.returncode, 1)
        self.assertTrue(stderr.rstrip().endswith(b"OSError: disk full"), stderr)

    def test_a_forked_child_of_a_task_ends_on_sigterm(self):
        program = (
            "import os, signal, time\nfrom ydl.compat.tf_yarn import lifecycle\n"
            "class Job:\n    kv = {}\n"
            "def work():\n"
            "    ready, started = os.pipe()\n"
            "    child = os.fork()\n"
            # A signal just before `signal.pause` would not end it.
            "    if child == 0:\n        os.write(started, b'.')\n        while True: time.sleep(0.01)\n"
            # Python drops signals that arrive while it forks.
            "    os.read(ready, 1)\n"
            "    os.kill(child, signal.SIGTERM)\n"
            "    print(os.WTERMSIG(os.waitpid(child, 0)[1]), flush=True)\n"
            "lifecycle.run_task(work, client=Job())\n"
        )
        child = self.child(program)
        stdout, _ = child.communicate(timeout=TEST_TIMEOUT_S)
        self.assertEqual((stdout, child.returncode), (b"15\n", 0))

    def child(self, program):
        """Starts a program of a task."""
        root = os.path.dirname(os.path.dirname(os.path.abspath(ydl.__file__)))
        env = {**os.environ, "PYTHONPATH": root, "YDL_ROLE": "worker", "YDL_CLUSTER": '{"round": 1, "roles": []}'}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        child = subprocess.Popen([sys.executable, "-B", "-c", program], env=env, **pipes)
        for pipe in (child.stdin, child.stdout, child.stderr):
            self.addCleanup(pipe.close)
        self.addCleanup(child.kill)
        return child

    def test_a_task_of_several_processes_spawns_its_children(self):
        roles = [{"role": "chief", "instances": 1}, {"role": "worker", "instances": 1, "processes": 2}]
        os.environ["YDL_CLUSTER"] = json.dumps({"round": 1, "roles": roles})
        for kind, calls in (("chief", 0), ("worker", 1)):
            os.environ.update(YDL_ROLE=kind, YDL_INDEX="0")
            with mock.patch("multiprocessing.set_start_method") as method:
                use_spawn()
            self.assertEqual(method.call_count, calls)
        method.assert_called_once_with("spawn", force=True)

    def test_a_logging_configuration_of_the_program_is_used(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "log.conf")
            with open(path, "w") as file:
                file.write(
                    "[loggers]\nkeys=root,own\n[handlers]\nkeys=\n[formatters]\nkeys=\n"
                    "[logger_root]\nlevel=WARNING\nhandlers=\n[logger_own]\nlevel=ERROR\nhandlers=\nqualname=tf_yarn_test\n"
                )
            os.environ[LOG_CONF] = path
            root = logging.getLogger()
            handlers, level = list(root.handlers), root.level
            setup_logging()
            self.assertEqual(logging.getLogger("tf_yarn_test").level, logging.ERROR)
            root.handlers[:] = handlers
            root.setLevel(level)

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
            # Without the variable, this is no task.
            self.assertEqual(Application(store, "job", 0).kv[KV_EXPERIMENT_FN], b"untrusted")
            os.environ[EXPERIMENT_FILE] = os.path.abspath(EXPERIMENT)
            # Programs change their directory.
            for place in (directory, previous):
                os.chdir(place)
                self.assertEqual(get_pickled_experiment(), b"trusted")
                for n_try in (0, 1):
                    kv = Application(store, "job", n_try).kv
                    self.assertEqual((kv.wait(KV_EXPERIMENT_FN), kv[KV_EXPERIMENT_FN]), (b"trusted", b"trusted"))
            os.remove(os.environ[EXPERIMENT_FILE])
            kv = Application(store, "job", 0).kv
            for read in (lambda: kv.wait(KV_EXPERIMENT_FN), lambda: kv[KV_EXPERIMENT_FN], get_pickled_experiment):
                with self.assertRaises(FileNotFoundError):
                    read()

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
