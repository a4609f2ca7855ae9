"""API of tasks: identity, store, events and metrics."""

import json
import math
import threading
import types
import unittest
from unittest import mock

import ydl
from ydl.metrics import Reporter

from .harness import TEST_TIMEOUT_S, LocalJobTestCase, until

# Functions that run in tasks. They are shipped with this module.


def identity():
    me = ydl.task()
    peers = me.cluster.hosts("worker", "http")
    return str(me), me.rank, me.world_size, me.attempt, me.round, len(peers), me.ports["http"] > 0, me.checkpoint.is_dir()


def exchange():
    me = ydl.task()
    key = f"address/{me.index} of two"
    ydl.kv.put(key, b"\xff\x00", owned=True)
    first = ydl.kv.put_if("lock", me.name, absent=True) if me.index == 0 else None
    ydl.kv.wait("lock", 60)
    try:
        ydl.kv.put_if("lock", "mine", absent=True)
        conflict = False
    except ydl.Conflict:
        conflict = True
    other = ydl.kv.wait(f"address/{1 - me.index} of two", 60)
    try:
        ydl.kv.get("missing key")
        missing = False
    except ydl.KeyMissing:
        missing = True
    try:
        ydl.kv.wait("missing key", 0.1)
        timed_out = False
    except ydl.WaitTimeout:
        timed_out = True
    keys = sorted(ydl.kv.list("address/"))
    changes = [change.kind for change in ydl.kv.watch("address/", timeout=0.1)]
    # The end of a task deletes its own keys, so both wait until both have read them.
    ydl.event.emit("done", me.name)
    done = set()
    for event in ydl.event.follow("done"):
        done.add(event.text)
        if len(done) == 2:
            break
    if me.index == 0:
        ydl.kv.put("number", "1")
        ydl.kv.put_if("number", "2", revision=ydl.kv.entry("number").revision)
        assert ydl.kv.get_text("number") == "2" and ydl.kv.delete("number") and not ydl.kv.delete("number")
        ydl.kv.put("many/1", "")
        assert ydl.kv.delete_prefix("many/") == 1 and ydl.kv.get("many/1", None) is None
    return other, keys, changes, conflict, missing, timed_out, sorted(done), first is None


def training():
    for step in range(5):
        ydl.report(step=step, loss=1.0 / (step + 1), invalid=float("nan"))
    assert ydl.report_flush(60)
    ydl.kv.wait("continue")
    ydl.report(step=9, loss=0.125)


def metrics_at(metrics, tasks, step):
    """Returns the metrics if this number of tasks has reported this step, otherwise False."""
    return len(metrics) == tasks and all(values["loss"].step >= step for values in metrics.values()) and metrics


class Tasks(LocalJobTestCase):
    def test_a_task_has_its_identity(self) -> None:
        roles = {"worker": ydl.Role(instances=2, ports=["http"])}
        results = self.submit(ydl.Job.from_function(identity, roles=roles, gang=True)).results()
        self.assertEqual(results["worker:0"], ("worker:0", 0, 2, 1, 1, 2, True, True))
        self.assertEqual(results["worker:1"], ("worker:1", 1, 2, 1, 1, 2, True, True))

    def test_tasks_exchange_values_through_the_store(self) -> None:
        results = self.submit(ydl.Job.from_function(exchange, instances=2)).results()
        keys = ["address/0 of two", "address/1 of two"]
        for index, other in enumerate((False, True)):
            expected = (b"\xff\x00", keys, ["put", "put"], True, True, True, ["worker:0", "worker:1"], other)
            self.assertEqual(results[f"worker:{index}"], expected)

    def test_reported_metrics_are_visible_during_and_after_the_run(self) -> None:
        run = self.submit(ydl.Job.from_function(training, instances=2))
        metrics = until(lambda: metrics_at(run.metrics(), tasks=2, step=4))
        for task in ("worker:0", "worker:1"):
            self.assertEqual(metrics[task]["loss"].value, 0.2)
            self.assertTrue(math.isnan(metrics[task]["invalid"].value))
        self.assertIn("loss", run._repr_html_())
        run.kv.put("a key", "yes")
        self.assertEqual(run.kv.get_text("a key"), "yes")
        self.assertEqual(run.kv.list(), {"a key": b"yes"})
        with self.assertRaises(ydl.Conflict):
            run.kv.put_if("a key", "no", absent=True)
        with self.assertRaises(ydl.KeyMissing):
            run.kv.get("another key")
        # This key ends the job, and with it the store.
        run.kv.put("continue", "")
        run.wait(TEST_TIMEOUT_S)
        last = run.metrics()["worker:1"]["loss"]
        self.assertEqual((last.value, last.step), (0.125, 9))

    def test_events_of_tasks_can_be_followed_from_outside(self) -> None:
        script = f"{ydl.binary()} kv emit started $YDL_INDEX && {ydl.binary()} kv get --wait 10m end"
        run = self.submit(ydl.Job("emits", {"worker": ydl.Role(shell=script, instances=2)}))
        # The store is available once the master runs.
        events = run.events("started", follow=True)
        self.assertEqual({next(events).text, next(events).text}, {"0", "1"})
        events.close()
        self.assertEqual([event.sequence for event in run.events(after=1)], [2])
        run.kv.put("end", "")
        run.wait(TEST_TIMEOUT_S)


