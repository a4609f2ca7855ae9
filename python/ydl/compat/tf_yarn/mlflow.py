"""Optional logging to MLflow. It is enabled if `mlflow` can be imported, a tracking server is set (by `MLFLOW_TRACKING_URI` or
by the program), and `TF_YARN_USE_MLFLOW` is not `False`.

No function raises. After the first connection failure logging is disabled for the rest of the process.
"""

import functools
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

# By default MLflow retries for minutes.
_TIMEOUTS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "GIT_PYTHON_REFRESH": "quiet",
}

_SECRET = ("PASSWORD", "TOKEN", "SECRET")

_lock = threading.Lock()
_disabled = False
_active_calls = 0
"""Number of running calls with these timeouts."""
_original: Dict[str, Optional[str]] = {}


@contextmanager
def _short_timeouts() -> Iterator[None]:
    """Sets timeouts in the variables that MLflow reads at each call, and restores them for the program's own calls."""
    global _active_calls
    with _lock:
        _active_calls += 1
        if _active_calls == 1:
            _original.update({name: os.environ.get(name) for name in _TIMEOUTS})
            for name, value in _TIMEOUTS.items():
                os.environ.setdefault(name, value)
    try:
        yield
    finally:
        with _lock:
            _active_calls -= 1
            if _active_calls == 0:
                for name, value in _original.items():
                    if value is None:
                        os.environ.pop(name, None)


def _installed() -> bool:
    try:
        return importlib.util.find_spec("mlflow") is not None
    except (ImportError, ValueError):
        return False


def use_mlflow() -> bool:
    """Returns True if logging is enabled."""
    if _disabled or os.environ.get("TF_YARN_USE_MLFLOW", "").lower() == "false":
        return False
    return _has_server() and _installed()


def _has_server() -> bool:
    """Returns True if a server is set, by the variable or with `mlflow.set_tracking_uri`."""
    if os.environ.get("MLFLOW_TRACKING_URI"):
        return True
    # Not all versions of MLflow set the variable.
    tracking = getattr(sys.modules.get("mlflow"), "tracking", None)
    try:
        return tracking is not None and bool(tracking.is_tracking_uri_set())
    except Exception:  # errors of MLflow must not end the training
        return False


def variables() -> Dict[str, str]:
    """Returns the variables with which tasks log to the run of this process. Empty if logging is disabled."""
    run = active_run_id() if use_mlflow() else ""
    if not run:
        return {}
    found = {name: os.environ[name] for name in os.environ if name.startswith("MLFLOW_")}
    found.update(MLFLOW_RUN_ID=run, MLFLOW_TRACKING_URI=get_tracking_uri(), GIT_PYTHON_REFRESH="quiet")
    # Viewers of a job see its variables.
    clean = {name: _without_login(value) for name, value in found.items() if not any(word in name for word in _SECRET)}
    if clean != found:
        logger.warning(
            "mlflow: viewers of a job see its variables, so tasks get no password and their calls may be rejected; "
            "`mlflow: {token_file: …}` of a job applies to its master only"
        )
    return clean


