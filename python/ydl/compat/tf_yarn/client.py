"""`run_on_yarn`: an experiment becomes a job, and its end metrics or :class:`RunFailed`."""

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
from .bundle import Bundle, editable_packages, pickled
from .evaluator_metrics import EvaluatorMetricsLogger, Thresholds
from .follow import Listener
from .life import TERMINATED
from .metrics import Metrics, OneShotMetricsLogger, metrics_from, status_of
from .plan import Call, PathLike, PyEnv, checked, environment_of, job_keys
from .tensorboard import URL_EVENT_LABEL
from .topologies import ContainerKey, TaskSpecs

logger = logging.getLogger(__name__)

LOG_CHARACTERS_MAX = 64 << 20
"""So much of the end of a task's log goes to MLflow."""
ExperimentFn = Callable[..., Any]
CLUSTER = "TF_YARN_CLUSTER"
"""`local` or `yarn`, where the caller does not say; without either, a cluster if a Hadoop configuration is found."""


class RunFailed(Exception):
    """The job has failed: `task` is who, `traceback` what its program raised, `log` its last lines, `metrics` what is known
    of durations, `run` the job itself."""

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
    """Runs a job to its end. Ctrl-C and SIGTERM end it, once and for all."""
    call = checked(call)
    if skein_client is not None:
        logger.debug("skein_client is not needed: there is no driver to share")
    experiment = pickled(experiment_fn)
    where = environment_of(call.pyenv_zip_path, call.task_specs)
    with mlflow.ended_run() as tracked:
        keys = {**job_keys(call, where), "files": dict(where.files)}
        # They are part of the environment that this process runs in, and of no other.
        more = {} if where.what == sys.prefix else editable_packages()
        with _terminated(), _left_to_nobody() as jobs:
            jobs.append(_submit(call, Bundle(experiment, more), keys, cluster or os.environ.get(CLUSTER)))
            metrics, killed = _follow(jobs[0], call.task_specs, key, eval_monitor_log_thresholds)
        tracked.status = "KILLED" if killed else tracked.status
        return metrics


@contextlib.contextmanager
def _terminated() -> Iterator[None]:
    """SIGTERM, by which `timeout` and schedulers end a program, ends this one as Ctrl-C does, by an exception: its job must
    not be left behind. Who handles that signal himself goes on doing so."""
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def leave(*_: object) -> None:
        raise SystemExit(TERMINATED)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def _left_to_nobody() -> Iterator[List[Any]]:
    """Who is interrupted ends the jobs that he has submitted, whatever he was about to do with them."""
    jobs: List[Any] = []
    try:
        yield jobs
    except (KeyboardInterrupt, SystemExit):
        for run in jobs:
            logger.warning("interrupted: %s is ended", run.id)
            run.kill()
        raise


def _submit(call: Call, bundle: Bundle, keys: Dict[str, Any], cluster: Optional[str]) -> Any:
    import ydl

    with bundle as folder:
        given = {name: os.fspath(path) for name, path in (call.files or {}).items()}
        own = {name: path if "://" in path else os.path.abspath(path) for name, path in given.items()}
        job = ydl.Job(**{**keys, "files": {**keys["files"], **own, **folder}})
        submitted = job.submit(cluster=cluster)
    logger.info("%s is submitted", submitted.id)
    return submitted


def task_names(specs: TaskSpecs) -> List[str]:
    return ["{}:{}".format(kind, number) for kind, spec in specs.items() for number in range(spec.instances)]


def _follow(
    run: Any, specs: TaskSpecs, key: Callable[[str], Any], thresholds: Optional[Thresholds]
) -> Tuple[Metrics, bool]:
    """How long a job took, once it is over, and whether it was killed."""
    import ydl

    tasks = task_names(specs)
    evaluators = EvaluatorMetricsLogger([task for task in tasks if task.startswith("evaluator:")], None, thresholds)
    boards = [(task + "/url", URL_EVENT_LABEL) for task in tasks if task.startswith("tensorboard:")]
    listener = Listener(run, tasks, evaluators, OneShotMetricsLogger(None, boards))
    failure: Optional[ydl.JobFailed] = None
    with listener:
        try:
            run.wait()
        except ydl.JobFailed as ended:
            failure = ended
    n_try = listener.n_try
    # How the job ended is known; what is only nice to know must not hide it.
    try:
        listener.fill_in(run.history())
        n_try = max(0, run.status().round - 1)
    except (ydl.Error, ValueError, TypeError) as unknown:
        logger.warning("what happened to %s could not be had: %s", run.id, unknown)
    metrics = metrics_from(listener.events, tasks, key)
    _tell_mlflow(run, metrics, listener.events, tasks, n_try)
    if failure is None or isinstance(failure, ydl.JobKilled):
        logger.info("%s: %s", run.id, "succeeded" if failure is None else failure.message)
        return metrics, failure is not None
    said = listener.events.get(failure.task or "", {}).get("stop", "")
    message = "\n\n".join(filter(None, [failure.message, (said or failure.log).rstrip()]))
    raise RunFailed(
        message, run=run, task=failure.task, traceback=said, log=failure.log, metrics=metrics
    ) from failure


