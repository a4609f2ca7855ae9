"""Runs a function or module on the cluster, with the API of cluster-pack's launcher for skein. The Kerberos ticket is not shipped:
tasks get tokens."""

import getpass
import logging
import os
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from . import filesystem

logger = logging.getLogger(__name__)

__all__ = ["get_application_logs", "submit", "submit_func", "upload_logs_to_hdfs", "wait_for_finished"]


class _Request(NamedTuple):
    """Common arguments of `submit` and `submit_func`."""

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
    """Runs `python -m module_name` in containers. Returns the job's id without waiting."""
    request = _Request(
        name, num_cores, memory, package_path, hadoop_file_systems, queue, env_vars, additional_files, node_label,
        num_containers, user, pre_script_hook, max_attempts, max_restarts, process_logs,
    )  # fmt: skip
    return _submit_job(request, cluster, lambda builder: builder.for_command(["-m", module_name, *map(str, args or [])]))


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
    """Calls a function in containers. Returns the job's id without waiting."""
    request = _Request(
        name, num_cores, memory, package_path, hadoop_file_systems, queue, env_vars, additional_files, node_label,
        num_containers, user, pre_script_hook, max_attempts, max_restarts, process_logs,
    )  # fmt: skip
    return _submit_job(request, cluster, lambda builder: builder.for_function(func, args))


class _JobBuilder:
    """Builder of the job."""

    def __init__(self, request: _Request) -> None:
        from ..tf_yarn.plan import environment_of, job_name

        self.environment = environment_of(request.package_path, {})
        self.setup_script = request.pre_script_hook
        self.role: Dict[str, Any] = {
            "instances": request.num_containers, "memory": request.memory, "vcores": request.num_cores,
            "node_label": request.node_label or None,
        }  # fmt: skip
        self.keys: Dict[str, Any] = {
            "name": job_name(request.name),
            "environment": self.environment.source,
            "files": {**self.environment.files, **_files(request.additional_files)},
            "env": {**self.environment.env, **(request.env_vars or {})},
            "queue": request.queue,
            "file_systems": request.hadoop_file_systems,
            "restart": {"limit": max(0, request.max_restarts)},
            "master": {"attempts": max(1, request.max_attempts)},
        }

    def for_command(self, arguments: Sequence[str]) -> Any:
        import ydl
        from ydl.functions import with_setup

        run = with_setup(self.setup_script, [*self.environment.python, *arguments])
        return ydl.Job(roles={"worker": ydl.Role(run, **self.role)}, **self.keys)

    def for_function(self, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        import ydl

        python = self.environment.python
        if len(python) > 1:
            raise ValueError("a function cannot run in a pex in HDFS: pass the path of a pex on this machine")
        job = ydl.Job.from_function(
            function, args, roles={"worker": ydl.Role(**self.role)},
            python=None if python[0] == sys.executable else python[0], **self.keys,
        )  # fmt: skip
        if self.setup_script and job._bundle is not None:
            job._bundle.setup_script = self.setup_script
        return job


def _submit_job(request: _Request, cluster: Optional[str], build: Callable[[_JobBuilder], Any]) -> str:
    if request.user is not None and request.user not in (getpass.getuser(), os.environ.get("HADOOP_USER_NAME")):
        raise ValueError(
            "the job would not be submitted as `{}`: set HADOOP_PROXY_USER".format(request.user)
        )
    if request.process_logs is not None:
        logger.warning("process_logs is not called: use `ydl logs` or get_application_logs")
    return str(build(_JobBuilder(request)).submit(cluster=cluster).id)


def _files(paths: Optional[Sequence[str]]) -> Dict[str, str]:
    return {os.path.basename(path): path if "://" in path else os.path.abspath(path) for path in paths or ()}


def get_application_logs(
    client: Any, app_id: str, wait_for_nb_logs: Optional[int] = None, log_tries: int = 15
) -> Dict[str, str]:
    """Returns the output of each task, also while the job runs."""
    import ydl

    found: Dict[str, List[str]] = {}
    for line in ydl.Run(app_id).logs():
        found.setdefault(line.task, []).append(line.text)
    return {task: "\n".join(lines) + "\n" for task, lines in found.items()}


def wait_for_finished(client: Any, app_id: str, poll_every_secs: float = 5) -> bool:
    """Waits for the job's end. Returns True if it succeeded. Temporary connection failures are retried."""
    import ydl

    try:
        return bool(ydl.Run(app_id).wait().succeeded)
    except ydl.JobFailed:
        return False


def upload_logs_to_hdfs(path_on_hdfs: str, local_log_path: str) -> None:
    """Uploads a local log."""
    files, path = filesystem.resolve_filesystem_and_path(path_on_hdfs)
    filesystem.EnhancedFileSystem(files).put(local_log_path, path, preserve_acl=False)
