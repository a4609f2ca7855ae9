"""Reports that the caller of tf-yarn's jobs receives: events, durations, metrics of evaluators."""

import logging
import threading
import unittest
from datetime import timedelta
from unittest import mock

import ydl
from ydl.compat.tf_yarn import client as client_module
from ydl.compat.tf_yarn import follow
from ydl.compat.tf_yarn import evaluator_metrics
from ydl.compat.tf_yarn.evaluator_metrics import EvaluatorMetricsLogger
from ydl.compat.tf_yarn.follow import Listener
from ydl.compat.tf_yarn.metrics import OneShotMetricsLogger, metrics_from, status_of
from ydl.compat.tf_yarn.topologies import ContainerKey, TaskSpec

from .harness import TEST_TIMEOUT_S
from .test_tf_yarn_tasks import Job


class Durations(unittest.TestCase):
    def reports(self, begin, end, **changes):
        reports = {"container_start_time": begin - 1, "container_stop_time": end + 1, "stop": ""}
        reports.update(train_eval_start_time=begin, train_eval_stop_time=end, **changes)
        return {name: str(value) for name, value in reports.items()}

    def test_training_lasts_from_the_first_start_to_the_last_stop(self):
        events = {"chief:0": self.reports(10, 20), "worker:0": self.reports(12, 26), "evaluator:0": self.reports(11, 40)}
        metrics = metrics_from(events, [*events, "ps:0"], ContainerKey.from_kv_str)
        self.assertEqual(metrics.total_training_duration, timedelta(seconds=16))
        self.assertEqual(metrics.total_eval_duration, timedelta(seconds=29))
        self.assertEqual(metrics.container_duration[ContainerKey("chief", 0)], timedelta(seconds=12))
        self.assertIsNone(metrics.container_duration[ContainerKey("ps", 0)])
        self.assertIn("container_duration_chief_0_3: 12.0 secs", metrics.lines(3))

    def test_a_failed_training_has_no_duration(self):
        events = {"chief:0": self.reports(10, 20), "worker:0": self.reports(12, 26, stop="Traceback")}
        self.assertIsNone(metrics_from(events, events).total_training_duration)
        self.assertIsNone(metrics_from({"chief:0": {"start": ""}}, ["chief:0"]).total_training_duration)

    def test_the_status_of_a_task_follows_its_last_report(self):
        reports = [None, {"start": ""}, {"start": "", "stop": ""}, {"stop": "Traceback"}]
        self.assertEqual([status_of(report) for report in reports], ["REQUESTED", "KILLED", "SUCCEEDED", "FAILED"])


