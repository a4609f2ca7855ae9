"""Errors of the binary, which a script replaces."""

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

from .harness import TEST_TIMEOUT_S, until


class Scripts(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.mkdtemp(prefix="ydl-script-")
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        self.path = os.path.join(directory, "ydl")
        patch = mock.patch.dict(os.environ, YDL_BINARY=self.path)
        patch.start()
        self.addCleanup(patch.stop)

    def script(self, text: str) -> None:
        with open(self.path, "w") as file:
            file.write(text)
        os.chmod(self.path, 0o755)

    def patch(self, module, **values) -> None:
        for name, value in values.items():
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def test_a_command_that_hangs_times_out(self) -> None:
        self.script("#!/bin/sh\nexec sleep 1000\n")
        self.patch(program, _TIMEOUT_S=0.2)
        with self.assertRaises(ydl.Unreachable) as raised:
            ydl.Run("job").status()
        self.assertIn("`ydl status` did not end", raised.exception.message)

    def test_wait_times_out_if_the_binary_hangs(self) -> None:
        self.script("#!/bin/sh\nexec sleep 1000\n")
        self.patch(run_module, _SHORT_STATUS_TIMEOUT_S=0.2)
        with self.assertRaises(ydl.WaitTimeout):
            ydl.Run("job").wait(0.1)

    def test_a_stream_can_be_closed_from_another_thread(self) -> None:
        # The second one ignores SIGTERM.
        for text in ("exec sleep 1000", "trap '' TERM; echo {}; while :; do sleep 1; done"):
            self.script(f'#!/bin/sh\necho \'{{"first": 1}}\'\n{text}\n')
            self.patch(program, _EXIT_TIMEOUT_S=0.2)
            stream = program.stream(["kv"])
            first, found = threading.Event(), []

            def read(stream=stream, first=first, found=found) -> None:
                for record in stream:
                    found.append(record)
                    first.set()

            reader = threading.Thread(target=read, daemon=True)
            reader.start()
            self.assertTrue(first.wait(TEST_TIMEOUT_S))
            stream.close()
            reader.join(TEST_TIMEOUT_S)
            self.assertFalse(reader.is_alive())
            self.assertIsNotNone(stream._process.returncode)
            self.assertEqual(found[0], {"first": 1})

    def test_an_error_of_a_stream_is_raised(self) -> None:
        self.script("#!/bin/sh\necho '{}'\necho 'error: gone' >&2\nexit 122\n")
        stream = program.stream(["kv"])
        self.assertEqual(next(stream), {})
        with self.assertRaises(ydl.Unreachable) as raised:
            next(stream)
        self.assertEqual(raised.exception.message, "gone")
        self.assertEqual(list(stream), [])

    def test_a_binary_that_cannot_start_raises_an_error(self) -> None:
        self.script("#!/missing/interpreter\n")
        for call in (lambda: program.call(["ls"]), lambda: next(program.stream(["kv"]))):
            with self.assertRaises(ydl.Error) as raised:
                call()
            self.assertIn("cannot run", raised.exception.message)

    def test_a_permanent_error_is_not_retried(self) -> None:
        # A missing Kerberos ticket is not a connection failure.
        self.script("#!/bin/sh\necho 'error: no Kerberos ticket was found' >&2\necho 'hint: kinit' >&2\nexit 2\n")
        for call in (lambda: ydl.Run("job").wait(TEST_TIMEOUT_S), ydl.runs, ydl.Job("job", {"worker": 1}).submit):
            with self.assertRaises(ydl.Error) as raised:
                call()
            self.assertNotIsInstance(raised.exception, (ydl.Unreachable, ydl.WaitTimeout))
            self.assertEqual((raised.exception.exit_code, raised.exception.hint), (2, "kinit"))

    def test_an_interrupted_command_can_clean_up(self) -> None:
        directory = os.path.dirname(self.path)
        trap = f"trap 'touch {directory}/cleaned; exit 0' TERM"
        self.script(f"#!/bin/sh\n{trap}\ntouch {directory}/started\nwhile :; do sleep 0.1; done\n")

        # Interrupt only after `communicate` is called: before it no handler ends the command.
        waiting, communicate = threading.Event(), program.subprocess.Popen.communicate

        def signalling(process, *arguments):
            waiting.set()
            return communicate(process, *arguments)

        def interrupt() -> None:
            waiting.wait(TEST_TIMEOUT_S)
            until(lambda: os.path.exists(os.path.join(directory, "started")))
            os.kill(os.getpid(), signal.SIGINT)

        self.patch(program, _EXIT_TIMEOUT_S=TEST_TIMEOUT_S)
        self.patch(program.subprocess.Popen, communicate=signalling)
        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        with self.assertRaises(KeyboardInterrupt):
            ydl.Job("job", {"worker": 1}).submit(cluster="local")
        interrupter.join()
        self.assertTrue(os.path.exists(os.path.join(directory, "cleaned")))

    def test_a_job_that_is_not_found_is_lost(self) -> None:
        self.script('#!/bin/sh\necho \'{"id": "job", "state": "lost"}\'\n')
        with self.assertRaises(ydl.JobFailed) as raised:
            ydl.Run("job").wait(TEST_TIMEOUT_S)
        self.assertEqual(raised.exception.outcome.state, "lost")


if __name__ == "__main__":
    unittest.main()
