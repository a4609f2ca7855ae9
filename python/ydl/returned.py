"""What functions returned or raised, on its way from a task to whoever submitted it.

A file for each process, below `results` in the job's own directory: a line of JSON that says what it is, and a pickle.
Reading a pickle runs what it says, so that only files of whoever reads are read, and only where the job itself puts them.
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

#: Below the job's directory.
FOLDER = "results"
#: Below the staging directory of a cluster; what is fetched from there has this name, too.
JOBS = "jobs"
ENDING = ".returned"
#: In the task's directory.
PLACE = "ydl-returned"
_HEAD_BYTES_MAX = 4 << 20
#: What one process may return.
BYTES_MAX = 512 << 20
_NAME = re.compile(r"(?P<role>[^/]+)-(?P<index>\d+)/(?P<process>\d+)" + re.escape(ENDING))


@dataclass(frozen=True)
class Returned:
    """What one process returned or raised."""

    task: str
    process: int
    #: `value`, `error`, or `lost` for a value that could not be pickled.
    kind: str
    #: The traceback, or why it was lost.
    text: str
    content: bytes

    def value(self) -> Any:
        """The value."""
        if self.kind != "value":
            raise Error(f"what {self.task} returned is not here: {self.text}")
        try:
            return pickle.loads(self.content)
        except Exception as error:
            raise Error(f"what {self.task} returned cannot be read here: {type(error).__name__}: {error}") from error


def write(place: Path, process: int, kind: str, text: str, content: bytes) -> None:
    """Leaves it for the agent, whole or not at all."""
    place.mkdir(parents=True, exist_ok=True)
    aside = place / f".{process}.aside"
    head = json.dumps({"kind": kind, "text": text[: _HEAD_BYTES_MAX // 8]})
    aside.write_bytes(head.encode("utf-8") + b"\n" + content)
    aside.replace(place / f"{process}{ENDING}")


def read(folder: Path) -> List[Returned]:
    """All of a job's directory of results. What lies elsewhere below it is nobody's result."""
    found: List[Returned] = []
    for path in sorted(folder.glob(f"*/*{ENDING}")):
        name = _NAME.fullmatch(path.relative_to(folder).as_posix())
        if name is None:
            continue
        with open(path, "rb") as file:
            owner = os.fstat(file.fileno()).st_uid
            # Root could do anything here without our reading it.
            if owner not in (os.geteuid(), 0):
                raise Error(
                    f"`{path}` is a file of user {owner}, and is not read: reading what a function returned runs what it says"
                )
            head = file.readline(_HEAD_BYTES_MAX)
            try:
                told: Dict[str, Any] = json.loads(head.decode("utf-8"))
                kind, text = str(told["kind"]), str(told["text"])
            except (ValueError, KeyError, TypeError):
                raise Error(f"`{path}` is not what a function returned") from None
            task = f"{name['role']}:{int(name['index'])}"
            content = file.read(BYTES_MAX + 1)
            if len(content) > BYTES_MAX:
                kind, text, content = "lost", f"it takes more than {BYTES_MAX >> 20} MiB", b""
            found.append(Returned(task, int(name["process"]), kind, text, content))
    return found


def values(all: List[Returned]) -> Dict[str, Any]:
    """What each task returned: a value, or a list where it has several processes."""
    tasks: Dict[str, List[Returned]] = {}
    for one in all:
        tasks.setdefault(one.task, []).append(one)

    def order(task: str) -> Tuple[str, int]:
        role, _, index = task.rpartition(":")
        return role, int(index)

    results: Dict[str, Any] = {}
    for task in sorted(tasks, key=order):
        each = [one.value() for one in sorted(tasks[task], key=lambda one: one.process)]
        results[task] = each[0] if len(each) == 1 else each
    return results


def failure(all: List[Returned], task: str) -> Tuple[Optional[str], Optional[BaseException]]:
    """The traceback of a task, and the exception where it can be had."""
    for one in all:
        if one.task == task and one.kind == "error":
            try:
                exception = pickle.loads(one.content)
            except Exception:
                # Its class may be one that only the task knew.
                exception = None
            return one.text, exception if isinstance(exception, BaseException) else None
    return None, None
