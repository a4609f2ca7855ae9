"""Logging to MLflow in tf-yarn's interface."""

import importlib
import importlib.machinery
import logging
import os
import sys
import threading
import types
import unittest
from unittest import mock

from ydl.compat.tf_yarn import mlflow

from .harness import TEST_TIMEOUT_S


class Mlflow(unittest.TestCase):
    def setUp(self):
        patch = mock.patch.dict(os.environ, MLFLOW_TRACKING_URI="http://127.0.0.1:1")
        patch.start()
        self.addCleanup(patch.stop)
        self.fake = types.ModuleType("mlflow")
        self.fake.__spec__ = importlib.machinery.ModuleSpec("mlflow", None)
        modules = mock.patch.dict(sys.modules, mlflow=self.fake)
        modules.start()
        self.addCleanup(modules.stop)
        self.addCleanup(setattr, mlflow, "_disabled", False)

    def test_mlflow_is_disabled_without_a_server(self):
        self.assertTrue(mlflow.use_mlflow())
        with mock.patch.dict(os.environ, TF_YARN_USE_MLFLOW="False"):
            self.assertFalse(mlflow.use_mlflow())
        del os.environ["MLFLOW_TRACKING_URI"]
        self.assertFalse(mlflow.use_mlflow())
        mlflow.log_metric("a", 1.0)

    def test_the_program_may_set_the_server(self):
        del os.environ["MLFLOW_TRACKING_URI"]
        self.fake.tracking = types.SimpleNamespace(is_tracking_uri_set=lambda: True)
        self.assertTrue(mlflow.use_mlflow())
        self.fake.tracking.is_tracking_uri_set = lambda: False
        self.assertFalse(mlflow.use_mlflow())
        self.fake.tracking.is_tracking_uri_set = None
        self.assertFalse(mlflow.use_mlflow())

    def test_an_unreachable_server_is_tried_once(self):
        calls = []

        def unreachable(*args, **kwargs):
            calls.append(args)
            raise ConnectionError("Connection refused")

        self.fake.log_metric = self.fake.set_tag = self.fake.active_run = unreachable
        with self.assertLogs(mlflow.logger, logging.WARNING):
            mlflow.log_metric("a", 1.0, step=3)
        mlflow.set_tag("a", "b")
        self.assertEqual(mlflow.active_run_id(), "")
        self.assertEqual(mlflow.variables(), {})
        self.assertEqual(len(calls), 1)

    def test_a_rejected_call_is_logged_and_the_next_is_made(self):
        calls = []

        def reject(key, value, step):
            calls.append((key, step))
            raise ValueError("invalid value")

        self.fake.log_metric = reject
        with self.assertLogs(mlflow.logger, logging.WARNING):
            mlflow.log_metric("evaluator:0/a", 1.0, step=3)
            mlflow.log_metric("b", 1.0)
        self.assertEqual(calls, [("evaluator_0_a", 3), ("b", None)])

    def test_an_optional_function_of_the_program_returns_its_default(self):
        @mlflow.optional_mlflow(return_default="none")
        def name_of(run):
            return self.fake.names[run]

        self.fake.names = {"a": "first"}
        self.assertEqual((name_of("a"), name_of.__name__), ("first", "name_of"))
        with self.assertLogs(mlflow.logger, logging.WARNING):
            self.assertEqual(name_of("b"), "none")

    def test_a_slow_server_does_not_delay_the_training(self):
        called, gate, steps = threading.Event(), threading.Event(), []
        self.addCleanup(gate.set)

        def slow(key, value, step):
            called.set()
            gate.wait()
            steps.append(step)

        self.fake.log_metric = slow
        background = mlflow.Background(limit=2)
        background.log_metric("a", 1.0, 0)
        self.assertTrue(called.wait(TEST_TIMEOUT_S))
        with self.assertLogs(mlflow.logger, logging.WARNING) as logs:
            for step in range(1, 10):
                background.log_metric("a", 1.0, step)
        self.assertEqual(len(logs.output), 7)
        # `flush` waits until the full queue is empty.
        threading.Timer(0.1, gate.set).start()
        background.flush(TEST_TIMEOUT_S)
        self.assertEqual(steps, [0, 1, 2])

    def test_a_hanging_call_does_not_block_others(self):
        called, gate, tags = threading.Event(), threading.Event(), []
        self.addCleanup(gate.set)
        self.fake.log_metric = lambda *_: (called.set(), gate.wait())
        self.fake.set_tag = lambda *tag: tags.append(tag)
        hanging = threading.Thread(target=mlflow.log_metric, args=("a", 1.0), daemon=True)
        hanging.start()
        self.assertTrue(called.wait(TEST_TIMEOUT_S))
        mlflow.set_tag("a", "b")
        self.assertEqual(tags, [("a", "b")])
        gate.set()
        hanging.join(TEST_TIMEOUT_S)

    def test_timeouts_of_the_programs_own_calls_are_unchanged(self):
        name = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
        os.environ.pop(name, None)
        values = []
        self.fake.set_tag = lambda *_: values.append(os.environ.get(name))
        mlflow.set_tag("a", "b")
        self.assertEqual((values, os.environ.get(name)), (["1"], None))
        os.environ[name] = "7"
        mlflow.set_tag("a", "b")
        self.assertEqual((values[1:], os.environ[name]), (["7"], "7"))

    def test_a_run_has_the_final_status_of_its_job(self):
        statuses = []
        self.fake.active_run = mock.Mock(side_effect=[None, "run"] * 4)
        self.fake.end_run = statuses.append
        with mlflow.managed_run():
            pass
        with mlflow.managed_run() as tracked:
            tracked.status = "KILLED"
        for failure in (ValueError, KeyboardInterrupt):
            with self.assertRaises(failure), mlflow.managed_run():
                raise failure
        self.assertEqual(statuses, ["FINISHED", "KILLED", "FAILED", "KILLED"])

    def test_passwords_are_not_shipped_in_variables(self):
        run = types.SimpleNamespace(info=types.SimpleNamespace(run_id="r1"))
        self.fake.active_run, self.fake.get_tracking_uri = lambda: run, lambda: "http://me:pw@127.0.0.1:1/x"
        variables = {"MLFLOW_TRACKING_PASSWORD": "x", "MLFLOW_TRACKING_TOKEN": "y", "MLFLOW_S3_ENDPOINT_URL": "https://a:b@s3"}
        with mock.patch.dict(os.environ, variables), self.assertLogs(mlflow.logger, logging.WARNING) as logs:
            shipped = mlflow.variables()
        self.assertIn("tasks get no password", logs.output[0])
        self.assertEqual(shipped["MLFLOW_TRACKING_URI"], "http://127.0.0.1:1/x")
        self.assertEqual(shipped["MLFLOW_S3_ENDPOINT_URL"], "https://s3")
        self.assertEqual(shipped["MLFLOW_RUN_ID"], "r1")
        self.assertFalse({"MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"} & set(shipped))


if __name__ == "__main__":
    unittest.main()
