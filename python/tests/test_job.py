"""Jobs and runs, through the binary."""

import inspect
import json
import os
import pickle
import re
import sys
import threading
import types
import unittest
from datetime import timedelta
from pathlib import Path
from unittest import mock

import ydl
from ydl import program

from .harness import TEST_TIMEOUT_S, LocalJobTestCase, until


class Jobs(LocalJobTestCase):
    def test_a_job_is_shown_as_a_job_file(self) -> None:
        job = ydl.Job(
            "digits",
            {"worker": ydl.Role("true", instances=2, memory=512, env={"A": 1}), "server": {"shell": "exit 0"}},
            timeouts={"run": timedelta(minutes=5)},
            restart={"limit": 2},
        )
        shown = job.show(cluster="local")
        for line in ("name: digits", "instances: 2", "memory: 512 MiB", "run: 5m", "limit: 2", 'shell: "exit 0"'):
            self.assertIn(line, shown)
        self.assertEqual(json.loads(job.to_json())["roles"]["server"], {"instances": 1, "shell": "exit 0"})

    def test_every_key_of_a_job_file_is_an_argument(self) -> None:
        page = (Path(__file__).parent.parent.parent / "docs/reference/job-file.md").read_text(encoding="utf-8")
        for title, kind in (("## The job", ydl.Job), ("## A role: ", ydl.Role)):
            table = page.split(f"\n{title}", 1)[1].split("\n## ", 1)[0]
            keys = set(re.findall(r"^\| `([a-z_]+)` ", table, re.MULTILINE))
            self.assertGreater(len(keys), 10)
            self.assertLessEqual(keys, set(inspect.signature(kind.__init__).parameters))

    def test_errors_have_a_message_and_a_hint(self) -> None:
        with self.assertRaises(ydl.Error) as raised:
            ydl.Job("j", {"worker": {"rum": "true"}}).check(cluster="local")
        self.assertIn("unknown key `rum`", raised.exception.message)
        self.assertEqual(raised.exception.hint, "did you mean `run`?")
        self.assertEqual(raised.exception.exit_code, 2)
        # The job file of a job from Python exists only in memory, so messages name keys instead of lines.
        with self.assertRaises(ydl.Error) as raised:
            ydl.Job("j", {"worker": {"run": "true", "memory": "much"}}).check(cluster="local")
        self.assertEqual(raised.exception.message, "`roles.worker.memory`: `much` is not a size")
        with self.assertRaises(ydl.Error) as raised:
            ydl.Job("j", {"worker": {"rum": "true"}}, framwork="pytorch").submit(cluster="local")
        lines = ["unknown key `framwork`", "  hint: did you mean `framework`?"]
        lines += ["unknown key `rum` in role `worker`", "  hint: did you mean `run`?"]
        self.assertEqual(str(raised.exception).splitlines(), lines)
        file = Path(self.directory) / "job.yaml"
        file.write_text("roles: {worker: {rum: true}}\n")
        with self.assertRaises(ydl.Error) as raised:
            ydl.Job.from_file(file).check(cluster="local")
        self.assertIn("job.yaml:1:18: unknown key `rum`", raised.exception.message)
        with self.assertRaises(ydl.Error) as raised:
            ydl.Job("j", {"worker": {"run": object()}}).to_json()
        self.assertIn("unsupported value", raised.exception.message)
        with self.assertRaises(ydl.Error) as raised:
            ydl.Run("unknown-job", cluster="local").status()
        self.assertIn("there is no job", str(raised.exception))

    def test_a_job_can_be_created_from_a_job_file(self) -> None:
        file = Path(self.directory) / "job.yaml"
        file.write_text("name: from-file\nroles: {worker: {run: [sh, -c, 'cat data']}}\nfiles: [data]\n")
        (Path(self.directory) / "data").write_text("content\n")
        run = self.submit(ydl.Job.from_file(file, set=["roles.worker.instances=2"]))
        self.assertTrue(run.wait(TEST_TIMEOUT_S).succeeded)
        self.assertEqual([(line.task, line.text) for line in run.logs()], [("worker:0", "content"), ("worker:1", "content")])

    def test_paths_of_files_and_outputs_are_relative_to_the_base(self) -> None:
        base = Path(self.directory) / "base"
        base.mkdir()
        (base / "in.txt").write_text("7")
        job = ydl.Job(
            "copy",
            {"worker": ydl.Role(["sh", "-c", "cp renamed out.txt"])},
            files={"renamed": Path("in.txt")},
            outputs={"out.txt": "results/out.txt"},
            base=base,
        )
        run = self.submit(job)
        run.wait(TEST_TIMEOUT_S)
        self.assertEqual((base / "results/out.txt").read_text(), "7")
        fetched = run.fetch(Path(self.directory) / "fetched")
        self.assertTrue(list(fetched.rglob("stdout.0")) and list(fetched.rglob("out.txt")))