class Listening(unittest.TestCase):
    def listener(self):
        evaluators = EvaluatorMetricsLogger(["evaluator:0"])
        one_shot = OneShotMetricsLogger(None, [("tensorboard:0/url", "listens at")])
        return Listener(None, ["chief:0", "tensorboard:0", "evaluator:0"], evaluators, one_shot)

    def test_the_latest_report_is_kept_and_an_address_is_logged_once(self):
        listener = self.listener()
        with self.assertLogs("ydl.compat.tf_yarn", logging.INFO) as logs:
            for value in (b"http://a:1", b"http://a:1"):
                listener.update("put", "tensorboard:0/url", value)
            listener.update("put", "chief:0/stop", b"Traceback\nArithmeticError: 1\n")
            listener.update("deleted", "chief:0/stop", None)
            listener.update("put", "unknown/key", b"x")
        self.assertEqual(listener.events, {"tensorboard:0": {"url": "http://a:1"}, "chief:0": {}})
        lines = [line.split(":", 2)[2] for line in logs.output]
        self.assertEqual(lines, ["listens at http://a:1", "chief:0 failed: ArithmeticError: 1"])

    def test_lost_last_reports_are_filled_in_from_the_history(self):
        listener = self.listener()
        listener.update("put", "chief:0/train_eval_start_time", b"1.0")
        listener.add_history([{"at": 5000, "kind": {"attempt-ended": {"task": "chief:0", "ending": "succeeded"}}}, {"kind": "other"}])
        self.assertEqual(listener.events["chief:0"]["train_eval_stop_time"], "5.0")
        self.assertEqual(status_of(listener.events["chief:0"]), "SUCCEEDED")

    def ended(self, at, task, ending, attempt=1):
        return {"at": at, "kind": {"attempt-ended": {"task": task, "attempt": attempt, "ending": ending}}}

    def test_an_earlier_success_does_not_hide_a_killed_attempt(self):
        started = {"at": 200_000, "kind": {"attempt-started": {"task": "chief:0", "attempt": 2}}}
        killed = self.ended(300_000, "chief:0", {"signalled": {"signal": 9}}, 2)
        # Clocks of nodes may differ, so the order of events decides.
        for later, start_time in (([started, killed], b"200"), ([started], b"90"), ([killed], b"90"), ([], b"200")):
            listener = self.listener()
            listener.update("put", "chief:0/container_start_time", start_time)
            listener.update("put", "chief:0/train_eval_start_time", start_time)
            listener.add_history([self.ended(100_000, "chief:0", "succeeded"), *later])
            self.assertEqual(status_of(listener.events["chief:0"]), "KILLED", later)
            self.assertIsNone(metrics_from(listener.events, ["chief:0"]).total_training_duration)

    def test_an_end_before_the_start_is_ignored(self):
        reports = {"train_eval_start_time": "200.0", "train_eval_stop_time": "100.0", "stop": ""}
        found = metrics_from({"chief:0": reports}, ["chief:0"])
        self.assertEqual((found.total_training_duration, found.train_eval_time_per_node["chief:0"]), (None, None))

    def test_a_later_try_resets_all_reports(self):
        listener = self.listener()
        with self.assertLogs("ydl.compat.tf_yarn", logging.INFO) as logs, mock.patch.object(follow.logger, "error"):
            listener.update("put", "tensorboard:0/url", b"http://a:1")
            listener.update("put", "tensorboard:0/logs", b"http://logs")
            listener.update("put", "chief:0/stop", b"Traceback")
            listener.update("put", "try-1/chief:0/start", b"")
            listener.update("put", "try-1/tensorboard:0/url", b"http://b:2")
            listener.update("put", "chief:0/late", b"first try")
            # Side tasks may run through several tries.
            listener.update("put", "evaluator:0/nb_eval_steps", b"7")
        expected = {"tensorboard:0": {"url": "http://b:2"}, "chief:0": {"start": ""}, "evaluator:0": {"nb_eval_steps": "7"}}
        self.assertEqual(listener.events, expected)
        self.assertEqual((listener.n_try, listener.evaluators.n_try, listener.one_shot.n_try), (1, 1, 1))
        self.assertTrue(any("listens at http://b:2" in line for line in logs.output))

    def test_an_invalid_report_does_not_stop_the_listener(self):
        listener = self.listener()
        with self.assertLogs(follow.logger, "ERROR") as logs:
            listener.update("put", "chief:0/stop", b" \n")
        self.assertIn("unknown error", logs.output[0])
        changes = [ydl.Change("put", "chief:0/stop", b" \n", 1), ydl.Change("put", "chief:0/start", b"", 2)]
        listener.run = mock.Mock()
        listener.run.kv.watch.side_effect = [iter(changes), ydl.Unreachable("gone")]
        with mock.patch.object(listener, "_ended") as ended, self.assertLogs(follow.logger, "ERROR"):
            ended.wait.side_effect = [False, True]
            listener._listen()
        self.assertEqual(listener.events["chief:0"], {"stop": " \n", "start": ""})
        with mock.patch.object(listener, "update", side_effect=IndexError), self.assertLogs(follow.logger, "ERROR"):
            listener._handle(changes[0])

    def test_a_closed_listener_leaves_no_process(self):
        class Watch:
            def __init__(self):
                self.started, self.closed = threading.Event(), threading.Event()

            def __iter__(self):
                self.started.set()
                self.closed.wait()
                return iter(())

            def close(self):
                self.closed.set()

        listener, watch = self.listener(), Watch()
        self.addCleanup(watch.close)
        listener.run = mock.Mock()
        listener.run.kv.watch.return_value = watch
        with mock.patch.object(follow, "FLUSH_SECONDS", 0.1):
            with listener:
                self.assertTrue(watch.started.wait(TEST_TIMEOUT_S))
        listener._thread.join(TEST_TIMEOUT_S)
        self.assertFalse(listener._thread.is_alive())

    def test_one_shot_metrics_can_be_read_from_the_store(self):
        one_shot = OneShotMetricsLogger(Job(**{"tensorboard:0/url": b"http://a:1"}), [("tensorboard:0/url", "listens at")], 2)
        with self.assertLogs("ydl.compat.tf_yarn.metrics", logging.INFO) as logs:
            one_shot.log()
            one_shot.log()
        self.assertEqual(len(logs.output), 1)


