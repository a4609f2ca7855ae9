"""Translates tf-yarn's arguments into a job, and rejects invalid ones before anything is uploaded."""

import logging
import os
import re
import shlex
import sys
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from ..cluster_pack.uploader import local_path
from . import mlflow
from .bundle import FOLDER
from .names import real_name
from .topologies import ALL_TASK_TYPES, SIDE_TASKS, NodeLabel, TaskSpec, TaskSpecs, check_types

logger = logging.getLogger(__name__)

TENSORBOARD_MODULE = "tf_yarn.tensorflow.tasks._tensorboard_task"
GLOO_MODULE = "gloo_allred_task"
LINGER_SECONDS = 30
"""Default time for which TensorBoard continues after the other tasks."""

# Lets a pex import the job's own folder, and unpack its files in the task's directory.
PEX = {"PEX_INHERIT_PATH": "fallback", "PEX_ROOT": ".pex"}

PathLike = Union[str, "os.PathLike[str]"]
PyEnv = Union[PathLike, Mapping[NodeLabel, str], None]


class Call(NamedTuple):
    """Arguments of any `run_on_yarn`."""

    task_specs: TaskSpecs
    framework: str
    """`tensorflow`, `pytorch` or `none`; Horovod is recognized by the module."""
    module: str
    pyenv_zip_path: PyEnv = None
    files: Optional[Mapping[str, PathLike]] = None
    env: Optional[Mapping[str, str]] = None
    queue: str = "default"
    acls: Any = None
    file_systems: Optional[Sequence[str]] = None
    nb_retries: int = 0
    name: str = "RunOnYarn"
    pre_script_hook: Optional[str] = None
    cuda_runtime_hdfs_path: Optional[str] = None


class Environment(NamedTuple):
    """Key `environment` of the job, command of its Python in a task, and the files and variables that it needs."""

    source: str
    python: Tuple[str, ...]
    files: Mapping[str, Any] = {}
    env: Mapping[str, str] = {}


def validated(call: Call) -> Call:
    """Returns a valid call unchanged. Raises ValueError otherwise."""
    if call.nb_retries < 0:
        raise ValueError("nb_retries must not be negative, got {}".format(call.nb_retries))
    if not call.task_specs:
        raise ValueError("task_specs is empty")
    check_types(call.task_specs)
    for kind, spec in call.task_specs.items():
        if not isinstance(spec, TaskSpec):
            raise ValueError("task_specs[`{}`] is a `{}`, expected a TaskSpec".format(kind, type(spec).__name__))
        if spec.instances < 1:
            raise ValueError("task_specs[`{}`] has {} instances, expected at least 1".format(kind, spec.instances))
    return call


def environment_of(pyenv: PyEnv, specs: TaskSpecs) -> Environment:
    """Returns the environment of all tasks. The path of an interpreter must exist on every node."""
    if isinstance(pyenv, Mapping):
        missing = [spec.label for spec in specs.values() if spec.label not in pyenv]
        if missing:
            raise ValueError("pyenv_zip_path has no environment for {}".format(missing[0]))
        paths = sorted({os.fspath(pyenv[spec.label]) for spec in specs.values()})
        if len(paths) > 1:
            raise ValueError(
                "all tasks of a job have the same environment, but pyenv_zip_path has `{}` and `{}`: "
                "TensorFlow from 1.15 on supports CPUs and GPUs in one environment".format(*paths[:2])
            )
        pyenv = paths[0]
    if pyenv is None:
        from ydl.functions import default_environment

        source = default_environment()
        return Environment(source, (sys.executable if source == "system" else "python",))
    path = local_path(os.fspath(pyenv))
    if re.match(r"^python[\d.]*$", os.path.basename(path)) and os.access(path, os.X_OK) and not os.path.isdir(path):
        return Environment("system", (os.path.abspath(path),))
    if "://" not in path:
        return Environment(os.path.abspath(path), ("python",))
    name = os.path.basename(path)
    # A pex on this machine is packed; one in HDFS is run by the Python of the node.
    if name.endswith(".pex"):
        return Environment("system", ("python3", name), {name: path}, PEX)
    if name.endswith(".pex.zip"):
        return Environment("system", ("python3", "pyenv"), {"pyenv": {"source": path, "unpack": True}}, PEX)
    return Environment(path, ("python",))


def framework_of(call: Call) -> str:
    """Returns the framework; Horovod is recognized by the task module."""
    # tf-yarn 0.4 has `_gloo_allred_task`.
    return "horovod" if call.module.split(".")[-1].lstrip("_") == GLOO_MODULE else call.framework


def cuda_hook(hook: Optional[str], path: Optional[str], env: Mapping[str, str]) -> str:
    """Returns the script to run before a task's command, which fetches CUDA from HDFS first."""
    hook = hook or ""
    if not path:
        return hook
    if "LD_LIBRARY_PATH" not in env:
        logger.warning("cuda_runtime_hdfs_path has no effect without LD_LIBRARY_PATH in env")
        return hook
    name = os.path.basename(path)
    fetch = "hdfs dfs -get {};{}mkdir cuda; tar -xf {} -C ./cuda;".format(path, " " * 10, name)
    return fetch + hook


def command(python: Sequence[str], module: str, hook: str) -> List[str]:
    """Returns a task's command, with a hook as a shell script that ends with the command."""
    program = [*python, "-m", real_name("tf_yarn.start"), module]
    if not hook:
        return program
    return ["bash", "-c", "set -x\n{}\nexec {}".format(hook, " ".join(map(shlex.quote, program)))]


