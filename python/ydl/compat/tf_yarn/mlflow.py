"""MLflow, where it is: it is on if it can be imported, a tracking server is named (by `MLFLOW_TRACKING_URI` or by the program
itself), and `TF_YARN_USE_MLFLOW` is not `False`.

Nothing here raises, and a server that is away costs a few seconds once: after the first call that finds none, the rest of
the process does without.
"""

import importlib.util
import logging
import os
import queue
import re
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, Optional

logger = logging.getLogger(__name__)

# MLflow itself asks for minutes before it gives up.
_PATIENCE = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "GIT_PYTHON_REFRESH": "quiet",
}

_SECRET = ("PASSWORD", "TOKEN", "SECRET")

_lock = threading.Lock()
_given_up = False
_patient = 0
"""How many calls are being made with our patience."""
_before: Dict[str, Optional[str]] = {}


@contextmanager
def _patience() -> Iterator[None]:
    """MLflow reads how patient it is from variables at each call. What the program's own calls find there is the program's."""
    global _patient
    with _lock:
        _patient += 1
        if _patient == 1:
            _before.update({name: os.environ.get(name) for name in _PATIENCE})
            for name, value in _PATIENCE.items():
                os.environ.setdefault(name, value)
    try:
        yield
    finally:
        with _lock:
            _patient -= 1
            if _patient == 0:
                for name, value in _before.items():
                    if value is None:
                        os.environ.pop(name, None)


def _installed() -> bool:
    try:
        return importlib.util.find_spec("mlflow") is not None
    except (ImportError, ValueError):
        return False


def use_mlflow() -> bool:
    """Whether anything is logged."""
    if _given_up or os.environ.get("TF_YARN_USE_MLFLOW", "").lower() == "false":
        return False
    return _is_named() and _installed()


def _is_named() -> bool:
    """Whether a server is named: by the variable, or by the program itself with `mlflow.set_tracking_uri`."""
    if os.environ.get("MLFLOW_TRACKING_URI"):
        return True
    # Not every version of MLflow sets the variable then.
    tracking = getattr(sys.modules.get("mlflow"), "tracking", None)
    try:
        return tracking is not None and bool(tracking.is_tracking_uri_set())
    except Exception:  # whatever MLflow raises, a training does not care
        return False


def variables() -> Dict[str, str]:
    """What a task must know to log into the run of this process. Empty if nothing is logged."""
    run = active_run_id() if use_mlflow() else ""
    if not run:
        return {}
    told = {name: os.environ[name] for name in os.environ if name.startswith("MLFLOW_")}
    told.update(MLFLOW_RUN_ID=run, MLFLOW_TRACKING_URI=get_tracking_uri(), GIT_PYTHON_REFRESH="quiet")
    # What a job's variables hold is shown to whoever may look at the job.
    clean = {name: _without_login(value) for name, value in told.items() if not any(word in name for word in _SECRET)}
    if clean != told:
        logger.warning(
            "mlflow: a job's variables are no place for secrets: tasks get no password, and their calls may be refused; "
            "`mlflow: {token_file: …}` of a job is for its master alone"
        )
    return clean


