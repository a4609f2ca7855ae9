"""Calls the function of a task and writes its result or exception for the client."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any, Optional

from . import function_results, metrics

#: Python's exit code for an uncaught exception.
_RAISED = 1
#: Exit code if the pickle cannot be read by this interpreter.
INCOMPATIBLE = 2


def main(folder: Optional[str] = None) -> int:
    """Runs the function in a directory. Returns the exit code."""
    directory = Path(folder or (sys.argv[1] if len(sys.argv) > 1 else "ydl-function")).absolute()
    _add_to_python_path(str(directory))
    process = int(os.environ.get("YDL_LOCAL_RANK") or "0")
    # Remove the result of an earlier round.
    results = Path(function_results.TASK_DIR).absolute()
    for old in results.glob(f"{process}{function_results.SUFFIX}"):
        old.unlink()
    role = os.environ.get("YDL_ROLE", "worker")
    content = (directory / "functions" / f"{role}.pickle").read_bytes()
    problem = incompatibility(directory / "functions" / "metadata.json", "the function")
    if problem:
        print(f"error: {problem}", file=sys.stderr)
        return INCOMPATIBLE
    try:
        function, args, kwargs = pickle.loads(content)
        value = function(*args, **kwargs)
    except SystemExit as end:
        if end.code in (None, 0):
            # A successful exit has no value.
            function_results.write(results, process, *_pickled(None))
        raise
    except BaseException as error:
        return _raised(error, results, process)
    finally:
        metrics.report_flush(3.0)
    kind, text, content = _pickled(value)
    if kind == "lost":
        print(f"warning: cannot transfer the return value: {text}", file=sys.stderr)
    function_results.write(results, process, kind, text, content)
    return 0


def _raised(error: BaseException, results: Path, process: int) -> int:
    # Remove the frames of this module.
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace))
    sys.stdout.flush()
    print(text, end="", file=sys.stderr, flush=True)
    _, _, content = _pickled(error.with_traceback(None))
    function_results.write(results, process, "error", text, content)
    return _RAISED


def _pickled(value: Any) -> Any:
    """Pickles a value and checks that it can be read. Returns kind, text and content of the result."""
    try:
        try:
            content: bytes = importlib.import_module("cloudpickle").dumps(value)
        except ImportError:
            content = pickle.dumps(value)
        pickle.loads(content)
        if len(content) > function_results.MAX_BYTES:
            limit = function_results.MAX_BYTES >> 20
            return "lost", f"it takes {len(content) >> 20} MiB, more than the limit of {limit} MiB: write it to `outputs`", b""
        return "value", "", content
    except Exception as error:
        return "lost", f"{type(value).__name__} cannot be pickled: {type(error).__name__}: {error}", b""


def incompatibility(path: Path, what: str) -> Optional[str]:
    """Returns the reason why this interpreter cannot read the pickles beside `path`, if there is one."""
    metadata = json.loads(path.read_text(encoding="utf-8"))
    pickled, current = tuple(metadata["python"]), tuple(sys.version_info[:2])
    # cloudpickle ships bytecode, which differs between versions; pickle ships names.
    if not metadata["cloudpickle"] or pickled == current:
        return None
    before, now = (".".join(map(str, version)) for version in (pickled, current))
    return f"{what} was pickled with Python {before}, but `{sys.executable}` is Python {now}"


def _add_to_python_path(directory: str) -> None:
    """Makes the modules available to processes that the function starts."""
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = directory if not path else directory + os.pathsep + path


if __name__ == "__main__":
    sys.exit(main())