def variables(call: Call, environment: Environment) -> Dict[str, str]:
    """Returns the variables of all tasks. Variables of the caller win."""
    env = {**environment.env, **{str(name): str(value) for name, value in (call.env or {}).items()}}
    env["PYTHONPATH"] = ":".join(filter(None, [".", FOLDER, env.get("PYTHONPATH")]))
    env["LIBHDFS_OPTS"] = " ".join(filter(None, ["-Xms64m -Xmx512m", env.get("LIBHDFS_OPTS")]))
    more = dict(mlflow.variables())
    if call.framework == "pytorch":
        # Set by tf-yarn, too.
        more["NCCL_DEBUG"] = "INFO"
    for name, value in more.items():
        env.setdefault(name, value)
    return env


def acls_of(acls: Any) -> Optional[Dict[str, str]]:
    """Converts skein's ACLs; a mapping is used unchanged. Without ACLs only the owner sees the job."""
    if acls is None or isinstance(acls, Mapping):
        return None if acls is None else dict(acls)
    if not getattr(acls, "enable", True):
        return None

    def users_and_groups(kind: str) -> str:
        users = ",".join(getattr(acls, kind + "_users", None) or [])
        groups = ",".join(getattr(acls, kind + "_groups", None) or [])
        return "*" if "*" in (users, groups) else "{} {}".format(users, groups).rstrip()

    lists = {kind: users_and_groups(kind) for kind in ("view", "modify")}
    # ydl has one list for skein's page and the job.
    if not lists["view"] and getattr(acls, "ui_users", None):
        lists["view"] = "*" if "*" in acls.ui_users else ",".join(acls.ui_users)
    return {kind: text for kind, text in lists.items() if text} or None


def file_systems_of(call: Call) -> Optional[List[str]]:
    """Returns additional file systems that need tokens. A process with tokens and no ticket cannot get others."""
    if call.file_systems and os.environ.get("HADOOP_TOKEN_FILE_LOCATION"):
        logger.info("file_systems is ignored: the tokens are those in HADOOP_TOKEN_FILE_LOCATION")
        return None
    return list(call.file_systems) if call.file_systems else None


def job_name(name: str) -> str:
    """Replaces characters that are not allowed in the name of a job."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-_.") or "RunOnYarn"


def completion_of(kind: str, specs: TaskSpecs) -> str:
    """Returns the completion rule of a role. Servers are stopped when workers and chief have ended."""
    trains = any(kind in specs for kind in ("chief", "worker"))
    if kind == "tensorboard" or (kind == "evaluator" and trains):
        return "follows"
    return "service" if kind == "ps" and trains else "all"


def job_keys(call: Call, environment: Environment) -> Dict[str, Any]:
    """Returns the arguments of `ydl.Job` without files."""
    framework = framework_of(call)
    hook = cuda_hook(call.pre_script_hook, call.cuda_runtime_hdfs_path, call.env or {})
    roles: Dict[str, Dict[str, Any]] = {}
    for kind in ALL_TASK_TYPES:
        if kind in call.task_specs:
            roles[kind] = _role(kind, call, framework, environment.python, hook)
    linger = max([_linger(call.task_specs["tensorboard"])] if "tensorboard" in call.task_specs else [0])
    keys = {
        "name": job_name(call.name),
        "roles": roles,
        "framework": framework,
        "environment": environment.source,
        "env": variables(call, environment),
        "queue": call.queue,
        "acls": acls_of(call.acls),
        "file_systems": file_systems_of(call),
        "restart": {"limit": call.nb_retries, "scope": "job"} if call.nb_retries else None,
        "timeouts": {"follow": "{}s".format(max(1800, linger + 300))} if any(k in roles for k in SIDE_TASKS) else None,
        "gang": True if framework == "none" else None,
    }
    return {name: value for name, value in keys.items() if value is not None}


def _role(kind: str, call: Call, framework: str, python: Sequence[str], hook: str) -> Dict[str, Any]:
    spec = call.task_specs[kind]
    module = TENSORBOARD_MODULE if kind == "tensorboard" else call.module
    role: Dict[str, Any] = {
        "instances": spec.instances,
        "memory": spec.memory,
        "vcores": spec.vcores,
        "run": command(python, module, hook),
        "completion": completion_of(kind, call.task_specs),
    }
    if spec.label.value:
        role["node_label"] = spec.label.value
    if spec.gpus:
        role["gpus"] = spec.gpus
    if kind not in SIDE_TASKS and spec.nb_proc_per_worker > 1:
        if framework == "tensorflow":
            logger.warning("nb_proc_per_worker has no effect with TensorFlow: a task is one process")
        else:
            role["processes"] = spec.nb_proc_per_worker
    if kind in SIDE_TASKS:
        # Side tasks restart alone.
        role["restart"] = {"scope": "task", "limit": call.nb_retries}
    if kind == "tensorboard":
        role["ports"] = ["http"]
        role["restart"] = {"scope": "task", "limit": max(3, call.nb_retries)}
        env = {"TB_TERMINATION_TIMEOUT_SECONDS": str(_linger(spec))}
        env.update({"TB_MODEL_DIR": spec.tb_model_dir} if spec.tb_model_dir else {})
        env.update({"TB_EXTRA_ARGS": spec.tb_extra_args} if spec.tb_extra_args else {})
        role["env"] = env
    elif framework == "none":
        role["ports"] = ["master"]
    return role


def _linger(spec: TaskSpec) -> int:
    seconds = spec.tb_termination_timeout_seconds
    return LINGER_SECONDS if seconds is None or seconds < 0 else seconds
