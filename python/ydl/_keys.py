"""Keys of jobs and roles.

Generated from crates/ydl-jobfile/src/keys by `UPDATE_EXPECT=1 cargo test -p ydl --test cli jobfile`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Union

if TYPE_CHECKING:
    import os
    from datetime import timedelta
    from typing import Optional, Sequence

    from typing_extensions import TypedDict

PathLike = Union[str, "os.PathLike[str]"]
Keys = Mapping[str, Any]

if TYPE_CHECKING:

    class JobKeys(TypedDict, total=False):
        """Keywords of `Job` that are keys of a job file."""

        framework: Optional[str]
        cluster_flags: Optional[bool]
        environment: Optional[Union[PathLike, Keys]]
        files: Optional[Union[Sequence[Union[PathLike, Keys]], Mapping[str, Union[PathLike, Keys]]]]
        disk: Optional[str]
        inputs: Optional[Mapping[str, Union[PathLike, Keys]]]
        restart: Optional[Keys]
        env: Optional[Mapping[str, object]]
        outputs: Optional[Mapping[str, Union[PathLike, Keys]]]
        gang: Optional[Union[bool, Keys]]
        timeouts: Optional[Keys]
        node_exclusion: Optional[Keys]
        ports: Optional[str]
        tensorboard: Optional[Union[bool, str, Keys]]
        queue: Optional[str]
        node_label: Optional[str]
        gpu_assignment: Optional[str]
        tags: Optional[Sequence[str]]
        priority: Optional[int]
        acls: Optional[Keys]
        file_systems: Optional[Sequence[str]]
        staging: Optional[str]
        network: Optional[str]
        checkpoint: Optional[PathLike]
        keytab: Optional[Keys]
        mlflow: Optional[Union[bool, str, Keys]]
        master: Optional[Keys]
        local: Optional[Keys]

    class RoleKeys(TypedDict, total=False):
        """Keywords of `Role` that are keys of a job file."""

        processes: Optional[int]
        memory: Optional[Union[str, int]]
        vcores: Optional[int]
        gpus: Optional[int]
        resources: Optional[Mapping[str, object]]
        shell: Optional[str]
        environment: Optional[Union[str, Keys]]
        env: Optional[Mapping[str, object]]
        restart: Optional[Keys]
        completion: Optional[str]
        tolerate: Optional[Union[int, str]]
        memory_growth: Optional[Keys]
        depends_on: Optional[Sequence[str]]
        ports: Optional[Sequence[str]]
        node_label: Optional[str]
        placement: Optional[Keys]

JOB_KEYS: Dict[str, str] = {
    "framework": "str",
    "cluster_flags": "bool",
    "environment": "Union[PathLike, Keys]",
    "files": "Union[Sequence[Union[PathLike, Keys]], Mapping[str, Union[PathLike, Keys]]]",
    "disk": "str",
    "inputs": "Mapping[str, Union[PathLike, Keys]]",
    "restart": "Keys",
    "env": "Mapping[str, object]",
    "outputs": "Mapping[str, Union[PathLike, Keys]]",
    "gang": "Union[bool, Keys]",
    "timeouts": "Keys",
    "node_exclusion": "Keys",
    "ports": "str",
    "tensorboard": "Union[bool, str, Keys]",
    "queue": "str",
    "node_label": "str",
    "gpu_assignment": "str",
    "tags": "Sequence[str]",
    "priority": "int",
    "acls": "Keys",
    "file_systems": "Sequence[str]",
    "staging": "str",
    "network": "str",
    "checkpoint": "PathLike",
    "keytab": "Keys",
    "mlflow": "Union[bool, str, Keys]",
    "master": "Keys",
    "local": "Keys",
}

JOB_DOC = """
framework: Framework whose rendezvous the job uses. `none` runs any command.
cluster_flags: Appends `--ps_hosts`, `--worker_hosts`, `--job_name` and `--task_index` to the arguments of TensorFlow
    programs, as TensorFlow 1 programs expect. Applies to roles `ps` and `worker` with `run`.
environment: Python environment or image of the programs: a virtual environment or another directory with `bin`, a
    `requirements.txt` or `pyproject.toml` from which one is built, or a `.pex` file. On a cluster it is packed in
    layers, and changed layers are uploaded; see Python environments. A cluster also takes an archive, local or at
    `hdfs://…`: `.tar.gz`, `.tgz`, `.tar` or `.zip`. Images are given as a map or as `docker://image:tag`; see images.
files: Files and directories that are copied to the working directory of every task. They are copied at submit, so later
    edits have no effect; on one machine files above 256 MiB are linked. On a cluster a path may be `hdfs://…`; such
    files are not copied.
disk: Disk space of a node that the inputs of one task may use.
inputs: Data that tasks find under that name in their working directory when their programs start; see data in and out.
    A source is a file, a directory or a pattern with `*`, local or at `hdfs://…`. It is listed once, at submit.
