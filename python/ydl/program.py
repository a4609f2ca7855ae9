"""Runs the binary, which everything outside of tasks uses."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, NoReturn, Optional, Sequence, Tuple

from .errors import Error, Unreachable

#: Logger for the notes of the binary.
LOG = logging.getLogger("ydl")

#: Exit code of the binary if the cluster or master cannot be reached.
UNREACHABLE = 122
#: Limit of the binary's stderr in memory.
_MAX_STDERR_BYTES = 1 << 20
#: Timeouts of commands: long for file transfers, and for `kill`, which includes the grace period of programs.
_TIMEOUTS_S = {"submit": 6 * 3600.0, "pack": 6 * 3600.0, "fetch": 24 * 3600.0, "kill": 1800.0, "doctor": 1800.0}
_TIMEOUT_S = 300.0
#: Timeout for the exit of a command after SIGTERM or after the end of its output.
_EXIT_TIMEOUT_S = 10.0


def binary() -> str:
    """Returns the path of the binary: `$YDL_BINARY`, the one of this package, or the first in `PATH`."""
    named = os.environ.get("YDL_BINARY")
    if named:
        if not os.access(named, os.X_OK):
            raise Error(f"`YDL_BINARY` is `{named}`, which cannot be executed")
        return named
    # A wheel's scripts are installed beside the interpreter, or in the directory of the installation scheme.
    folders = [Path(sys.executable or "python").parent, Path(sysconfig.get_path("scripts"))]
    folders.append(Path(sysconfig.get_path("scripts", f"{os.name}_user")))
    for folder in folders:
        candidate = folder / "ydl"
        if _is_binary(candidate):
            return str(candidate)
    found = shutil.which("ydl")
    if found is None:
        raise Error("program `ydl` not found", "install the wheel, put `ydl` into `PATH` or set `YDL_BINARY`")
    return found


def _is_binary(path: Path) -> bool:
    """Returns True for the binary, False for a script of the same name."""
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF" and os.access(path, os.X_OK)
    except OSError:
        return False


def command_line(arguments: Sequence[str], cluster: Optional[str], *flags: str) -> List[str]:
    """Returns the command line of a command with its arguments."""
    line = [binary(), arguments[0], *flags, "--color", "never"]
    if cluster is not None:
        line += ["--cluster", cluster]
    return line + list(arguments[1:])


def environment(env: Optional[Mapping[str, str]]) -> Optional[Dict[str, str]]:
    """Returns the variables of a process: those of this process, and `env`."""
    return None if env is None else {**os.environ, **{str(name): str(value) for name, value in env.items()}}


def call(arguments: Sequence[str], *, cluster: Optional[str] = None, **options: Any) -> List[Dict[str, Any]]:
    """Runs a command to its end and returns the objects that it printed. Raises its errors."""
    printed = _run(command_line(arguments, cluster, "--json"), arguments[0], **options)
    return [parsed for parsed in map(_parse, printed.splitlines()) if parsed is not None]


def text(arguments: Sequence[str], *, cluster: Optional[str] = None, **options: Any) -> str:
    """Runs a command to its end and returns its output without `--json`."""
    return _run(command_line(arguments, cluster), arguments[0], **options).decode("utf-8", "replace")


def _run(
    line: List[str],
    command: str,
    *,
    env: Optional[Mapping[str, str]] = None,
    input: Optional[bytes] = None,
    cwd: Optional[str] = None,
    timeout: Optional[float] = None,
    accepted_codes: Sequence[int] = (0,),
    on_note: Optional[Callable[[str], None]] = None,
) -> bytes:
    """`on_note` is called with each line of stderr as it is written, instead of logging the notes at the end."""
    if timeout is None:
        timeout = _TIMEOUTS_S.get(command, _TIMEOUT_S)
    try:
        process = subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(env),
            cwd=cwd,
        )
    except OSError as error:
        raise Error(f"cannot run `{line[0]}`: {error.strerror}") from None
    with process:
        try:
            printed, errors = (
                process.communicate(input, timeout) if on_note is None else _communicate(process, on_note, timeout)
            )
        except subprocess.TimeoutExpired:
            process.kill()
            raise Unreachable(f"`ydl {command}` did not end within {timeout:.0f} s") from None
        except BaseException:
            # An interrupted submit cleans up after SIGTERM.
            _terminate(process)
            raise
    stderr = errors[-_MAX_STDERR_BYTES:].decode("utf-8", "replace")
    if input is not None:
        stderr = _without_positions(stderr)
    # Some error codes come with output.
    if process.returncode not in accepted_codes or (process.returncode != 0 and not printed):
        raise_error(command, process.returncode, stderr)
    if on_note is None:
        for note in filter(None, stderr.splitlines()):
            LOG.info("%s", note)
    return bytes(printed)


def _communicate(
    process: "subprocess.Popen[bytes]", on_note: Callable[[str], None], timeout: float
) -> Tuple[bytes, bytes]:
    """Reads the output of a process to its end, and passes on each line of its stderr. Returns stdout and the end of stderr."""
    assert process.stdout is not None and process.stderr is not None
    printed: List[bytes] = []
    stdout = process.stdout
    reader = threading.Thread(target=lambda: printed.append(stdout.read()), daemon=True)
    reader.start()
    overdue = threading.Event()

    def end() -> None:
        overdue.set()
        process.kill()

    timer = threading.Timer(timeout, end)
    timer.daemon = True
    timer.start()
    errors, failed = b"", False
    try:
        for line in process.stderr:
            errors = (errors + line)[-_MAX_STDERR_BYTES:]
            note = line.decode("utf-8", "replace").rstrip()
            # Errors are raised.
            failed = failed or note.startswith("error: ")
            if note and not failed:
                on_note(note)
        reader.join()
        process.wait()
    finally:
        timer.cancel()
    if overdue.is_set():
        raise subprocess.TimeoutExpired(process.args, timeout)
    return b"".join(printed), errors


def _terminate(process: "subprocess.Popen[bytes]") -> None:
    """Ends a command by SIGTERM, after a timeout by SIGKILL."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_EXIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def call_one(arguments: Sequence[str], **options: Any) -> Dict[str, Any]:
    """Runs a command and returns the one object that it printed."""
    records = call(arguments, **options)
    if not records:
        raise Error(f"`ydl {arguments[0]}` printed nothing")
    return records[0]