def _without_login(address: str) -> str:
    """An address without the name and password in it."""
    return re.sub(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/?#\s]*@", r"\1", address)


def _try(what: str, call: Callable[[Any], Any], default: Any = None) -> Any:
    global _given_up
    if not use_mlflow():
        return default
    try:
        with _patience():
            import mlflow

            return call(mlflow)
    except Exception as failure:  # whatever MLflow raises, a training does not care
        gone = isinstance(failure, ImportError) or _unreachable(failure)
        _given_up = _given_up or gone
        end = "; nothing more is logged there" if gone else ""
        logger.warning("mlflow: %s failed: %s%s", what, _without_login(_first_line(failure)), end)
        return default


def _first_line(failure: BaseException) -> str:
    lines = str(failure).splitlines()
    return lines[0][:300] if lines else type(failure).__name__


def _unreachable(failure: Optional[BaseException]) -> bool:
    words = ("max retries exceeded", "connection refused", "timed out", "failed to establish", "name resolution")
    while failure is not None:
        if isinstance(failure, (ConnectionError, TimeoutError)) or any(word in str(failure).lower() for word in words):
            return True
        failure = failure.__cause__ or failure.__context__
    return False


def active_run_id() -> str:
    """The run that is active; a new one if there is none. Empty if nothing is logged."""

    def ask(mlflow: Any) -> str:
        run = mlflow.active_run() or mlflow.start_run()
        return run.info.run_id

    return _try("finding the run", ask, "") or ""


def get_tracking_uri() -> str:
    return _try("finding the server", lambda mlflow: mlflow.get_tracking_uri(), "") or ""


def set_tag(key: str, value: Any) -> None:
    _try("setting a tag", lambda mlflow: mlflow.set_tag(format_key(key), value))


def set_tags(tags: Dict[str, Any]) -> None:
    cleaned = {format_key(key): value for key, value in tags.items()}
    _try("setting tags", lambda mlflow: mlflow.set_tags(cleaned))


def log_param(key: str, value: Any) -> None:
    _try("logging a parameter", lambda mlflow: mlflow.log_param(format_key(key), value))


def log_params(params: Dict[str, Any]) -> None:
    cleaned = {format_key(key): value for key, value in params.items()}
    _try("logging parameters", lambda mlflow: mlflow.log_params(cleaned))


def log_metric(key: str, value: float, step: Optional[int] = None) -> None:
    _try("logging a metric", lambda mlflow: mlflow.log_metric(format_key(key), value, step))


def log_metrics(metrics: Dict[str, Any], step: Optional[int] = None) -> None:
    cleaned = {format_key(key): value for key, value in metrics.items()}
    _try("logging metrics", lambda mlflow: mlflow.log_metrics(cleaned, step))


def log_artifact(local_path: str, artifact_path: Optional[str] = None) -> None:
    _try("sending a file", lambda mlflow: mlflow.log_artifact(local_path, artifact_path))


def log_artifacts(local_dir: str, artifact_path: Optional[str] = None) -> None:
    _try("sending files", lambda mlflow: mlflow.log_artifacts(local_dir, artifact_path))


def format_key(key: str) -> str:
    """A key that MLflow takes: without `:` and `/`."""
    return key.replace(":", "_").replace("/", "_") if key else ""


def save_text_to_mlflow(content: str, filename: str) -> None:
    """A text as an artifact of that name."""
    if not use_mlflow():
        return
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, format_key(filename))
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(content)
        log_artifact(path)


class Background:
    """Logs metrics beside a training that must not wait for a server: at most a thousand wait, and the newest is dropped then."""

    def __init__(self, limit: int = 1000) -> None:
        self._queue: "queue.Queue[Any]" = queue.Queue(limit)
        self._thread: Optional[threading.Thread] = None

    def log_metric(self, key: str, value: float, step: Optional[int] = None) -> None:
        if not use_mlflow():
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mlflow", daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait((key, value, step))
        except queue.Full:
            logger.warning("mlflow: `%s` at step %s was dropped, the server is too slow", key, step)

    def _run(self) -> None:
        while True:
            row = self._queue.get()
            if row is None:
                return
            log_metric(*row)

    def flush(self, seconds: float = 10.0) -> None:
        """Waits for what is left, so long at most."""
        if self._thread is None:
            return
        end = time.monotonic() + seconds
        try:
            self._queue.put(None, timeout=seconds)
        except queue.Full:
            return
        self._thread.join(max(0.0, end - time.monotonic()))
        self._thread = None


class Tracked:
    """How a run will have ended, as far as is known."""

    status = "FINISHED"


@contextmanager
def ended_run() -> Iterator[Tracked]:
    """A run that was begun inside is ended at the end; one that the caller has made stays his."""
    before = _try("finding the run", lambda mlflow: mlflow.active_run())
    tracked = Tracked()
    try:
        yield tracked
    except (KeyboardInterrupt, SystemExit):
        tracked.status = "KILLED"
        raise
    except BaseException:
        tracked.status = "FAILED"
        raise
    finally:
        if before is None:
            _try("ending the run", lambda mlflow: mlflow.end_run(tracked.status) if mlflow.active_run() else None)
