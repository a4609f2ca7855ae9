//! Every variable that ydl reads or sets, in one place.

/// The job's id.
pub const JOB: &str = "YDL_JOB";
/// The task's role.
pub const ROLE: &str = "YDL_ROLE";
/// The task's index in its role, from 0.
pub const INDEX: &str = "YDL_INDEX";
/// Which try of this task this is, from 1.
pub const ATTEMPT: &str = "YDL_ATTEMPT";
/// Which gathering of the gang this is, from 1.
pub const ROUND: &str = "YDL_ROUND";
/// The process' number among all processes of the job.
pub const RANK: &str = "YDL_RANK";
/// How many processes the job has: one for each task, unless a role has more.
pub const WORLD_SIZE: &str = "YDL_WORLD_SIZE";
/// The process' number among those of its task.
pub const LOCAL_RANK: &str = "YDL_LOCAL_RANK";
/// How many processes its task has.
pub const LOCAL_WORLD_SIZE: &str = "YDL_LOCAL_WORLD_SIZE";
/// Everybody in this round, as JSON.
pub const CLUSTER: &str = "YDL_CLUSTER";
/// A file with the same: very large clusters are only there.
pub const CLUSTER_FILE: &str = "YDL_CLUSTER_FILE";
/// Where the master is: `https://host:port`.
pub const MASTER: &str = "YDL_MASTER";
/// A file with where the master is now, which changes when it moves.
pub const MASTER_FILE: &str = "YDL_MASTER_FILE";
/// A file with the token that opens the key-value store to this task.
pub const TOKEN_FILE: &str = "YDL_TOKEN_FILE";
/// A file with the master's certificate (PEM), the only one to be trusted.
pub const CERTIFICATE_FILE: &str = "YDL_CERTIFICATE_FILE";
/// A directory that survives attempts and rounds.
pub const CHECKPOINT: &str = "YDL_CHECKPOINT";
/// Where in HDFS what is in that directory is saved, if it does not outlive its container by itself.
pub const CHECKPOINT_URL: &str = "YDL_CHECKPOINT_URL";
/// This very program: inside a task its path, for Python's package the one to be used.
pub const BINARY: &str = "YDL_BINARY";
/// MLflow's server, for what programs tell it themselves; and its run of this job, and that run's experiment.
pub const MLFLOW_TRACKING_URI: &str = "MLFLOW_TRACKING_URI";
/// The run.
pub const MLFLOW_RUN_ID: &str = "MLFLOW_RUN_ID";
/// The run's experiment.
pub const MLFLOW_EXPERIMENT_ID: &str = "MLFLOW_EXPERIMENT_ID";
/// The container's id; also how processes of a container are told from others.
pub const CONTAINER: &str = "YDL_CONTAINER";
/// The devices of a node, said by its administrator; otherwise they are looked for.
pub const GPUS: &str = "YDL_GPUS";
/// Begins the name of each port the role asked for: `YDL_PORT_HTTP`.
pub const PORT_PREFIX: &str = "YDL_PORT_";

/// The tokens of a container on a cluster; its program finds those it may use there.
pub const HADOOP_TOKEN_FILE_LOCATION: &str = "HADOOP_TOKEN_FILE_LOCATION";
/// Who a program is to a cluster that believes everybody.
pub const HADOOP_USER_NAME: &str = "HADOOP_USER_NAME";
/// The container that a NodeManager has started.
pub const CONTAINER_ID: &str = "CONTAINER_ID";
/// The address at which peers reach this node, where its administrator has set it (`yarn.nodemanager.admin-env`).
pub const NODE_ADDRESS: &str = "YDL_NODE_ADDRESS";
/// What a NodeManager calls its node.
pub const NM_HOST: &str = "NM_HOST";
/// The user of a container, whoever its processes belong to.
pub const USER: &str = "USER";
/// What a NodeManager runs a container with: `docker` or `runc`. It and those below are set in launch contexts, and seen by
/// whoever runs in them.
pub const RUNTIME_TYPE: &str = "YARN_CONTAINER_RUNTIME_TYPE";
/// The image of a docker container.
pub const DOCKER_IMAGE: &str = "YARN_CONTAINER_RUNTIME_DOCKER_IMAGE";
/// What of the node it sees.
pub const DOCKER_MOUNTS: &str = "YARN_CONTAINER_RUNTIME_DOCKER_MOUNTS";
/// Its network.
pub const DOCKER_NETWORK: &str = "YARN_CONTAINER_RUNTIME_DOCKER_CONTAINER_NETWORK";
/// Whether it is privileged.
pub const DOCKER_PRIVILEGED: &str = "YARN_CONTAINER_RUNTIME_DOCKER_RUN_PRIVILEGED_CONTAINER";
/// Whether it stays for a while after its end.
pub const DOCKER_DELAYED_REMOVAL: &str = "YARN_CONTAINER_RUNTIME_DOCKER_DELAYED_REMOVAL";
/// Where its registry's login is.
pub const DOCKER_CLIENT_CONFIG: &str = "YARN_CONTAINER_RUNTIME_DOCKER_CLIENT_CONFIG";
/// Whether the image's own command runs instead of what was submitted.
pub const DOCKER_RUN_OVERRIDE_DISABLE: &str = "YARN_CONTAINER_RUNTIME_DOCKER_RUN_OVERRIDE_DISABLE";
/// The image of a runc container.
pub const RUNC_IMAGE: &str = "YARN_CONTAINER_RUNTIME_RUNC_IMAGE";
/// What of the node it sees.
pub const RUNC_MOUNTS: &str = "YARN_CONTAINER_RUNTIME_RUNC_MOUNTS";

/// Where the state of local jobs is kept: `$XDG_STATE_HOME/ydl`.
pub const XDG_STATE_HOME: &str = "XDG_STATE_HOME";
/// Without colours, whatever the terminal can do.
pub const NO_COLOR: &str = "NO_COLOR";
/// Where packed and built environments are kept: `$XDG_CACHE_HOME/ydl`.
pub const XDG_CACHE_HOME: &str = "XDG_CACHE_HOME";
/// The active virtual environment, which `ydl pack` takes if it is told of no other.
pub const VIRTUAL_ENV: &str = "VIRTUAL_ENV";
/// The active conda environment.
pub const CONDA_PREFIX: &str = "CONDA_PREFIX";