def stream(
    arguments: Sequence[str], *, cluster: Optional[str] = None, env: Optional[Mapping[str, str]] = None
) -> "Stream":
    """Starts a command and yields the objects that it prints. Closing the stream ends the command."""
    return Stream(arguments[0], command_line(arguments, cluster, "--json"), env)


class Stream(Iterator[Dict[str, Any]]):
    """Running command and its output. :meth:`close` ends it, from any thread."""

    def __init__(self, command: str, line: List[str], env: Optional[Mapping[str, str]]) -> None:
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self._command = command
        self._closed = False
        # A file, because a pipe that is not read may block the command.
        self._stderr = tempfile.TemporaryFile()
        try:
            self._process = subprocess.Popen(
                line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._stderr, env=environment(env)
            )
        except OSError as error:
            self._stderr.close()
            raise Error(f"cannot run `{line[0]}`: {error.strerror}") from None

    def __next__(self) -> Dict[str, Any]:
        while not self._closed:
            assert self._process is not None and self._process.stdout is not None
            try:
                line = self._process.stdout.readline()
            except ValueError:
                # Closed by another thread.
                break
            parsed = _parse(line) if line else None
            if parsed is not None:
                return parsed
            if not line:
                self._check_exit()
                break
        raise StopIteration

    def _check_exit(self) -> None:
        """Raises the error of a command that failed, unless it was closed."""
        assert self._process is not None
        try:
            code = self._process.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            code = 0
        if self._closed:
            return
        stderr = ""
        if code != 0:
            self._stderr.seek(max(0, self._stderr.seek(0, os.SEEK_END) - _MAX_STDERR_BYTES))
            stderr = self._stderr.read().decode("utf-8", "replace")
        self.close()
        if code != 0:
            raise_error(self._command, code, stderr)

    def close(self) -> None:
        """Ends the command. A thread that waits for its next object gets StopIteration."""
        process, self._closed = self._process, True
        if process is None or self._stderr.closed:
            return
        _terminate(process)
        assert process.stdout is not None
        process.stdout.close()
        self._stderr.close()

    def __del__(self) -> None:
        self.close()


def _parse(line: bytes) -> Optional[Dict[str, Any]]:
    try:
        parsed = json.loads(line.decode("utf-8", "replace"))
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _without_positions(stderr: str) -> str:
    """Removes line and column of a job file that exists only in memory. Every error names its key, too."""
    return re.sub(r"^((?:[a-z]+: )?)stdin(?::\d+:\d+)?: ", r"\1", stderr, flags=re.MULTILINE)


def parse_errors(stderr: str) -> Tuple[str, Optional[str]]:
    """Returns message and hint in the binary's stderr. Of several errors each has its own hint in the message."""
    errors: List[Tuple[List[str], List[str]]] = []
    for line in stderr.splitlines():
        if line.startswith("error: "):
            errors.append(([line[len("error: ") :]], []))
        elif errors and line.startswith("hint: "):
            errors[-1][1].append(line[len("hint: ") :])
        elif errors and line.strip() and not errors[-1][1]:
            # An error in a job file shows the line.
            errors[-1][0].append(line.rstrip())
    if len(errors) == 1:
        sentences, hints = errors[0]
        return "\n".join(sentences), hints[0] if hints else None
    lines = [line for sentences, hints in errors for line in (*sentences, *(f"  hint: {hint}" for hint in hints))]
    return "\n".join(lines), None


def raise_error(command: str, code: int, stderr: str) -> NoReturn:
    """Raises the error in the binary's stderr."""
    message, hint = parse_errors(stderr)
    message = message or stderr.strip() or f"`ydl {command}` ended with exit code {code}"
    kind = Unreachable if code == UNREACHABLE else Error
    raise kind(message, hint, code)
