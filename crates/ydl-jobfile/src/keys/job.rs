//! Keys of the job itself.

use super::{ACLS, GANG, KEYTAB, LOCAL, MASTER, NODE_EXCLUSION, Section, TIMEOUTS};
use crate::{
    cluster::{CHECKPOINT, FILE_SYSTEM, GPU_ASSIGNMENT, NETWORK, PRIORITY, STAGING, Tags},
    data, environment,
    fields::Reader,
    files,
    formats::{BOOL, Format, List, NAME, OmitDefault, SIZE, TEXT, TEXTS},
    mlflow,
    printer::YamlValue,
    read::{FrameworkName, PORTS},
    roles,
};
use ydl_core::JobSpecBuilder;

/// Keys at the top.
pub(crate) const JOB: Section<JobSpecBuilder> = Section {
    default: JobSpecBuilder::default,
    fields: &[
        field! {
            /// Name of the job: letters, digits, `-`, `_` and `.`.
            "name" = TEXT => name,
            example "mnist", default "file name, or name of the directory for `job.yaml`"
        },
        field! {
            /// Framework whose rendezvous the job uses. `none` runs any command.
            "framework" = FrameworkName => framework,
            example "none"
        },
        field! {
            /// Appends `--ps_hosts`, `--worker_hosts`, `--job_name` and `--task_index` to the arguments of TensorFlow
            /// programs, as TensorFlow 1 programs expect. Applies to roles `ps` and `worker` with `run`.
            "cluster_flags" = OmitDefault(BOOL) => cluster_flags,
            example "false", default "`false`",
            also ["flags", "tf_flags", "ps_hosts", "worker_hosts", "job_name", "task_index"]
        },
        field! {
            /// Python environment or image of the programs: a virtual environment or another directory with `bin`, a
            /// `requirements.txt` or `pyproject.toml` from which one is built, or a `.pex` file. On a cluster it is
            /// packed in layers, and changed layers are uploaded; see [Python environments](../how-to/environments.md).
            /// A cluster also takes an archive, local or at `hdfs://…`: `.tar.gz`, `.tgz`, `.tar` or `.zip`. Images are
            /// given as a map or as `docker://image:tag`; see [images](../how-to/docker.md).
            "environment" = by_hand(
                "`system`, a path, or a map",
                "Union[PathLike, Keys]",
                Reader::environment,
                |job| environment::print(&job.environment)
            ),
            example "system", also ["venv", "virtualenv", "python", "image", "docker", "container"]
        },
        field! {
            /// Files and directories that are copied to the working directory of every task. They are copied at submit,
            /// so later edits have no effect; on one machine files above 256 MiB are linked. On a cluster a path may be
            /// `hdfs://…`; such files are not copied.
            "files" = by_hand(
                "list of paths, or of `name: path`",
                "Union[Sequence[Union[PathLike, Keys]], Mapping[str, Union[PathLike, Keys]]]",
                Reader::files,
                files::print
            ),
            example "[{data.csv: ./data.csv}]"
        },
        field! {
            /// Disk space of a node that the inputs of one task may use.
            "disk" = SIZE => disk_mib,
            example "50 GiB", default "95 % of the free space"
        },
        field! {
            /// Data that tasks find under that name in their working directory when their programs start; see [data in
            /// and out](../how-to/data.md). A source is a file, a directory or a pattern with `*`, local or at
            /// `hdfs://…`. It is listed once, at submit.
            "inputs" = by_hand(
                "map of name to source",
                "Mapping[str, Union[PathLike, Keys]]",
                Reader::inputs,
                data::print_inputs
            ),
            example "{train: hdfs:///data/train}", also ["input", "data", "datasets"]
        },
        field! {
            /// Roles of the job, in rank order. The keys of a role are below.
            "roles" = by_hand(
                "map of roles",
                "Mapping[str, RoleLike]",
                Reader::roles,
                roles::print
            ),
            example "{worker: {run: \"true\"}}", default "required"
        },
        field! {
            /// Restart policy of all roles.
            "restart" = described("map", "Keys"),
            example "{limit: 3}", default "see below", also ["restarts", "retry", "retries"]
        },
        field! {
            /// Environment variables of every role.
            "env" = TEXTS => env,
            example "{SEED: 1}", also ["environ", "variables"]
        },
        field! {
            /// Paths in a task's working directory that are copied to a destination when its program has ended, also
            /// after a failure. `{job}`, `{role}` and `{index}` are replaced. Destinations are relative to the job
            /// file, or on a cluster to the user's home directory in HDFS; or `hdfs://…`. The last part of a path may
            /// contain `*`. Two tasks must not write the same file: end a directory with `/` if their files have
            /// different names.
            "outputs" = by_hand(
                "map of path to destination",
                "Mapping[str, Union[PathLike, Keys]]",
                Reader::outputs,
                data::print_outputs
            ),
            example "{model/: \"out/{role}-{index}\"}", also ["output", "results"]
        },
        field! {
            /// Starts all tasks together.
            "gang" = by_hand(
                "`true`, `false` or a map",
                "Union[bool, Keys]",
                Reader::gang,
                |job| GANG.print(&job.gang)
            ),
            example "{together: true}", default "`true` with a framework, otherwise `false`"
        },
        field! {
            /// Timeouts of each phase.
            "timeouts" = TIMEOUTS => timeouts,
            example "{run: 2h}", also ["timeout", "timeouts", "limits"]
        },
        field! {
            /// Excludes nodes on which programs fail.
            "node_exclusion" = NODE_EXCLUSION => node_exclusion,
            example "{failures: 3}"
        },
        field! {
            /// Range in which tasks get free ports. The default is below Linux's range for outgoing connections.
            "ports" = PORTS => ports,
            example "20000-32767"
        },
        field! {
            /// Runs TensorBoard as a separate role in the job's environment; `ydl port-forward JOB` connects to it
            /// ([TensorBoard](../how-to/tensorboard.md)).
            "tensorboard" = by_hand(
                "`true`, a directory, or a map",
                "Union[bool, str, Keys]",
                Reader::tensorboard,
                |_| YamlValue::Omitted
            ),
            example "true", default "`false`", also ["tb", "board", "tensor_board"]
        },
        field! {
            /// Queue on a cluster. Ignored on one machine.
            "queue" = NAME => cluster_options.queue,
            example "default", default "`default`"
        },
        field! {
            /// Node label of the job on a cluster. Ignored on one machine.
            "node_label" = NAME => cluster_options.node_label,
            example "gpu", default "default of the queue", also ["label", "node_labels"]
        },
        field! {
            /// Component that assigns GPUs to tasks on a cluster. `cluster`: YARN, which counts `yarn.io/gpu`. `agent`:
            /// the agents of a node, for clusters that do not count GPUs; use `node_label` to select nodes that have
            /// them.
            "gpu_assignment" = OmitDefault(GPU_ASSIGNMENT) => cluster_options.gpu_assignment,
            example "agent", default "`cluster`"
        },
        field! {
            /// Tags of the application on a cluster, up to ten.
            "tags" = Tags => cluster_options.tags,
            example "[nightly]"
        },
        field! {
            /// Priority among the jobs of a queue; the highest number goes first.
            "priority" = PRIORITY => cluster_options.priority,
            example "5", default "default of the queue"
        },
        field! {
            /// Access of other users to the job on a cluster.
            "acls" = ACLS => cluster_options,
            example "{view: \"*\"}", default "see below", also ["acl", "permissions"]
        },
        field! {
            /// Additional file systems that programs use. On a secure cluster the job gets a token for each, and for a
            /// `viewfs` one for each file system that it mounts; elsewhere no token is needed.
            "file_systems" = List { kind: "list of `hdfs://…` or `viewfs://…`", item: FILE_SYSTEM } => cluster_options.file_systems,
            example "[\"hdfs://other:8020\"]", also ["namenodes", "filesystems"]
        },
        field! {
            /// Directory in HDFS for files that are sent to the nodes.
            "staging" = STAGING => cluster_options.staging,
            example "/user/alice/staging", default "`.ydl` in the user's home directory",
            also ["staging_dir", "staging_directory"]
        },
        field! {
            /// Network of a node that tasks use to reach each other, if it has several: an interface such as `eth1`, or
            /// its address range, such as `10.1.0.0/16`. Nodes without this network are excluded. Lower precedence:
            /// `YDL_NODE_ADDRESS`, which a node's administrator can set in `yarn.nodemanager.admin-env`, and then the
            /// address from which the node reaches the master.
            "network" = NETWORK => cluster_options.network,
            example "10.1.0.0/16", default "the route to the job's master"
        },
        field! {
            /// Location of `YDL_CHECKPOINT`, which outlives containers. An absolute path is a directory on shared
            /// storage and used as it is. A directory in HDFS, or on a cluster a path relative to the user's home
            /// directory there, is downloaded to the node before each attempt and uploaded while the program runs
            /// ([checkpoints](../how-to/checkpoints.md)). `{job}` is replaced; without it a later job continues from
            /// the same checkpoint.
            "checkpoint" = CHECKPOINT => cluster_options.checkpoint,
            example "hdfs:///user/me/checkpoints/{job}", default "a directory of the job"
        },
        field! {
            /// Keytab with which a job on a secure cluster outlives the maximum lifetime of its tokens; without it
            /// tokens are renewed until then. It is checked at submit and sent to masters only. They request new tokens
            /// in time and pass them to the agents.
            "keytab" = by_hand(
                "map",
                "Keys",
                Reader::keytab,
                |job| KEYTAB.optional(job.cluster_options.keytab.as_ref())
            ),
            example "{principal: alice@EXAMPLE.COM, path: ./alice.keytab}"
        },
        field! {
            /// MLflow tracking server to which the master reports the job, its progress and its result; `true` takes
            /// the address from `MLFLOW_TRACKING_URI` ([MLflow](../how-to/mlflow.md)).
            "mlflow" = by_hand(
                "`true`, an address, or a map",
                "Union[bool, str, Keys]",
                Reader::mlflow,
                mlflow::print
            ),
            example "http://mlflow.example.com:5000", default "`false`"
        },
        field! {
            /// Container of the job's master on a cluster.
            "master" = MASTER => cluster_options.master,
            example "{memory: 512 MiB}", also ["am", "application_master"]
        },
        field! {
            /// Options on one machine. Ignored on a cluster.
            "local" = LOCAL => local,
            example "{directory: .}"
        },
    ],
};