restart: Restart policy of all roles.
env: Environment variables of every role.
outputs: Paths in a task's working directory that are copied to a destination when its program has ended, also after a
    failure. `{job}`, `{role}` and `{index}` are replaced. Destinations are relative to the job file, or on a cluster to
    the user's home directory in HDFS; or `hdfs://…`. The last part of a path may contain `*`. Two tasks must not
    write the same file: end a directory with `/` if their files have different names.
gang: Starts all tasks together.
timeouts: Timeouts of each phase.
node_exclusion: Excludes nodes on which programs fail.
ports: Range in which tasks get free ports. The default is below Linux's range for outgoing connections.
tensorboard: Runs TensorBoard as a separate role in the job's environment; `ydl port-forward JOB` connects to it
    (TensorBoard).
queue: Queue on a cluster. Ignored on one machine.
node_label: Node label of the job on a cluster. Ignored on one machine.
gpu_assignment: Component that assigns GPUs to tasks on a cluster. `cluster`: YARN, which counts `yarn.io/gpu`. `agent`:
    the agents of a node, for clusters that do not count GPUs; use `node_label` to select nodes that have them.
tags: Tags of the application on a cluster, up to ten.
priority: Priority among the jobs of a queue; the highest number goes first.
acls: Access of other users to the job on a cluster.
file_systems: Additional file systems that programs use. On a secure cluster the job gets a token for each, and for a
    `viewfs` one for each file system that it mounts; elsewhere no token is needed.
staging: Directory in HDFS for files that are sent to the nodes.
network: Network of a node that tasks use to reach each other, if it has several: an interface such as `eth1`, or its
    address range, such as `10.1.0.0/16`. Nodes without this network are excluded. Lower precedence: `YDL_NODE_ADDRESS`,
    which a node's administrator can set in `yarn.nodemanager.admin-env`, and then the address from which the node
    reaches the master.
checkpoint: Location of `YDL_CHECKPOINT`, which outlives containers. An absolute path is a directory on shared storage
    and used as it is. A directory in HDFS, or on a cluster a path relative to the user's home directory there, is
    downloaded to the node before each attempt and uploaded while the program runs (checkpoints). `{job}` is replaced;
    without it a later job continues from the same checkpoint.
keytab: Keytab with which a job on a secure cluster outlives the maximum lifetime of its tokens; without it tokens are
    renewed until then. It is checked at submit and sent to masters only. They request new tokens in time and pass them
    to the agents.
mlflow: MLflow tracking server to which the master reports the job, its progress and its result; `true` takes the
    address from `MLFLOW_TRACKING_URI` (MLflow).
master: Container of the job's master on a cluster.
local: Options on one machine. Ignored on a cluster.
"""

ROLE_KEYS: Dict[str, str] = {
    "processes": "int",
    "memory": "Union[str, int]",
    "vcores": "int",
    "gpus": "int",
    "resources": "Mapping[str, object]",
    "shell": "str",
    "environment": "Union[str, Keys]",
    "env": "Mapping[str, object]",
    "restart": "Keys",
    "completion": "str",
    "tolerate": "Union[int, str]",
    "memory_growth": "Keys",
    "depends_on": "Sequence[str]",
    "ports": "Sequence[str]",
    "node_label": "str",
    "placement": "Keys",
}

ROLE_DOC = """
processes: Number of processes of the command in each task, up to 64, in one container; for `none`, `pytorch`, `horovod`
    and `jax`. The task succeeds when all processes have, and fails with the first that fails. See several processes in
    one task.
memory: Memory of each task, at least 32 MiB. A task that exceeds it is killed. On one machine this covers the program
    and all its child processes. On a cluster the node enforces it, if configured to, and includes about 20 MiB for
    ydl's own two processes.
vcores: Virtual cores of each task: a share, not a limit. On one machine there are four for each CPU.
gpus: GPUs of each task, assigned exclusively.
resources: Other countable resources, by their name on the cluster.
shell: Script for `/bin/sh -c`, instead of `run`.
environment: Environment of this role's programs: an image, with the keys of `environment`, or `system` for the plain
    node. A packed environment is the same for all roles.
env: Environment variables of this role. They override those of the job.
restart: Restart policy of this role; keys as in `restart`.
completion: Effect of the role's end on the job. `all`: the job needs every task to succeed. `any`: the job needs one
    task to succeed. `primary`: the job has succeeded when all tasks of this role have. `service`: the role need not end
    and is stopped with the others. `follows`: the role ends by itself after the others, and is stopped after
    `timeouts.follow`. `sidecar`: the role is not part of the job, like TensorBoard or a notebook: it has no rank, is
    unknown to the framework, is started when the others begin to run, is stopped with them, and neither its failures
    nor its end affect the job.
tolerate: Number of tasks that may fail permanently before the job fails. With `all` failures of this role are ignored.
memory_growth: Increases the memory of a task that was killed for exceeding it.
depends_on: Roles that run first: tasks of this role request containers when every task of those roles has run, whether
    or not it has ended. A restarted task does not wait. Only for tasks that start independently (`gang: false`).
ports: Names of ports for the program, passed as variables such as `YDL_PORT_HTTP`.
node_label: Node label of this role on a cluster.
placement: Placement of the role's tasks on a cluster. Ignored on one machine.
"""
