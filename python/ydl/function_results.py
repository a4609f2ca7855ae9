"""Return values and exceptions of functions, transferred from tasks to the client.

Each process writes a file below `results` in the job's directory: a header line of JSON and a pickle. Reading a pickle runs
code, so only files of the same user are read, and only in the job's own directory.
"""

from __future__ import annotations

import json
import os
import pickle
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from .errors import Error

#: Name in the job's directory.
RESULTS_DIR = "results"
#: Name in the staging directory of a cluster, and in what is fetched from there.
JOBS_DIR = "jobs"
SUFFIX = ".result"
#: Name in the task's directory.
TASK_DIR = "ydl-results"
_MAX_HEADER_BYTES = 4 << 20
#: Limit for one process.
MAX_BYTES = 512 << 20
_NAME = re.compile(r"(?P<role>[^/]+)-(?P<index>\d+)/(?P<process>\d+)" + re.escape(SUFFIX))


@dataclass(frozen=True)
class FunctionResult:
    """Return value or exception of one process."""

    task: str
    process: int
    #: `value`, `error`, or `lost` for a value that could not be pickled.
    kind: str
    #: The traceback, or the reason why the value is lost.
    text: str
    content: bytes

    def value(self) -> Any:
        """Returns the value."""
        if self.kind != "value":
            raise Error(f"the result of {self.task} is not available: {self.text}")
        try:
            return pickle.loads(self.content)
        except Exception as error:
            raise Error(f"cannot read the result of {self.task}: {type(error).__name__}: {error}") from error


def write(folder: Path, process: int, kind: str, text: str, content: bytes) -> None:
    """Writes a result for the agent, atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{process}.tmp"
    head = json.dumps({"kind": kind, "text": text[: _MAX_HEADER_BYTES // 8]})
    temporary.write_bytes(head.encode("utf-8") + b"\n" + content)
    temporary.replace(folder / f"{process}{SUFFIX}")


def read(folder: Path) -> List[FunctionResult]:
    """Reads all results in a job's directory. Files in other places below it are ignored."""
    found: List[FunctionResult] = []
    for path in sorted(folder.glob(f"*/*{SUFFIX}")):
        name = _NAME.fullmatch(path.relative_to(folder).as_posix())
        if name is None:
            continue
        with open(path, "rb") as file:
            owner = os.fstat(file.fileno()).st_uid
            # Root can run code here anyway.
            if owner not in (os.geteuid(), 0):
                raise Error(
                    f"`{path}` belongs to user {owner} and is not read, because reading a result runs its code"
                )
            head = file.readline(_MAX_HEADER_BYTES)
            try:
                header: Dict[str, Any] = json.loads(head.decode("utf-8"))
                kind, text = str(header["kind"]), str(header["text"])
            except (ValueError, KeyError, TypeError):
                raise Error(f"`{path}` is not the result of a function") from None
            task = f"{name['role']}:{int(name['index'])}"
            content = file.read(MAX_BYTES + 1)
            if len(content) > MAX_BYTES:
                kind, text, content = "lost", f"it takes more than {MAX_BYTES >> 20} MiB", b""
            found.append(FunctionResult(task, int(name["process"]), kind, text, content))
    return found


def values(found: List[FunctionResult]) -> Dict[str, Any]:
    """Returns the value of each task: one value, or a list if it has several processes."""
    tasks: Dict[str, List[FunctionResult]] = {}
    for result in found:
        tasks.setdefault(result.task, []).append(result)

    def order(task: str) -> Tuple[str, int]:
        role, _, index = task.rpartition(":")
        return role, int(index)

    results: Dict[str, Any] = {}
    for task in sorted(tasks, key=order):
        processes = [result.value() for result in sorted(tasks[task], key=lambda result: result.process)]
        results[task] = processes[0] if len(processes) == 1 else processes
    return results


def failure(found: List[FunctionResult], task: str) -> Tuple[Optional[str], Optional[BaseException]]:
    """Returns the traceback of a task, and the exception if it can be read."""
    for result in found:
        if result.task == task and result.kind == "error":
            try:
                exception = pickle.loads(result.content)
            except Exception:
                # Its class may exist only in the task.
                exception = None
            return result.text, exception if isinstance(exception, BaseException) else None
    return None, None
