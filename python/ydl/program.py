"""The binary: where it is, and how it is asked. Everything outside of tasks goes through it."""

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
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NoReturn, Optional, Sequence, Tuple

from .errors import Error, Unreachable

#: What the binary says beside its answers goes there.
LOG = logging.getLogger("ydl")

UNREACHABLE = 122
#: What is kept of what the binary says on stderr.
_SAID_BYTES_MAX = 1 << 20
#: What a verb may take. Those that carry files have as long as files take, and `kill` the grace of programs that end.
_DEADLINES_S = {"submit": 6 * 3600.0, "pack": 6 * 3600.0, "fetch": 24 * 3600.0, "kill": 1800.0, "doctor": 1800.0}
_DEADLINE_S = 300.0
#: How long a verb that was asked to end, or that has nothing more to say, may take to do so.
_END_MAX_S = 10.0


def binary() -> str:
    """The path of the binary: `$YDL_BINARY`, the one that came with this package, or the first in `PATH`."""
    named = os.environ.get("YDL_BINARY")
    if named:
        if not os.access(named, os.X_OK):
            raise Error(f"`YDL_BINARY` names `{named}`, which cannot be executed")
        return named
    # A wheel's scripts are installed beside the interpreter, or where the scheme of this installation has them.
    places = [Path(sys.executable or "python").parent, Path(sysconfig.get_path("scripts"))]
    places.append(Path(sysconfig.get_path("scripts", f"{os.name}_user")))
    for place in places:
        candidate = place / "ydl"
        if _is_binary(candidate):
            return str(candidate)
    found = shutil.which("ydl")
    if found is None:
        raise Error("the program `ydl` was not found", "install the wheel, put `ydl` into `PATH` or set `YDL_BINARY`")
    return found


def _is_binary(path: Path) -> bool:
    """Whether it is the binary, and not a script of the same name."""
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF" and os.access(path, os.X_OK)
    except OSError:
        return False


def words(verb: Sequence[str], cluster: Optional[str], *manners: str) -> List[str]:
    """The command line of a verb."""
    line = [binary(), verb[0], *manners, "--color", "never"]
    if cluster is not None:
        line += ["--cluster", cluster]
    return line + list(verb[1:])


def surroundings(env: Optional[Mapping[str, str]]) -> Optional[Dict[str, str]]:
    """The variables of a call: ours, and those that are given."""
    return None if env is None else {**os.environ, **{str(name): str(value) for name, value in env.items()}}


def call(verb: Sequence[str], *, cluster: Optional[str] = None, **how: Any) -> List[Dict[str, Any]]:
    """Runs a verb to its end: the objects that it printed. What it complains about is raised."""
    printed = _run(words(verb, cluster, "--json"), verb[0], **how)
    return [parsed for parsed in map(_parse, printed.splitlines()) if parsed is not None]


def text(verb: Sequence[str], *, cluster: Optional[str] = None, **how: Any) -> str:
    """The same for what people read."""
    return _run(words(verb, cluster), verb[0], **how).decode("utf-8", "replace")


