"""Functions as jobs."""

import functools
import os
import pickle
import shutil
import sys
import tempfile
import threading
import types
import unittest
from pathlib import Path
from unittest import mock

import ydl
from ydl import function_results, functions, program, run_function

from . import user_module
from .harness import TEST_TIMEOUT_S, LocalJobTestCase

try:
    import cloudpickle
except ImportError:
    cloudpickle = None


class Functions(LocalJobTestCase):
    def test_a_function_of_a_module_is_called_in_every_task_without_cloudpickle(self) -> None:
        job = ydl.Job.from_function(user_module.by_index, (40,), roles={"worker": 2, "chief": 1})
        results = self.submit(job).results()
        self.assertEqual(results, {"chief:0": 40, "worker:0": 40, "worker:1": 41})

    def test_roles_may_have_their_own_functions_or_commands(self) -> None:
        roles = {
            "worker": ydl.Role(function=user_module.double, args=[4]),
            "chief": ydl.Role(function=user_module.double, kwargs={"number": 5}),
            "plain": ydl.Role("true"),
        }
        run = self.submit(ydl.Job.from_function(None, roles=roles))
        self.assertEqual(run.results(), {"chief:0": 10, "worker:0": 8})
        self.assertEqual(run.result(), 8)

    def test_invalid_arguments_of_a_function_are_rejected_at_creation(self) -> None:
        double = user_module.double
        role = lambda *args, **kwargs: ydl.Job.from_function(None, roles={"chief": ydl.Role(*args, **kwargs)})  # noqa: E731
        for make, message in (
            (lambda: ydl.Job.from_function(double, 10), "`args` is `10`, expected a sequence of arguments\n\nhint: write `(10,)`"),
            (lambda: ydl.Job.from_function(double, "ab"), "write `('ab',)`"),
            (lambda: ydl.Job.from_function(double, {"number": 1}), "pass named arguments as `kwargs`"),
            (lambda: ydl.Job.from_function(double, (), [1]), "`kwargs` is `[1]`, expected a mapping"),
            (lambda: ydl.Job.from_function(double, (), {1: 2}), "the keys of `kwargs` must be strings"),
            (lambda: ydl.Job.from_function(double, (1, "x" * 99)), "cannot call `double(1, 'xxx"),
            (lambda: ydl.Job.from_function(double), "cannot call `double()`: missing a required argument: 'number'"),
            (lambda: ydl.Job.from_function(double, kwargs={"nummer": 1}), "cannot call `double(nummer=1)`"),
            (lambda: ydl.Job.from_function(double(1)), "cannot call `2`, a `int`"),
            (lambda: role(function=double, args=7), "write `(7,)`"),
            (lambda: role(function=double, args=(7, 8)), "role `chief` cannot call `double(7, 8)`: too many positional"),
        ):
            with self.subTest(message), self.assertRaises(ydl.Error) as raised:
                make()
            self.assertIn(message, str(raised.exception))

    def test_valid_or_unknown_signatures_are_accepted(self) -> None:
        # The signature of a wrapper may differ from the wrapped function's, and C functions may have none.
        wrapped = functools.wraps(user_module.double)(lambda: user_module.double(1))
        for fn, args in (
            (user_module.double, [4]), (user_module.double, iter((4,))), (functools.partial(user_module.double, 4), ()),
            (user_module.Rejected, ("a", "b")), (wrapped, ()), (max, (1, 2)), (print, (1, 2, 3)),
        ):  # fmt: skip
            with self.subTest(fn):
                functions.check_call("worker", fn, tuple(args), {})

    @unittest.skipIf(cloudpickle is None, "cloudpickle is not installed")
    def test_a_closure_over_a_user_module_is_called_and_its_exception_reaches_the_caller(self) -> None:
        failing_index = 1

        def train(reason):
            if ydl.task().index == failing_index:
                user_module.reject(reason)
            return user_module.double(21)

        run = self.submit(ydl.Job.from_function(train, ("no more data",), instances=2, name="closure"))
        with self.assertRaises(ydl.JobFailed) as raised:
            run.results()
        failure = raised.exception
        self.assertEqual(failure.task, "worker:1")
        self.assertIn("in train", failure.traceback)
        self.assertIn("user_module.reject(reason)", failure.traceback)
        self.assertIn("Rejected: no more data", str(failure))
        self.assertIsInstance(failure.exception, user_module.Rejected)
        self.assertIs(failure.__cause__, failure.exception)

    @unittest.skipIf(cloudpickle is None, "cloudpickle is not installed")
    def test_a_result_that_cannot_be_pickled_does_not_fail_the_job(self) -> None:
        run = self.submit(ydl.Job.from_function(lambda: threading.Lock(), name="lock"))
        self.assertTrue(run.wait(TEST_TIMEOUT_S).succeeded)
        with self.assertRaises(ydl.Error) as raised:
            run.results()
        self.assertIn("cannot be pickled", raised.exception.message)

    def test_a_function_that_cannot_be_pickled_is_rejected_before_submission(self) -> None:
        if cloudpickle is None:
            with self.assertRaises(ydl.Error) as raised:
                ydl.Job.from_function(lambda: 1)
            self.assertIn("cannot be shipped without `cloudpickle`", raised.exception.message)
        with self.assertRaises(ydl.Error) as raised:
            ydl.Job.from_function(user_module.double, (threading.Lock(),))
        self.assertIn("cannot be pickled", raised.exception.message)
        with self.assertRaises(ydl.Error):
            ydl.Job.from_function(None, roles={"worker": 1})
        self.assertFalse(os.path.exists(os.path.join(self.directory, "ydl")))


