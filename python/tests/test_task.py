"""What programs of tasks can ask and tell."""

import json
import math
import threading
import types
import unittest
from unittest import mock

import ydl
from ydl.metrics import Reporter

from .harness import TEST_TIMEOUT_S, LocalJobTestCase, until

# These run in tasks, and travel with their module.


def who():
    me = ydl.task()
    peers = me.cluster.hosts("worker", "http")
    return str(me), me.rank, me.world_size, me.attempt, me.round, len(peers), me.ports["http"] > 0, me.checkpoint.is_dir()


def store():
    me = ydl.task()
    with_slash = f"address/{me.index} of two"
    ydl.kv.put(with_slash, b"\xff\x00", owned=True)
    first = ydl.kv.put_if("lock", me.name, absent=True) if me.index == 0 else None
    ydl.kv.wait("lock", 60)
    try:
        ydl.kv.put_if("lock", "mine", absent=True)
        conflict = False
    except ydl.Conflict:
        conflict = True
    other = ydl.kv.wait(f"address/{1 - me.index} of two", 60)
    try:
        ydl.kv.get("nobody has put this")
        missing = False
    except ydl.KeyMissing:
        missing = True
    try:
        ydl.kv.wait("nor this", 0.1)
        late = False
    except ydl.WaitTimeout:
        late = True
    keys = sorted(ydl.kv.list("address/"))
    changes = [change.kind for change in ydl.kv.watch("address/", timeout=0.1)]
    # Nobody leaves, and takes his address with him, before both have looked.
    ydl.event.emit("looked", me.name)
    looked = set()
    for event in ydl.event.follow("looked"):
        looked.add(event.text)
        if len(looked) == 2:
            break
    if me.index == 0:
        ydl.kv.put("number", "1")
        ydl.kv.put_if("number", "2", revision=ydl.kv.entry("number").revision)
        assert ydl.kv.get_text("number") == "2" and ydl.kv.delete("number") and not ydl.kv.delete("number")
        ydl.kv.put("many/1", "")
        assert ydl.kv.delete_prefix("many/") == 1 and ydl.kv.get("many/1", None) is None
    return other, keys, changes, conflict, missing, late, sorted(looked), first is None


def training():
    for step in range(5):
        ydl.report(step=step, loss=1.0 / (step + 1), broken=float("nan"))
    assert ydl.report_flush(60)
    ydl.kv.wait("seen")
    ydl.report(step=9, loss=0.125)


def reached(metrics, tasks, step):
    """All metrics, once so many tasks have come so far: earlier reports may be seen, each on its own."""
    return len(metrics) == tasks and all(of["loss"].step >= step for of in metrics.values()) and metrics


class Tasks(LocalJobTestCase):
    def test_a_task_has_its_identity(self) -> None:
        roles = {"worker": ydl.Role(instances=2, ports=["http"])}
        results = self.submit(ydl.Job.from_function(who, roles=roles, gang=True)).results()
        self.assertEqual(results["worker:0"], ("worker:0", 0, 2, 1, 1, 2, True, True))
        self.assertEqual(results["worker:1"], ("worker:1", 1, 2, 1, 1, 2, True, True))

    def test_tasks_exchange_values_through_the_store(self) -> None:
        results = self.submit(ydl.Job.from_function(store, instances=2)).results()
        keys = ["address/0 of two", "address/1 of two"]
        for index, other in enumerate((False, True)):
            expected = (b"\xff\x00", keys, ["put", "put"], True, True, True, ["worker:0", "worker:1"], other)
            self.assertEqual(results[f"worker:{index}"], expected)

    def test_reported_metrics_are_visible_during_and_after_the_run(self) -> None:
        run = self.submit(ydl.Job.from_function(training, instances=2))
        seen = until(lambda: reached(run.metrics(), tasks=2, step=4))
        for task in ("worker:0", "worker:1"):
            self.assertEqual(seen[task]["loss"].value, 0.2)
            self.assertTrue(math.isnan(seen[task]["broken"].value))
        self.assertIn("loss", run._repr_html_())
        run.kv.put("a key", "yes")
        self.assertEqual(run.kv.get_text("a key"), "yes")
        self.assertEqual(run.kv.list(), {"a key": b"yes"})
        with self.assertRaises(ydl.Conflict):
            run.kv.put_if("a key", "no", absent=True)
        with self.assertRaises(ydl.KeyMissing):
            run.kv.get("another key")
        # The job ends with this, and its store with it.
        run.kv.put("seen", "")
        run.wait(TEST_TIMEOUT_S)
        last = run.metrics()["worker:1"]["loss"]
        self.assertEqual((last.value, last.step), (0.125, 9))

    def test_events_of_tasks_can_be_followed_from_outside(self) -> None:
        script = f"{ydl.binary()} kv emit begun $YDL_INDEX && {ydl.binary()} kv get --wait 10m end"
        run = self.submit(ydl.Job("emits", {"worker": ydl.Role(shell=script, instances=2)}))
        # The store is there as soon as the master is.
        events = run.events("begun", follow=True)
        self.assertEqual({next(events).text, next(events).text}, {"0", "1"})
        events.close()
        self.assertEqual([event.sequence for event in run.events(after=1)], [2])
        run.kv.put("end", "")
        run.wait(TEST_TIMEOUT_S)