class Runs(LocalJobTestCase):
    def test_a_failed_job_reports_task_and_log(self) -> None:
        script = 'echo out; if [ "$YDL_INDEX" = 1 ]; then echo "disk full" >&2; exit 7; fi; sleep 600'
        run = self.submit(ydl.Job("fails", {"worker": ydl.Role(shell=script, instances=2)}))
        with self.assertRaises(ydl.JobFailed) as raised:
            run.wait(TEST_TIMEOUT_S)
        failure = raised.exception
        self.assertEqual((failure.task, failure.exit_code, failure.outcome.state), ("worker:1", 7, "failed"))
        self.assertIn("disk full", failure.log)
        self.assertIn("worker:1 exited with code 7", str(failure))
        again = pickle.loads(pickle.dumps(failure))
        self.assertEqual((again.task, again.run.id), ("worker:1", run.id))
        self.assertIn(run.id, [listed.id for listed in ydl.runs(cluster="local")])
        self.assertTrue(any("job-finished" in event["kind"] for event in run.history()))

    def test_jobs_are_listed_as_runs(self) -> None:
        first, second = (self.submit(ydl.Job(name, {"worker": ydl.Role(shell=f"echo {name}")})) for name in ("one", "two"))
        for run in (first, second):
            run.wait(TEST_TIMEOUT_S)
        listed = ydl.runs(cluster="local")
        self.assertEqual([(run.id, run.name) for run in listed], [(second.id, "two"), (first.id, "one")])
        self.assertEqual([line.text for line in listed[0].logs()], ["two"])
        self.assertEqual(repr(listed[1]), f"<Run {first.id}, succeeded>")
        self.assertEqual((listed[1].summary["state"], dict(first.summary)), ("succeeded", {}))
        self.assertEqual((first.name, ydl.Run(second.id, cluster="local").name), ("one", "two"))

    def test_output_is_streamed_until_the_job_is_killed(self) -> None:
        script = "echo out; echo err >&2; sleep 600"
        run = self.submit(ydl.Job("waits", {"worker": ydl.Role(shell=script)}))
        lines = run.logs("worker:0", follow=True)
        self.assertEqual({next(lines).text, next(lines).text}, {"out", "err"})
        # Output can be read before the agent reports that the program runs.
        until(lambda: run.status().state == "running")
        status = run.status()
        self.assertEqual((status.state, status.tasks[0].state, run.done), ("running", "running", False))
        with self.assertRaises(ydl.WaitTimeout):
            run.wait(0.0)
        run.kill(now=True)
        self.assertEqual(list(lines), [])
        with self.assertRaises(ydl.JobKilled):
            run.wait(TEST_TIMEOUT_S)
        self.assertEqual([line.text for line in run.logs(stream="stderr")], ["err"])

    def test_a_role_is_scaled(self) -> None:
        role = ydl.Role(shell="sleep 600", instances={"min": 1, "max": 3, "start": 1})
        run = self.submit(ydl.Job("grows", {"worker": role}, gang=True))
        until(lambda: run.status().state == "running")
        run.scale("worker", 2)
        until(lambda: sum(task.state == "running" for task in run.status().tasks) == 2)
        with self.assertRaises(ydl.Error) as raised:
            run.scale("worker", 9)
        self.assertIn("worker", raised.exception.message)

    def test_a_run_has_a_repr_and_html(self) -> None:
        run = self.submit(ydl.Job("shown", {"worker": ydl.Role("true", instances=2)}))
        self.assertEqual(repr(run), f"<Run {run.id}>")
        run.wait(TEST_TIMEOUT_S)
        page = run._repr_html_()
        self.assertIn("<td>worker:1</td>", page)
        self.assertIn("succeeded", page)
        self.assertEqual(repr(run), f"<Run {run.id}, succeeded>")

    def test_a_notebook_table_is_updated_until_the_job_ends(self) -> None:
        shown = []
        ended = threading.Event()

        class Handle:
            def update(self, page) -> None:
                shown.append(page)
                if "killed" in page:
                    ended.set()

        def display(page, display_id):
            shown.append(page)
            return Handle()

        kernel = types.SimpleNamespace(kernel=object())
        notebook = types.SimpleNamespace(HTML=str, display=display)
        modules = {"IPython": types.SimpleNamespace(get_ipython=lambda: kernel), "IPython.display": notebook}
        run = self.submit(ydl.Job("moves", {"worker": ydl.Role(shell="sleep 600")}))
        until(lambda: run.status().state == "running")
        with mock.patch.dict(sys.modules, modules):
            run._ipython_display_()
        self.assertIn("running", shown[0])
        ydl.Run(run.id, cluster="local").kill(now=True)
        self.assertTrue(ended.wait(TEST_TIMEOUT_S))


class Program(unittest.TestCase):
    def test_the_binary_is_taken_from_ydl_binary(self) -> None:
        self.assertEqual(ydl.binary(), os.environ["YDL_BINARY"])
        previous = os.environ["YDL_BINARY"]
        self.addCleanup(os.environ.__setitem__, "YDL_BINARY", previous)
        os.environ["YDL_BINARY"] = "/missing/ydl"
        with self.assertRaises(ydl.Error) as raised:
            ydl.binary()
        self.assertIn("/missing/ydl", raised.exception.message)

    def test_errors_of_the_binary_are_parsed_into_message_and_hint(self) -> None:
        stderr = "note: something\nerror: cannot read `x`: gone\n  | the line\n\nhint: make it\n"
        self.assertEqual(program.parse_errors(stderr), ("cannot read `x`: gone\n  | the line", "make it"))
        self.assertEqual(program.parse_errors("panic"), ("", None))
        several = "error: one\n\nhint: a\n\nerror: two\n  | its line\n\nerror: three\n\nhint: c\n"
        self.assertEqual(program.parse_errors(several), ("one\n  hint: a\ntwo\n  | its line\nthree\n  hint: c", None))


if __name__ == "__main__":
    unittest.main()