class Calls(unittest.TestCase):
    """Results of function calls, without a job."""

    def setUp(self) -> None:
        directory = tempfile.mkdtemp(prefix="ydl-call-")
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(directory)
        patch = mock.patch.dict(os.environ, YDL_ROLE="worker")
        patch.start()
        self.addCleanup(patch.stop)

    def run_call(self, *call):
        os.makedirs("folder/functions")
        with open("folder/functions/worker.pickle", "wb") as file:
            pickle.dump((*call, {}), file)
        with open("folder/functions/metadata.json", "w") as file:
            file.write(functions.pickle_info())
        try:
            self.assertEqual(run_function.main("folder"), 0)
        except SystemExit:
            pass
        os.makedirs("results/worker-0")
        for name in os.listdir(function_results.TASK_DIR):
            os.rename(os.path.join(function_results.TASK_DIR, name), os.path.join("results/worker-0", name))
        return function_results.read(Path("results"))

    def test_a_function_that_exits_successfully_returns_none(self) -> None:
        self.assertEqual(function_results.values(self.run_call(sys.exit, (0,))), {"worker:0": None})

    def test_a_result_above_the_limit_is_lost_with_a_reason(self) -> None:
        with mock.patch.object(function_results, "MAX_BYTES", 1000):
            found = self.run_call(bytes, (2000,))
        with self.assertRaises(ydl.Error) as raised:
            function_results.values(found)
        self.assertIn("write it to `outputs`", raised.exception.message)

    def test_a_result_file_above_the_limit_is_not_read(self) -> None:
        found = self.run_call(bytes, (2000,))
        with mock.patch.object(function_results, "MAX_BYTES", 1000):
            again = function_results.read(Path("results"))
        self.assertEqual([result.kind for result in (*found, *again)], ["value", "lost"])

    def test_result_files_of_another_user_are_not_read(self) -> None:
        self.run_call(bytes, (3,))
        with mock.patch.object(os, "fstat", return_value=types.SimpleNamespace(st_uid=4711)):
            with self.assertRaises(ydl.Error) as raised:
                function_results.read(Path("results"))
        self.assertIn("belongs to user 4711 and is not read", raised.exception.message)

    def results_of(self, run, user, jobs, outputs):
        """Returns the results of a run on a cluster that lists these jobs, and whose outputs are these values, pickled."""

        def fetch(directory, pattern):
            for name, value in outputs.items():
                file = Path(directory, name)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(b'{"kind": "value", "text": ""}\n' + pickle.dumps(value))

        raw = {"id": "application_1_0001", "state": "succeeded", "application": {"user": user}}
        with mock.patch.object(run, "fetch", fetch), \
                mock.patch.object(program, "call_one", return_value=raw), \
                mock.patch.object(program, "call", return_value=[{"id": id} for id in jobs]):
            return run.results()

    def test_results_of_another_users_job_are_not_read(self) -> None:
        outputs = {"outputs/jobs/application_1_0001/results/worker-0/0.result": 7}
        with self.assertRaises(ydl.Error) as raised:
            self.results_of(ydl.Run("application_1_0001"), "mallory", ["application_1_0002"], outputs)
        self.assertIn("is a job of `mallory`, so its results are not read", raised.exception.message)
        own = self.results_of(ydl.Run("application_1_0001"), "me", ["application_1_0001"], outputs)
        self.assertEqual(own, {"worker:0": 7})
        submitted = ydl.Run("application_1_0001")
        submitted._submitted_here = True
        self.assertEqual(self.results_of(submitted, "me", [], outputs), {"worker:0": 7})

    def test_files_in_other_outputs_are_not_results(self) -> None:
        outputs = {
            "outputs/jobs/application_1_0001/results/worker-0/0.result": 7,
            "outputs/jobs/application_1_0001/results/deeper/worker-1/0.result": 8,
            "outputs/shared/application_1_0001/results/worker-2/0.result": 9,
            "outputs/jobs~2/application_1_0001/results/worker-3/0.result": 10,
            "outputs/jobs/application_1_0002/results/worker-4/0.result": 11,
        }
        found = self.results_of(ydl.Run("application_1_0001"), "me", ["application_1_0001"], outputs)
        self.assertEqual(found, {"worker:0": 7})

    def test_a_task_without_a_result_is_logged(self) -> None:
        run = ydl.Run("job")
        run._roles = ("worker",)
        tasks = [types.SimpleNamespace(task=name) for name in ("worker:0", "worker:1", "plain:0")]
        results = [function_results.FunctionResult("worker:0", 0, "value", "", pickle.dumps(1))]
        with mock.patch.multiple(run, wait=mock.DEFAULT, status=mock.DEFAULT, _read_results=mock.DEFAULT) as mocks:
            mocks["status"].return_value.tasks = tasks
            mocks["_read_results"].return_value = results
            with self.assertLogs("ydl", "WARNING") as logs:
                self.assertEqual(run.results(), {"worker:0": 1})
        self.assertEqual(len(logs.output), 1)
        self.assertIn("worker:1", logs.output[0])


if __name__ == "__main__":
    unittest.main()