def _without_login(address: str) -> str:
    """Removes user name and password from an address."""
    return re.sub(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/?#\s]*@", r"\1", address)


def _try(what: str, call: Callable[[Any], Any], default: Any = None) -> Any:
    global _disabled
    if not use_mlflow():
        return default
    try:
        with _short_timeouts():
            import mlflow

            return call(mlflow)
    except Exception as failure:  # errors of MLflow must not end the training
        unreachable = isinstance(failure, ImportError) or _unreachable(failure)
        _disabled = _disabled or unreachable
        end = "; logging to it is disabled" if unreachable else ""
        logger.warning("mlflow: %s failed: %s%s", what, _without_login(_first_line(failure)), end)
        return default


def _first_line(failure: BaseException) -> str:
    lines = str(failure).splitlines()
    return lines[0][:300] if lines else type(failure).__name__


def _unreachable(failure: Optional[BaseException]) -> bool:
    messages = ("max retries exceeded", "connection refused", "timed out", "failed to establish", "name resolution")
    while failure is not None:
        if isinstance(failure, (ConnectionError, TimeoutError)) or any(message in str(failure).lower() for message in messages):
            return True
        failure = failure.__cause__ or failure.__context__
    return False


def active_run_id() -> str:
    """Returns the id of the active run, or of a new one. Empty if logging is disabled."""

    def get_id(mlflow: Any) -> str:
        run = mlflow.active_run() or mlflow.start_run()
        return run.info.run_id

    return _try("reading the active run", get_id, "") or ""


def get_tracking_uri() -> str:
    return _try("reading the server's address", lambda mlflow: mlflow.get_tracking_uri(), "") or ""


def set_tag(key: str, value: Any) -> None:
    _try("setting a tag", lambda mlflow: mlflow.set_tag(format_key(key), value))


def set_tags(tags: Dict[str, Any]) -> None:
    valid = {format_key(key): value for key, value in tags.items()}
    _try("setting tags", lambda mlflow: mlflow.set_tags(valid))


def log_param(key: str, value: Any) -> None:
    _try("logging a parameter", lambda mlflow: mlflow.log_param(format_key(key), value))


def log_params(params: Dict[str, Any]) -> None:
    valid = {format_key(key): value for key, value in params.items()}
    _try("logging parameters", lambda mlflow: mlflow.log_params(valid))


def log_metric(key: str, value: float, step: Optional[int] = None) -> None:
    _try("logging a metric", lambda mlflow: mlflow.log_metric(format_key(key), value, step))


def log_metrics(metrics: Dict[str, Any], step: Optional[int] = None) -> None:
    valid = {format_key(key): value for key, value in metrics.items()}
    _try("logging metrics", lambda mlflow: mlflow.log_metrics(valid, step))


def log_artifact(local_path: str, artifact_path: Optional[str] = None) -> None:
    _try("sending a file", lambda mlflow: mlflow.log_artifact(local_path, artifact_path))


def log_artifacts(local_dir: str, artifact_path: Optional[str] = None) -> None:
    _try("sending files", lambda mlflow: mlflow.log_artifacts(local_dir, artifact_path))


def optional_mlflow(return_default: Any = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator of a function that calls MLflow: it returns `return_default` if logging is disabled or the call fails."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def optional_call(*args: Any, **options: Any) -> Any:
            return _try(function.__name__, lambda mlflow: function(*args, **options), return_default)

        return optional_call

    return decorate


def format_key(key: str) -> str:
    """Replaces `:` and `/`, which MLflow does not allow in keys."""
    return key.replace(":", "_").replace("/", "_") if key else ""


def save_text_to_mlflow(content: str, filename: str) -> None:
    """Logs a text as an artifact."""
    if not use_mlflow():
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, format_key(filename))
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(content)
        log_artifact(path)


class Background:
    """Logs metrics in the background. With `limit` pending metrics, new ones are dropped."""

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
        """Waits until pending metrics are logged, for at most `seconds`."""
        if self._thread is None:
            return
        end = time.monotonic() + seconds
        try:
            self._queue.put(None, timeout=seconds)
        except queue.Full:
            return
        self._thread.join(max(0.0, end - time.monotonic()))
        self._thread = None


class RunStatus:
    """Final status of a run."""

    status = "FINISHED"


@contextmanager
def managed_run() -> Iterator[RunStatus]:
    """Ends a run that was started inside; a run of the caller stays active."""
    existing = _try("reading the active run", lambda mlflow: mlflow.active_run())
    tracked = RunStatus()
    try:
        yield tracked
    except (KeyboardInterrupt, SystemExit):
        tracked.status = "KILLED"
        raise
    except BaseException:
        tracked.status = "FAILED"
        raise
    finally:
        if existing is None:
            _try("ending the run", lambda mlflow: mlflow.end_run(tracked.status) if mlflow.active_run() else None)