def _tell_mlflow(run: Any, metrics: Metrics, events: Mapping[str, Mapping[str, str]], tasks: List[str], n_try: int) -> None:
    if not mlflow.use_mlflow():
        return
    import ydl

    metrics.log_mlflow(n_try)
    for task in tasks:
        name = "{}_{}_{}".format(mlflow.format_key(task), status_of(events.get(task)), n_try)
        try:
            text = tail((line.text for line in run.logs(task)), LOG_CHARACTERS_MAX)
        except ydl.Error as away:
            logger.warning("the log of %s was not found: %s", task, away)
            continue
        mlflow.save_text_to_mlflow(text, name)


def tail(lines: Iterable[str], characters_max: int) -> str:
    """The last lines, as many as there is room for."""
    kept: Deque[str] = collections.deque()
    size = 0
    for line in lines:
        kept.append(line + "\n")
        size += len(kept[-1])
        while size > characters_max:
            size -= len(kept.popleft())
    return "".join(kept)


class _Named:
    """A function by its name, imported where it is called: what it needs need not be installed where it is sent from."""

    def __init__(self, name: str, args: Sequence[Any]) -> None:
        self.name, self.args = name, tuple(args)

    def __call__(self) -> Any:
        module, _, name = self.name.rpartition(".")
        return getattr(importlib.import_module(module), name)(*self.args)


def get_safe_experiment_fn(full_fn_name: str, *args: Any) -> Callable[[], Any]:
    """The experiment function `"package.module.function"`, with these arguments."""
    if "." not in full_fn_name:
        raise ValueError("`{}` is no function of a module; write `module.function`".format(full_fn_name))
    return _Named(full_fn_name, args)


class ContainerLogStatus(NamedTuple):
    """Where containers' logs are, and how the containers ended, by task."""

    log_urls: Dict[Any, str] = {}
    container_status: Dict[Any, str] = {}

    def by_container_id(self) -> Dict[str, Any]:
        """The same by container: it is the last but one part of its log's address."""
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
    cluster: Optional[str] = None,
    key: Callable[[str], Any] = ContainerKey.from_kv_str,
) -> Metrics:
    """Runs an experiment on a cluster, or on this machine with `cluster="local"`, and waits for its end.

    What tf-yarn has is in its documentation; `cluster`, `framework` and `key` are ydl's own.
    """
    default = "tf_yarn.tensorflow.tasks._independent_workers_task"
    call = Call(
        task_specs, framework, custom_task_module or default, pyenv_zip_path, files, env, queue, acls, file_systems,
        nb_retries, name, pre_script_hook, cuda_runtime_hdfs_path,
    )  # fmt: skip
    return run(
        experiment_fn, call, key=key, eval_monitor_log_thresholds=eval_monitor_log_thresholds,
        skein_client=skein_client, cluster=cluster,
    )  # fmt: skip


def like_run_on_yarn(function: Callable[..., Metrics]) -> Callable[..., Metrics]:
    """A function that hands its options on to :func:`run_on_yarn`: it shows its parameters as its own, and says itself
    which of them it has not."""
    shown = inspect.signature(run_on_yarn)
    known = [one for name, one in shown.parameters.items() if name != "framework"]

    @functools.wraps(function)
    def checked_options(*args: Any, **options: Any) -> Metrics:
        unknown = [name for name in options if name not in {one.name for one in known}]
        if unknown:
            raise TypeError("run_on_yarn has no option `{}`".format(unknown[0]))
        return function(*args, **options)

    checked_options.__signature__ = shown.replace(parameters=known)  # type: ignore[attr-defined]
    return checked_options