def _run(
    line: List[str],
    verb: str,
    *,
    env: Optional[Mapping[str, str]] = None,
    input: Optional[bytes] = None,
    cwd: Optional[str] = None,
    timeout: Optional[float] = None,
    fine: Sequence[int] = (0,),
) -> bytes:
    if timeout is None:
        timeout = _DEADLINES_S.get(verb, _DEADLINE_S)
    try:
        process = subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=surroundings(env),
            cwd=cwd,
        )
    except OSError as error:
        raise Error(f"cannot run `{line[0]}`: {error.strerror}") from None
    with process:
        try:
            printed, complaints = process.communicate(input, timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Unreachable(f"`ydl {verb}` has not ended within {timeout:.0f} s") from None
        except BaseException:
            # A submit that is interrupted takes back what it has begun, if it is let.
            _end(process)
            raise
    said = complaints[-_SAID_BYTES_MAX:].decode("utf-8", "replace")
    if input is not None:
        said = _without_places(said)
    # Some codes come with an answer all the same.
    if process.returncode not in fine or (process.returncode != 0 and not printed):
        fail(verb, process.returncode, said)
    for note in filter(None, said.splitlines()):
        LOG.info("%s", note)
    return bytes(printed)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ends a verb: by a word that it may heed, and soon by one that it must."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_END_MAX_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def one(verb: Sequence[str], **how: Any) -> Dict[str, Any]:
    """The same for verbs that answer with one object."""
    answers = call(verb, **how)
    if not answers:
        raise Error(f"`ydl {verb[0]}` has answered nothing")
    return answers[0]


def stream(
    verb: Sequence[str], *, cluster: Optional[str] = None, env: Optional[Mapping[str, str]] = None
) -> "Stream":
    """The objects that a verb prints, as they come. Whoever leaves the loop ends the verb."""
    return Stream(verb[0], words(verb, cluster, "--json"), env)


class Stream(Iterator[Dict[str, Any]]):
    """A verb that goes on printing. :meth:`close` ends it, from any thread."""

    def __init__(self, verb: str, line: List[str], env: Optional[Mapping[str, str]]) -> None:
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self._verb = verb
        self._closed = False
        # A file, because nobody reads a pipe meanwhile.
        self._said = tempfile.TemporaryFile()
        try:
            self._process = subprocess.Popen(
                line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._said, env=surroundings(env)
            )
        except OSError as error:
            self._said.close()
            raise Error(f"cannot run `{line[0]}`: {error.strerror}") from None

    def __next__(self) -> Dict[str, Any]:
        while not self._closed:
            assert self._process is not None and self._process.stdout is not None
            try:
                line = self._process.stdout.readline()
            except ValueError:
                # It was closed meanwhile.
                break
            parsed = _parse(line) if line else None
            if parsed is not None:
                return parsed
            if not line:
                self._over()
                break
        raise StopIteration

    def _over(self) -> None:
        """What it says at its end is an error, unless we ended it."""
        assert self._process is not None
        try:
            code = self._process.wait(_END_MAX_S)
        except subprocess.TimeoutExpired:
            code = 0
        if self._closed:
            return
        said = ""
        if code != 0:
            self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - _SAID_BYTES_MAX))
            said = self._said.read().decode("utf-8", "replace")
        self.close()
        if code != 0:
            fail(self._verb, code, said)

    def close(self) -> None:
        """Ends it. Whoever waits for its next object finds none."""
        process, self._closed = self._process, True
        if process is None or self._said.closed:
            return
        _end(process)
        assert process.stdout is not None
        process.stdout.close()
        self._said.close()

    def __del__(self) -> None:
        self.close()


def _parse(line: bytes) -> Optional[Dict[str, Any]]:
    try:
        parsed = json.loads(line.decode("utf-8", "replace"))
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _without_places(said: str) -> str:
    """What is said of a job that was made here, without lines and columns of a file that nobody has seen: every complaint
    names its key, too."""
    return re.sub(r"^((?:[a-z]+: )?)stdin(?::\d+:\d+)?: ", r"\1", said, flags=re.MULTILINE)


def told(said: str) -> Tuple[str, Optional[str]]:
    """The sentence and the remedy in what the binary says when it gives up. Of several complaints each has its own remedy
    below it."""
    complaints: List[Tuple[List[str], List[str]]] = []
    for line in said.splitlines():
        if line.startswith("error: "):
            complaints.append(([line[len("error: ") :]], []))
        elif complaints and line.startswith("hint: "):
            complaints[-1][1].append(line[len("hint: ") :])
        elif complaints and line.strip() and not complaints[-1][1]:
            # A complaint about a job file shows the line it is about.
            complaints[-1][0].append(line.rstrip())
    if len(complaints) == 1:
        sentences, hints = complaints[0]
        return "\n".join(sentences), hints[0] if hints else None
    lines = [line for sentences, hints in complaints for line in (*sentences, *(f"  hint: {hint}" for hint in hints))]
    return "\n".join(lines), None


def fail(verb: str, code: int, said: str) -> NoReturn:
    """Raises what the binary said when it gave up."""
    message, hint = told(said)
    message = message or said.strip() or f"`ydl {verb}` ended with code {code}"
    kind = Unreachable if code == UNREACHABLE else Error
    raise kind(message, hint, code)
