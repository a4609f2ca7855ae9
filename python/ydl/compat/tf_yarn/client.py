"""`run_on_yarn`: runs an experiment as a job, and returns its metrics or raises :class:`RunFailed`."""

import collections
import contextlib
import functools
import importlib
import inspect
import logging
import os
import signal
import sys
import threading
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import mlflow
from ._task_commons import LOG_CONF
from .bundle import Bundle, editable_packages, pickle_experiment
from .evaluator_metrics import EvaluatorMetricsLogger, Thresholds
from .follow import Listener
from .lifecycle import TERMINATED
from .metrics import Metrics, OneShotMetricsLogger, metrics_from, status_of
from .plan import Call, PathLike, PyEnv, environment_of, job_keys, validated
from .tensorboard import URL_EVENT_LABEL
from .topologies import ContainerKey, TaskSpecs
from .unsupported import standalone_client_mode  # noqa: F401

logger = logging.getLogger(__name__)

MAX_LOG_CHARACTERS = 64 << 20
"""Maximum length of the end of a task's log that is sent to MLflow."""
ExperimentFn = Callable[..., Any]
CLUSTER = "TF_YARN_CLUSTER"
"""Variable with the default of `cluster`: `local` or `yarn`. Without it, a cluster if there is a Hadoop configuration."""


class RunFailed(Exception):
    """The job failed. `task` is the failed task, with `traceback` and the last lines of its `log`; `metrics` has the known
    durations, and `run` is the job."""

    def __init__(
        self,
        message: str = "",
        *,
        run: Any = None,
        task: Optional[str] = None,
        traceback: str = "",
        log: str = "",
        metrics: Optional[Metrics] = None,
    ) -> None:
        super().__init__(message)
        self.run = run
        self.task = task
        self.traceback = traceback
        self.log = log
        self.metrics = metrics


def run(
    experiment_fn: ExperimentFn,
    call: Call,
    *,
    key: Callable[[str], Any] = ContainerKey.from_kv_str,
    eval_monitor_log_thresholds: Optional[Thresholds] = None,
    skein_client: Any = None,
    cluster: Optional[str] = None,
) -> Metrics:
    """Runs a job to its end. Ctrl-C and SIGTERM kill it."""
    call = validated(call)
    if skein_client is not None:
        logger.debug("skein_client is ignored: ydl has no driver")
    experiment = pickle_experiment(experiment_fn)
    environment = environment_of(call.pyenv_zip_path, call.task_specs)
    with mlflow.managed_run() as tracked:
        keys = {**job_keys(call, environment), "files": dict(environment.files)}
        # The environment of this process contains its editable packages; other environments do not.
        additional = {} if environment.source == sys.prefix else editable_packages()
        with _exit_on_sigterm(), _kill_on_interrupt() as jobs:
            jobs.append(_submit(call, Bundle(experiment, additional), keys, cluster or os.environ.get(CLUSTER)))
            metrics, killed = _follow(jobs[0], call.task_specs, key, eval_monitor_log_thresholds)
        tracked.status = "KILLED" if killed else tracked.status
        return metrics


@contextlib.contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Turns SIGTERM, which `timeout` and schedulers send, into an exception like Ctrl-C, so that the job is killed. An existing
    handler is kept."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def on_term(*_: object) -> None:
        raise SystemExit(TERMINATED)

    signal.signal(signal.SIGTERM, on_term)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def _kill_on_interrupt() -> Iterator[List[Any]]:
    """Kills the submitted jobs if the program is interrupted."""
    jobs: List[Any] = []
    try:
        yield jobs
    except (KeyboardInterrupt, SystemExit):
        for run in jobs:
            logger.warning("interrupted: killing %s", run.id)
            run.kill()
        raise


def _submit(call: Call, bundle: Bundle, keys: Dict[str, Any], cluster: Optional[str]) -> Any:
    import ydl

    with bundle as folder:
        files = {name: os.fspath(path) for name, path in (call.files or {}).items()}
        absolute = {name: path if "://" in path else os.path.abspath(path) for name, path in files.items()}
        job = ydl.Job(**{**keys, "files": {**keys["files"], **absolute, **folder}})
        submitted = job.submit(cluster=cluster)
    logger.info("%s is submitted", submitted.id)
    return submitted


def task_names(specs: TaskSpecs) -> List[str]:
    return ["{}:{}".format(kind, number) for kind, spec in specs.items() for number in range(spec.instances)]


def _follow(
    run: Any, specs: TaskSpecs, key: Callable[[str], Any], thresholds: Optional[Thresholds]
) -> Tuple[Metrics, bool]:
    """Waits for a job. Returns its metrics, and True if it was killed."""
    import ydl

    tasks = task_names(specs)
    evaluators = EvaluatorMetricsLogger([task for task in tasks if task.startswith("evaluator:")], None, thresholds)
    dashboards = [(task + "/url", URL_EVENT_LABEL) for task in tasks if task.startswith("tensorboard:")]
    listener = Listener(run, tasks, evaluators, OneShotMetricsLogger(None, dashboards))
    failure: Optional[ydl.JobFailed] = None
    with listener:
        try:
            run.wait()
        except ydl.JobFailed as error:
            failure = error
    n_try = listener.n_try
    # Errors in additional data must not hide the outcome of the job.
    try:
        listener.add_history(run.history())
        n_try = max(0, run.status().round - 1)
    except (ydl.Error, ValueError, TypeError) as error:
        logger.warning("cannot read the history of %s: %s", run.id, error)
    metrics = metrics_from(listener.events, tasks, key)
    _log_to_mlflow(run, metrics, listener.events, tasks, n_try)
    if failure is None or isinstance(failure, ydl.JobKilled):
        logger.info("%s: %s", run.id, "succeeded" if failure is None else failure.message)
        return metrics, failure is not None
    traceback = listener.events.get(failure.task or "", {}).get("stop", "")
    message = "\n\n".join(filter(None, [failure.message, (traceback or failure.log).rstrip()]))
    raise RunFailed(
        message, run=run, task=failure.task, traceback=traceback, log=failure.log, metrics=metrics
    ) from failure


