"""One function or module on the cluster, as cluster-pack's launcher for skein had it. The ticket of whoever calls stays here:
tasks get tokens."""

import getpass
import logging
import os
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from . import filesystem

logger = logging.getLogger(__name__)

__all__ = ["get_application_logs", "submit", "submit_func", "upload_logs_to_hdfs", "wait_for_finished"]


class _Asked(NamedTuple):
    """What both ways to submit have in common."""

    name: str
    num_cores: int
    memory: str
    package_path: Optional[str]
    hadoop_file_systems: Optional[List[str]]
    queue: Optional[str]
    env_vars: Optional[Dict[str, str]]
    additional_files: Optional[Sequence[str]]
    node_label: Optional[str]
    num_containers: int
    user: Optional[str]
    pre_script_hook: Optional[str]
    max_attempts: int
    max_restarts: int
    process_logs: Optional[Callable[[str], Any]]


def submit(
    skein_client: Any,
    module_name: str,
    args: Optional[Sequence[str]] = None,
    name: str = "skein_launcher",
    num_cores: int = 1,
    memory: str = "1 GiB",
    package_path: Optional[str] = None,
    hadoop_file_systems: Optional[List[str]] = None,
    queue: Optional[str] = None,
    env_vars: Optional[Dict[str, str]] = None,
    additional_files: Optional[Sequence[str]] = None,
    node_label: Optional[str] = None,
    num_containers: int = 1,
    user: Optional[str] = None,
    acquire_map_reduce_delegation_token: bool = False,
    pre_script_hook: Optional[str] = None,
    max_attempts: int = 1,
    max_restarts: int = 0,
    process_logs: Optional[Callable[[str], Any]] = None,
    allow_large_pex: bool = False,
    *,
    cluster: Optional[str] = None,
) -> str:
    """Runs `python -m module_name` in containers, and comes back with the job's id at once."""
    asked = _Asked(
        name, num_cores, memory, package_path, hadoop_file_systems, queue, env_vars, additional_files, node_label,
        num_containers, user, pre_script_hook, max_attempts, max_restarts, process_logs,
    )  # fmt: skip
    return _submitted(asked, cluster, lambda make: make.of_words(["-m", module_name, *map(str, args or [])]))


def submit_func(
    skein_client: Any,
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    name: str = "skein_launcher",
    num_cores: int = 1,
    memory: str = "1 GiB",
    package_path: Optional[str] = None,
    hadoop_file_systems: Optional[List[str]] = None,
    queue: Optional[str] = None,
    env_vars: Optional[Dict[str, str]] = None,
    additional_files: Optional[Sequence[str]] = None,
    node_label: Optional[str] = None,
    num_containers: int = 1,
    user: Optional[str] = None,
    acquire_map_reduce_delegation_token: bool = False,
    pre_script_hook: Optional[str] = None,
    max_attempts: int = 1,
    max_restarts: int = 0,
    process_logs: Optional[Callable[[str], Any]] = None,
    allow_large_pex: bool = False,
    *,
    cluster: Optional[str] = None,
) -> str:
    """Calls a function in containers, and comes back with the job's id at once."""
    asked = _Asked(
        name, num_cores, memory, package_path, hadoop_file_systems, queue, env_vars, additional_files, node_label,
        num_containers, user, pre_script_hook, max_attempts, max_restarts, process_logs,
    )  # fmt: skip
    return _submitted(asked, cluster, lambda make: make.of_function(func, args))


class _Make:
    """The job that is asked for."""

    def __init__(self, asked: _Asked) -> None:
        from ..tf_yarn.plan import environment_of, job_name

        self.where = environment_of(asked.package_path, {})
        self.before = asked.pre_script_hook
        self.role: Dict[str, Any] = {
            "instances": asked.num_containers, "memory": asked.memory, "vcores": asked.num_cores,
            "node_label": asked.node_label or None,
        }  # fmt: skip
        self.keys: Dict[str, Any] = {
            "name": job_name(asked.name),
            "environment": self.where.what,
            "files": {**self.where.files, **_files(asked.additional_files)},
            "env": {**self.where.env, **(asked.env_vars or {})},
            "queue": asked.queue,
            "file_systems": asked.hadoop_file_systems,
            "restart": {"limit": max(0, asked.max_restarts)},
            "master": {"attempts": max(1, asked.max_attempts)},
        }

    def of_words(self, words: Sequence[str]) -> Any:
        import ydl
        from ydl.functions import after

        run = after(self.before, [*self.where.python, *words])
        return ydl.Job(roles={"worker": ydl.Role(run, **self.role)}, **self.keys)

    def of_function(self, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        import ydl

        python = self.where.python
        if len(python) > 1:
            raise ValueError("a function cannot be sent to a pex in HDFS: give its path on this machine")
        job = ydl.Job.from_function(
            function, args, roles={"worker": ydl.Role(**self.role)},
            python=None if python[0] == sys.executable else python[0], **self.keys,
        )  # fmt: skip
        if self.before and job._bundle is not None:
            job._bundle.before = self.before
        return job


def _submitted(asked: _Asked, cluster: Optional[str], make: Callable[[_Make], Any]) -> str:
    if asked.user is not None and asked.user not in (getpass.getuser(), os.environ.get("HADOOP_USER_NAME")):
        raise ValueError(
            "a job is its submitter's, and not `{}`'s: HADOOP_PROXY_USER says for whom one acts".format(asked.user)
        )
    if asked.process_logs is not None:
        logger.warning("process_logs is not called: `ydl logs` and get_application_logs have what tasks print")
    return str(make(_Make(asked)).submit(cluster=cluster).id)


def _files(paths: Optional[Sequence[str]]) -> Dict[str, str]:
    return {os.path.basename(path): path if "://" in path else os.path.abspath(path) for path in paths or ()}


def get_application_logs(
    client: Any, app_id: str, wait_for_nb_logs: Optional[int] = None, log_tries: int = 15
) -> Dict[str, str]:
    """What each task has printed. Nobody need wait for it: logs can be read while a job runs."""
    import ydl

    found: Dict[str, List[str]] = {}
    for line in ydl.Run(app_id).logs():
        found.setdefault(line.task, []).append(line.text)
    return {task: "\n".join(lines) + "\n" for task, lines in found.items()}


def wait_for_finished(client: Any, app_id: str, poll_every_secs: float = 5) -> bool:
    """Waits for the job's end; whether it succeeded. A cluster that does not answer for a while is waited for, too."""
    import ydl

    try:
        return bool(ydl.Run(app_id).wait().succeeded)
    except ydl.JobFailed:
        return False


def upload_logs_to_hdfs(path_on_hdfs: str, local_log_path: str) -> None:
    """Copies a log of this machine into a file system."""
    files, path = filesystem.resolve_filesystem_and_path(path_on_hdfs)
    filesystem.EnhancedFileSystem(files).put(local_log_path, path, preserve_acl=False)