class Elsewhere(unittest.TestCase):
    def test_calls_outside_of_tasks_raise_not_in_task(self) -> None:
        if ydl.in_task():
            self.skipTest("these tests run in a task")
        for asked in (ydl.task, lambda: ydl.kv.get("a"), lambda: ydl.event.emit("a")):
            with self.assertRaises(ydl.NotInTask):
                asked()

    def test_a_report_outside_of_tasks_is_only_validated(self) -> None:
        ydl.report(step=1, loss=0.5)
        self.assertTrue(ydl.report_flush(0.0))
        for wrong in ({"loss": "much"}, {"a b": 1.0}, {"n" * 65: 1.0}):
            with self.assertRaises(ydl.Error):
                ydl.report(**wrong)

        for step in (-1, 1 << 64, "a", float("inf")):
            with self.assertRaises(ydl.Error):
                ydl.report(step=step, loss=1.0)
        with self.assertRaises(ydl.Error):
            ydl.report(loss=10**400)


class Reports(unittest.TestCase):
    """What becomes of reports, by how the master answers."""

    def setUp(self) -> None:
        self.reporter = Reporter()

    def answer(self, call) -> None:
        # The reporter's thread outlives the test, and so does the master that it knows.
        patch = mock.patch("ydl.metrics.MasterClient", return_value=types.SimpleNamespace(call=call))
        patch.start()
        self.addCleanup(patch.stop)

    def test_an_unresponsive_master_does_not_delay_reports(self) -> None:
        asked, gate = threading.Event(), threading.Event()
        self.addCleanup(gate.set)

        def call(*_, **__):
            asked.set()
            gate.wait()

        self.answer(call)
        self.reporter.report(0, {"loss": 1.0})
        self.assertTrue(asked.wait(TEST_TIMEOUT_S))
        for step in range(1000):
            self.reporter.report(step, {"loss": 1.0})
        # All of them were taken while the master has not yet answered the first.
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

        self.answer(call)
        with self.assertLogs("ydl", "WARNING") as logs:
            for _ in range(2):
                self.reporter.report(1, {"bad": 1.0, "loss": 1.0})
                self.assertFalse(self.reporter.flush(TEST_TIMEOUT_S))
        self.assertEqual(len(logs.output), 1, logs.output)
        self.assertIn("`bad`", logs.output[0])
        self.reporter.report(2, {"loss": 0.5})
        self.assertTrue(self.reporter.flush(TEST_TIMEOUT_S))
        # It was not said again and again, and what is good went alone.
        self.assertEqual(sent, [["bad", "loss"], ["bad", "loss"], ["loss"]])

    def test_unsent_reports_are_sent_again(self) -> None:
        sent = []

        def call(*_, body, **__):
            sent.append(body)
            if len(sent) == 1:
                raise ydl.Unreachable("nobody is there")

        self.answer(call)
        self.reporter.report(1, {"loss": 1.0})
        self.assertTrue(self.reporter.flush(TEST_TIMEOUT_S))
        self.assertEqual(len(sent), 2)


if __name__ == "__main__":
    unittest.main()
