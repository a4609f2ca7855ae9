"""The binary when it does not do what it should: a script stands for it."""

import os
import shutil
import signal
import tempfile
import threading
import unittest
from unittest import mock

import ydl
from ydl import program
from ydl import run as run_module

from .place import PATIENCE_S, until


class Scripts(unittest.TestCase):
    def setUp(self) -> None:
        place = tempfile.mkdtemp(prefix="ydl-script-")
        self.addCleanup(shutil.rmtree, place, ignore_errors=True)
        self.path = os.path.join(place, "ydl")
        patch = mock.patch.dict(os.environ, YDL_BINARY=self.path)
        patch.start()
        self.addCleanup(patch.stop)

    def script(self, text: str) -> None:
        with open(self.path, "w") as file:
            file.write(text)
        os.chmod(self.path, 0o755)

    def small(self, module, **values) -> None:
        for name, value in values.items():
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def test_a_verb_that_never_ends_is_given_up(self) -> None:
        self.script("#!/bin/sh\nexec sleep 1000\n")
        self.small(program, _DEADLINE_S=0.2)
        with self.assertRaises(ydl.Unreachable) as raised:
            ydl.Run("job").status()
        self.assertIn("`ydl status` has not ended", raised.exception.message)

    def test_a_wait_has_its_timeout_whatever_the_binary_does(self) -> None:
        self.script("#!/bin/sh\nexec sleep 1000\n")
        self.small(run_module, _LOOK_MIN_S=0.2)
        with self.assertRaises(ydl.WaitTimeout):
            ydl.Run("job").wait(0.1)

    def test_a_stream_is_ended_from_another_thread(self) -> None:
        # One that does not hear the first word, too.
        for text in ("exec sleep 1000", "trap '' TERM; echo {}; while :; do sleep 1; done"):
            self.script(f'#!/bin/sh\necho \'{{"first": 1}}\'\n{text}\n')
            self.small(program, _END_MAX_S=0.2)
            stream = program.stream(["kv"])
            first, found = threading.Event(), []

            def read(stream=stream, first=first, found=found) -> None:
                for told in stream:
                    found.append(told)
                    first.set()

            reader = threading.Thread(target=read, daemon=True)
            reader.start()
            self.assertTrue(first.wait(PATIENCE_S))
            stream.close()
            reader.join(PATIENCE_S)
            self.assertFalse(reader.is_alive())
            self.assertIsNotNone(stream._process.returncode)
            self.assertEqual(found[0], {"first": 1})

    def test_what_a_stream_complains_about_is_raised(self) -> None:
        self.script("#!/bin/sh\necho '{}'\necho 'error: gone' >&2\nexit 122\n")
        stream = program.stream(["kv"])
        self.assertEqual(next(stream), {})
        with self.assertRaises(ydl.Unreachable) as raised:
            next(stream)
        self.assertEqual(raised.exception.message, "gone")
        self.assertEqual(list(stream), [])

    def test_what_cannot_be_run_is_an_error_of_ours(self) -> None:
        self.script("#!/nowhere/interpreter\n")
        for asked in (lambda: program.call(["ls"]), lambda: next(program.stream(["kv"]))):
            with self.assertRaises(ydl.Error) as raised:
                asked()
            self.assertIn("cannot run", raised.exception.message)

    def test_what_does_not_help_itself_is_not_waited_for(self) -> None:
        # Whoever has no ticket needs one: nobody is unreachable.
        self.script("#!/bin/sh\necho 'error: no Kerberos ticket was found' >&2\necho 'hint: kinit' >&2\nexit 2\n")
        for asked in (lambda: ydl.Run("job").wait(PATIENCE_S), ydl.runs, ydl.Job("job", {"worker": 1}).submit):
            with self.assertRaises(ydl.Error) as raised:
                asked()
            self.assertNotIsInstance(raised.exception, (ydl.Unreachable, ydl.WaitTimeout))
            self.assertEqual((raised.exception.code, raised.exception.hint), (2, "kinit"))

    def test_a_verb_that_is_interrupted_may_take_back_what_it_began(self) -> None:
        place = os.path.dirname(self.path)
        trap = f"trap 'echo back > {place}/taken; exit 0' TERM"
        self.script(f"#!/bin/sh\n{trap}\ntouch {place}/begun\nwhile :; do sleep 0.1; done\n")

        # A verb that is only being started has nobody yet who could end it.
        waits, communicate = threading.Event(), program.subprocess.Popen.communicate

        def waited_for(process, *how):
            waits.set()
            return communicate(process, *how)

        def interrupt() -> None:
            waits.wait(PATIENCE_S)
            until(lambda: os.path.exists(os.path.join(place, "begun")))
            os.kill(os.getpid(), signal.SIGINT)

        self.small(program, _END_MAX_S=PATIENCE_S)
        self.small(program.subprocess.Popen, communicate=waited_for)
        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        with self.assertRaises(KeyboardInterrupt):
            ydl.Job("job", {"worker": 1}).submit(cluster="local")
        interrupter.join()
        self.assertTrue(os.path.exists(os.path.join(place, "taken")))

    def test_a_job_that_nobody_finds_is_lost(self) -> None:
        self.script('#!/bin/sh\necho \'{"id": "job", "state": "lost"}\'\n')
        with self.assertRaises(ydl.JobFailed) as raised:
            ydl.Run("job").wait(PATIENCE_S)
        self.assertEqual(raised.exception.outcome.state, "lost")


if __name__ == "__main__":
    unittest.main()