class OutsideOfTasks(unittest.TestCase):
    def test_calls_outside_of_tasks_raise_not_in_task(self) -> None:
        if ydl.in_task():
            self.skipTest("these tests run in a task")
        for call in (ydl.task, lambda: ydl.kv.get("a"), lambda: ydl.event.emit("a")):
            with self.assertRaises(ydl.NotInTask):
                call()

    def test_a_report_outside_of_tasks_is_only_validated(self) -> None:
        ydl.report(step=1, loss=0.5)
        self.assertTrue(ydl.report_flush(0.0))
        for invalid in ({"loss": "much"}, {"a b": 1.0}, {"n" * 65: 1.0}):
            with self.assertRaises(ydl.Error):
                ydl.report(**invalid)

        for step in (-1, 1 << 64, "a", float("inf")):
            with self.assertRaises(ydl.Error):
                ydl.report(step=step, loss=1.0)
        with self.assertRaises(ydl.Error):
            ydl.report(loss=10**400)


class Reports(unittest.TestCase):
    """Handling of reports, by the response of the master."""

    def setUp(self) -> None:
        self.reporter = Reporter()

    def set_response(self, call) -> None:
        # The reporter's thread outlives the test and keeps this client.
        patch = mock.patch("ydl.metrics.MasterClient", return_value=types.SimpleNamespace(call=call))
        patch.start()
        self.addCleanup(patch.stop)

    def test_an_unresponsive_master_does_not_delay_reports(self) -> None:
        requested, gate = threading.Event(), threading.Event()
        self.addCleanup(gate.set)

        def call(*_, **__):
            requested.set()
            gate.wait()

        self.set_response(call)
        self.reporter.report(0, {"loss": 1.0})
        self.assertTrue(requested.wait(TEST_TIMEOUT_S))
        for step in range(1000):
            self.reporter.report(step, {"loss": 1.0})
        # All reports were accepted before the master responded to the first request.
        self.assertFalse(self.reporter.flush(0.0))
        gate.set()
        self.assertTrue(self.reporter.flush(TEST_TIMEOUT_S))

    def test_a_rejected_report_is_logged_once_and_later_reports_are_sent(self) -> None:
        sent = []

        def call(*_, body, **__):
            names = [metric["name"] for metric in json.loads(body)["metrics"]]
            sent.append(names)
            if "bad" in names:
                raise ydl.Conflict("too many metrics, rejected: `bad`")

        self.set_response(call)
        with self.assertLogs("ydl", "WARNING") as logs:
            for _ in range(2):
                self.reporter.report(1, {"bad": 1.0, "loss": 1.0})
                self.assertFalse(self.reporter.flush(TEST_TIMEOUT_S))
        self.assertEqual(len(logs.output), 1, logs.output)
        self.assertIn("`bad`", logs.output[0])
        self.reporter.report(2, {"loss": 0.5})
        self.assertTrue(self.reporter.flush(TEST_TIMEOUT_S))
        # The later request has only the valid metric.
        self.assertEqual(sent, [["bad", "loss"], ["bad", "loss"], ["loss"]])

    def test_unsent_reports_are_sent_again(self) -> None:
        sent = []

        def call(*_, body, **__):
            sent.append(body)
            if len(sent) == 1:
                raise ydl.Unreachable("connection refused")

        self.set_response(call)
        self.reporter.report(1, {"loss": 1.0})
        self.assertTrue(self.reporter.flush(TEST_TIMEOUT_S))
        self.assertEqual(len(sent), 2)


if __name__ == "__main__":
    unittest.main()
