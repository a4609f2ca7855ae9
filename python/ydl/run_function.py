"""Calls the function of a task, and leaves what it returns or raises for whoever submitted it."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any, Optional

from . import metrics, returned

#: Python's own code for an uncaught exception.
_RAISED = 1
#: What was sent cannot be called here.
UNFIT = 2


def main(folder: Optional[str] = None) -> int:
    """Runs the function of this task, which lies in that directory; the code to end with."""
    place = Path(folder or (sys.argv[1] if len(sys.argv) > 1 else "ydl-function")).absolute()
    _for_children(str(place))
    process = int(os.environ.get("YDL_LOCAL_RANK") or "0")
    # In an earlier round this process may have left something else.
    results = Path(returned.PLACE).absolute()
    for old in results.glob(f"{process}{returned.ENDING}"):
        old.unlink()
    role = os.environ.get("YDL_ROLE", "worker")
    content = (place / "functions" / f"{role}.pickle").read_bytes()
    unfit = misfit(place / "functions" / "about.json", "the function")
    if unfit:
        print(f"error: {unfit}", file=sys.stderr)
        return UNFIT
    try:
        function, args, kwargs = pickle.loads(content)
        value = function(*args, **kwargs)
    except SystemExit as end:
        if end.code in (None, 0):
            # It has ended well, and has nothing to tell.
            returned.write(results, process, *_pickled(None))
        raise
    except BaseException as error:
        return _raised(error, results, process)
    finally:
        metrics.report_flush(3.0)
    kind, text, content = _pickled(value)
    if kind == "lost":
        print(f"note: what the function returned cannot be brought back: {text}", file=sys.stderr)
    returned.write(results, process, kind, text, content)
    return 0


def _raised(error: BaseException, results: Path, process: int) -> int:
    # What is ours in the traceback says nothing to the user.
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace))
    sys.stdout.flush()
    print(text, end="", file=sys.stderr, flush=True)
    _, _, content = _pickled(error.with_traceback(None))
    returned.write(results, process, "error", text, content)
    return _RAISED


def _pickled(value: Any) -> Any:
    """The value as a pickle that can be read again, or why it is none."""
    try:
        try:
            content: bytes = importlib.import_module("cloudpickle").dumps(value)
        except ImportError:
            content = pickle.dumps(value)
        pickle.loads(content)
        if len(content) > returned.BYTES_MAX:
            limit = returned.BYTES_MAX >> 20
            return "lost", f"it takes {len(content) >> 20} MiB, and {limit} are brought back: write it to `outputs`", b""
        return "value", "", content
    except Exception as error:
        return "lost", f"{type(value).__name__} cannot be pickled: {type(error).__name__}: {error}", b""


def misfit(path: Path, what: str) -> Optional[str]:
    """Why what was pickled cannot be read by this interpreter, by what lies beside it."""
    about = json.loads(path.read_text(encoding="utf-8"))
    theirs, ours = tuple(about["python"]), tuple(sys.version_info[:2])
    # Code travels as bytecode, which each version has its own of; without it names travel.
    if not about["cloudpickle"] or theirs == ours:
        return None
    was, here = ".".join(map(str, theirs)), ".".join(map(str, ours))
    return f"{what} was made with Python {was}, and here `{sys.executable}` is Python {here}"


def _for_children(place: str) -> None:
    """Processes that the function starts find the same modules."""
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = place if not path else place + os.pathsep + path


if __name__ == "__main__":
    sys.exit(main())