class Following(unittest.TestCase):
    def follow(self, run):
        with mock.patch.object(client_module, "Listener") as listener:
            listener.return_value.__enter__.return_value = listener.return_value
            listener.return_value.events, listener.return_value.n_try = {}, 0
            return client_module._follow(run, {"chief": TaskSpec(512, 1)}, str, None)

    def test_a_successful_job_needs_no_history(self):
        run = mock.Mock(id="job")
        run.history.side_effect = ydl.Unreachable("connection refused")
        with self.assertLogs(client_module.logger, "WARNING"):
            metrics, killed = self.follow(run)
        self.assertEqual((metrics.total_training_duration, killed), (None, False))

    def test_a_killed_job_is_reported_as_killed(self):
        run = mock.Mock(id="job")
        run.history.return_value, run.status.return_value.round = [], 1
        run.wait.side_effect = ydl.JobKilled(run, ydl.Outcome("killed", "killed by a user"))
        self.assertTrue(self.follow(run)[1])

    def test_the_end_of_a_long_log_is_kept(self):
        self.assertEqual(client_module.tail(["abc", "de", "f"], 5), "de\nf\n")
        self.assertEqual(client_module.tail(["abc"], 2), "")


class Evaluators(unittest.TestCase):
    def lines(self, thresholds, *reports):
        logger = EvaluatorMetricsLogger(["evaluator:0"], None, thresholds)
        with self.assertLogs("ydl.compat.tf_yarn.evaluator_metrics", logging.INFO) as logs:
            logging.getLogger("ydl.compat.tf_yarn.evaluator_metrics").info("begin")
            for report in reports:
                for name, value in report.items():
                    logger.update("evaluator:0", name, value)
                logger.log()
        return [record.getMessage() for record in logs.records][1:]

    def test_only_changed_metrics_are_logged(self):
        reports = [{"nb_eval_steps": "10", "awake_time_ratio": "0.5"}, {"nb_eval_steps": "10"}, {"nb_eval_steps": "11"}]
        lines = self.lines(None, *reports)
        first = "Statistics for evaluator:0: Awake/idle ratio: 0.5 Number of evaluation steps done: 10.0"
        self.assertEqual(lines, [first, "Statistics for evaluator:0: Number of evaluation steps done: 11.0"])

    def test_thresholds_are_inclusive_and_optional(self):
        for bounds, logged in (((10, 10), 1), ((None, 9), 0), ((11, None), 0), ((None, None), 1), ((0, 100), 1)):
            self.assertEqual(len(self.lines({"nb_eval_steps": bounds}, {"nb_eval_steps": "10"})), logged, bounds)

    def test_a_threshold_of_an_unknown_metric_is_a_warning(self):
        with self.assertLogs("ydl.compat.tf_yarn.evaluator_metrics", logging.WARNING):
            EvaluatorMetricsLogger([], None, {"speed": (0, 1)})

    def test_evaluator_metrics_can_be_read_from_the_store(self):
        logger = EvaluatorMetricsLogger([ContainerKey("evaluator", 0)], Job(**{"evaluator:0/last_training_step": b"7"}))
        with self.assertLogs("ydl.compat.tf_yarn.evaluator_metrics", logging.INFO) as logs:
            logger.log()
        self.assertIn("Training step of last checkpoint: 7.0", logs.output[0])

    def test_mlflow_gets_the_metrics_outside_of_the_thresholds_too(self):
        with mock.patch.object(evaluator_metrics.mlflow, "log_metric") as log_metric:
            lines = self.lines({"nb_eval_steps": (11, None)}, {"nb_eval_steps": "10"}, {"nb_eval_steps": "none"})
        self.assertEqual(lines, [])
        log_metric.assert_called_once_with("evaluator:0_nb_eval_steps_0", 10.0)


if __name__ == "__main__":
    unittest.main()
