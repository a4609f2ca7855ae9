"""MLflow, as tf-yarn has it."""

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
        asked = []

        def gone(*args, **kwargs):
            asked.append(args)
            raise ConnectionError("Connection refused")

        self.fake.log_metric = self.fake.set_tag = self.fake.active_run = gone
        with self.assertLogs(mlflow.logger, logging.WARNING):
            mlflow.log_metric("a", 1.0, step=3)
        mlflow.set_tag("a", "b")
        self.assertEqual(mlflow.active_run_id(), "")
        self.assertEqual(mlflow.variables(), {})
        self.assertEqual(len(asked), 1)

    def test_a_rejected_call_is_logged_and_the_next_is_made(self):
        asked = []

        def refuses(key, value, step):
            asked.append((key, step))
            raise ValueError("not so")

        self.fake.log_metric = refuses
        with self.assertLogs(mlflow.logger, logging.WARNING):
            mlflow.log_metric("evaluator:0/a", 1.0, step=3)
            mlflow.log_metric("b", 1.0)
        self.assertEqual(asked, [("evaluator_0_a", 3), ("b", None)])

    def test_a_slow_server_does_not_delay_the_training(self):
        asked, gate, seen = threading.Event(), threading.Event(), []
        self.addCleanup(gate.set)

        def slow(key, value, step):
            asked.set()
            gate.wait()
            seen.append(step)

        self.fake.log_metric = slow
        background = mlflow.Background(limit=2)
        background.log_metric("a", 1.0, 0)
        self.assertTrue(asked.wait(TEST_TIMEOUT_S))
        with self.assertLogs(mlflow.logger, logging.WARNING) as logs:
            for step in range(1, 10):
                background.log_metric("a", 1.0, step)
        self.assertEqual(len(logs.output), 7)
        # The queue is full, and that is when there is something to wait for.
        threading.Timer(0.1, gate.set).start()
        background.flush(TEST_TIMEOUT_S)
        self.assertEqual(seen, [0, 1, 2])

    def test_a_hanging_call_does_not_block_others(self):
        asked, gate, tagged = threading.Event(), threading.Event(), []
        self.addCleanup(gate.set)
        self.fake.log_metric = lambda *_: (asked.set(), gate.wait())
        self.fake.set_tag = lambda *told: tagged.append(told)
        hangs = threading.Thread(target=mlflow.log_metric, args=("a", 1.0), daemon=True)
        hangs.start()
        self.assertTrue(asked.wait(TEST_TIMEOUT_S))
        mlflow.set_tag("a", "b")
        self.assertEqual(tagged, [("a", "b")])
        gate.set()
        hangs.join(TEST_TIMEOUT_S)

    def test_timeouts_of_the_programs_own_calls_are_unchanged(self):
        name = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
        os.environ.pop(name, None)
        seen = []
        self.fake.set_tag = lambda *_: seen.append(os.environ.get(name))
        mlflow.set_tag("a", "b")
        self.assertEqual((seen, os.environ.get(name)), (["1"], None))
        os.environ[name] = "7"
        mlflow.set_tag("a", "b")
        self.assertEqual((seen[1:], os.environ[name]), (["7"], "7"))

    def test_a_run_has_the_final_status_of_its_job(self):
        ends = []
        self.fake.active_run = mock.Mock(side_effect=[None, "run"] * 4)
        self.fake.end_run = ends.append
        with mlflow.ended_run():
            pass
        with mlflow.ended_run() as tracked:
            tracked.status = "KILLED"
        for failure in (ValueError, KeyboardInterrupt):
            with self.assertRaises(failure), mlflow.ended_run():
                raise failure
        self.assertEqual(ends, ["FINISHED", "KILLED", "FAILED", "KILLED"])

    def test_passwords_are_not_shipped_in_variables(self):
        run = types.SimpleNamespace(info=types.SimpleNamespace(run_id="r1"))
        self.fake.active_run, self.fake.get_tracking_uri = lambda: run, lambda: "http://me:pw@127.0.0.1:1/x"
        given = {"MLFLOW_TRACKING_PASSWORD": "x", "MLFLOW_TRACKING_TOKEN": "y", "MLFLOW_S3_ENDPOINT_URL": "https://a:b@s3"}
        with mock.patch.dict(os.environ, given), self.assertLogs(mlflow.logger, logging.WARNING) as logs:
            told = mlflow.variables()
        self.assertIn("tasks get no password", logs.output[0])
        self.assertEqual(told["MLFLOW_TRACKING_URI"], "http://127.0.0.1:1/x")
        self.assertEqual(told["MLFLOW_S3_ENDPOINT_URL"], "https://s3")
        self.assertEqual(told["MLFLOW_RUN_ID"], "r1")
        self.assertFalse({"MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"} & set(told))


if __name__ == "__main__":
    unittest.main()