def _log_to_mlflow(run: Any, metrics: Metrics, events: Mapping[str, Mapping[str, str]], tasks: List[str], n_try: int) -> None:
    if not mlflow.use_mlflow():
        return
    import ydl

    metrics.log_mlflow(n_try)
    for task in tasks:
        name = "{}_{}_{}".format(mlflow.format_key(task), status_of(events.get(task)), n_try)
        try:
            text = tail((line.text for line in run.logs(task)), MAX_LOG_CHARACTERS)
        except ydl.Error as error:
            logger.warning("cannot read the log of %s: %s", task, error)
            continue
        mlflow.save_text_to_mlflow(text, name)


def tail(lines: Iterable[str], max_characters: int) -> str:
    """Returns the last lines within a limit of characters."""
    kept: Deque[str] = collections.deque()
    size = 0
    for line in lines:
        kept.append(line + "\n")
        size += len(kept[-1])
        while size > max_characters:
            size -= len(kept.popleft())
    return "".join(kept)


class _NamedFunction:
    """Function given by name and imported when called, so that the caller need not have its dependencies."""

    def __init__(self, name: str, args: Sequence[Any]) -> None:
        self.name, self.args = name, tuple(args)

    def __call__(self) -> Any:
        module, _, name = self.name.rpartition(".")
        return getattr(importlib.import_module(module), name)(*self.args)


def get_safe_experiment_fn(full_fn_name: str, *args: Any) -> Callable[[], Any]:
    """Returns the experiment function `"package.module.function"` with these arguments."""
    if "." not in full_fn_name:
        raise ValueError("`{}` has no module; write `module.function`".format(full_fn_name))
    return _NamedFunction(full_fn_name, args)


class ContainerLogStatus(NamedTuple):
    """Log addresses and final statuses of containers, by task."""

    log_urls: Dict[Any, str] = {}
    container_status: Dict[Any, str] = {}

    def by_container_id(self) -> Dict[str, Any]:
        """Returns both by container id, the last but one part of the log's address."""
        found = {}
        for task, url in self.log_urls.items():
            parts = url.rstrip("/").split("/")
            if len(parts) > 1:
                found[parts[-2]] = (task, self.container_status.get(task, ""))
        return found


def run_on_yarn(
    experiment_fn: ExperimentFn,
    task_specs: TaskSpecs,
    *,
    pyenv_zip_path: PyEnv = None,
    custom_task_module: Optional[str] = None,
    framework: str = "tensorflow",
    skein_client: Any = None,
    files: Optional[Mapping[str, PathLike]] = None,
    env: Optional[Mapping[str, str]] = None,
    queue: str = "default",
    acls: Any = None,
    file_systems: Optional[Sequence[str]] = None,
    eval_monitor_log_thresholds: Optional[Thresholds] = None,
    nb_retries: int = 0,
    name: str = "RunOnYarn",
    pre_script_hook: Optional[str] = None,
    cuda_runtime_hdfs_path: Optional[str] = None,
    log_conf_file: Optional[PathLike] = None,
    path_to_log_hdfs: Optional[str] = None,
    cluster: Optional[str] = None,
    key: Callable[[str], Any] = ContainerKey.from_kv_str,
) -> Metrics:
    """Runs an experiment on a cluster, or on this machine with `cluster="local"`, and waits for its end.

    tf-yarn documents its arguments; ydl adds `cluster`, `framework` and `key`. `log_conf_file` and `path_to_log_hdfs` are those of
    tf-yarn up to 0.4.3.
    """
    if path_to_log_hdfs is not None:
        logger.warning("`path_to_log_hdfs` has no effect: `ydl logs ID` prints the logs, `ydl fetch ID DIRECTORY` downloads them")
    if log_conf_file is not None:
        name = os.path.basename(os.fspath(log_conf_file))
        files, env = {name: log_conf_file, **(files or {})}, {LOG_CONF: name, **(env or {})}
    default = "tf_yarn.tensorflow.tasks._independent_workers_task"
    call = Call(
        task_specs, framework, custom_task_module or default, pyenv_zip_path, files, env, queue, acls, file_systems,
        nb_retries, name, pre_script_hook, cuda_runtime_hdfs_path,
    )  # fmt: skip
    return run(
        experiment_fn, call, key=key, eval_monitor_log_thresholds=eval_monitor_log_thresholds,
        skein_client=skein_client, cluster=cluster,
    )  # fmt: skip


def with_run_on_yarn_signature(function: Callable[..., Metrics]) -> Callable[..., Metrics]:
    """Decorates a function that passes its options to :func:`run_on_yarn`: sets its signature and rejects unknown options."""
    signature = inspect.signature(run_on_yarn)
    known = [parameter for name, parameter in signature.parameters.items() if name != "framework"]

    @functools.wraps(function)
    def checked_options(*args: Any, **options: Any) -> Metrics:
        unknown = [name for name in options if name not in {parameter.name for parameter in known}]
        if unknown:
            raise TypeError("run_on_yarn got an unknown option `{}`".format(unknown[0]))
        return function(*args, **options)

    checked_options.__signature__ = signature.replace(parameters=known)  # type: ignore[attr-defined]
    return checked_options
