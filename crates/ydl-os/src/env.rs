//! Environment variables that ydl reads or sets.

/// Id of the job.
pub const JOB: &str = "YDL_JOB";
/// Role of the task.
pub const ROLE: &str = "YDL_ROLE";
/// Index of the task in its role, from 0.
pub const INDEX: &str = "YDL_INDEX";
/// Attempt of the task, from 1.
pub const ATTEMPT: &str = "YDL_ATTEMPT";
/// Round of the gang, from 1.
pub const ROUND: &str = "YDL_ROUND";
/// Rank of the process among all processes of the job.
pub const RANK: &str = "YDL_RANK";
/// Number of processes of the job: one for each task, unless a role has more.
pub const WORLD_SIZE: &str = "YDL_WORLD_SIZE";
/// Rank of the process among those of its task.
pub const LOCAL_RANK: &str = "YDL_LOCAL_RANK";
/// Number of processes of the task.
pub const LOCAL_WORLD_SIZE: &str = "YDL_LOCAL_WORLD_SIZE";
/// Members of this round, as JSON.
pub const CLUSTER: &str = "YDL_CLUSTER";
/// File with the same content, also for clusters too large for a variable.
pub const CLUSTER_FILE: &str = "YDL_CLUSTER_FILE";
/// Address of the master at the program's start: `https://host:port`.
pub const MASTER: &str = "YDL_MASTER";
/// File with the current address of the master, which changes when the master moves.
pub const MASTER_FILE: &str = "YDL_MASTER_FILE";
/// File with the token for the key-value store.
pub const TOKEN_FILE: &str = "YDL_TOKEN_FILE";
/// File with the master's certificate (PEM), the only one to trust.
pub const CERTIFICATE_FILE: &str = "YDL_CERTIFICATE_FILE";
/// Directory that survives attempts and rounds.
pub const CHECKPOINT: &str = "YDL_CHECKPOINT";
/// URL in HDFS to which that directory is saved, if it does not outlive its container by itself.
pub const CHECKPOINT_URL: &str = "YDL_CHECKPOINT_URL";
/// Path of the `ydl` binary: set inside a task, read by the Python package.
pub const BINARY: &str = "YDL_BINARY";
/// Address of the MLflow server.
pub const MLFLOW_TRACKING_URI: &str = "MLFLOW_TRACKING_URI";
/// MLflow run of this job.
pub const MLFLOW_RUN_ID: &str = "MLFLOW_RUN_ID";
/// MLflow experiment of that run.
pub const MLFLOW_EXPERIMENT_ID: &str = "MLFLOW_EXPERIMENT_ID";
/// Id of the container; also tells the processes of a container from others.
pub const CONTAINER: &str = "YDL_CONTAINER";
/// GPUs of a node as set by its administrator; detected if unset.
pub const GPUS: &str = "YDL_GPUS";
/// Prefix of the name of each port of the role: `YDL_PORT_HTTP`.
pub const PORT_PREFIX: &str = "YDL_PORT_";

/// File with the Hadoop tokens of a container; its program gets the ones for its file systems.
pub const HADOOP_TOKEN_FILE_LOCATION: &str = "HADOOP_TOKEN_FILE_LOCATION";
/// User name on a cluster without authentication.
pub const HADOOP_USER_NAME: &str = "HADOOP_USER_NAME";
/// Id of a container that a NodeManager has started.
pub const CONTAINER_ID: &str = "CONTAINER_ID";
/// Address at which peers reach this node, as set by its administrator (`yarn.nodemanager.admin-env`).
pub const NODE_ADDRESS: &str = "YDL_NODE_ADDRESS";
/// Host name of the NodeManager's node.
pub const NM_HOST: &str = "NM_HOST";
/// User of a container, which may differ from the owner of its processes.
pub const USER: &str = "USER";
/// Container runtime of a NodeManager: `docker` or `runc`. This and the following are set in launch contexts and visible to
/// the container.
pub const RUNTIME_TYPE: &str = "YARN_CONTAINER_RUNTIME_TYPE";
/// Docker image.
pub const DOCKER_IMAGE: &str = "YARN_CONTAINER_RUNTIME_DOCKER_IMAGE";
/// Mounts of a docker container.
pub const DOCKER_MOUNTS: &str = "YARN_CONTAINER_RUNTIME_DOCKER_MOUNTS";
/// Docker network.
pub const DOCKER_NETWORK: &str = "YARN_CONTAINER_RUNTIME_DOCKER_CONTAINER_NETWORK";
/// Runs the docker container privileged.
pub const DOCKER_PRIVILEGED: &str = "YARN_CONTAINER_RUNTIME_DOCKER_RUN_PRIVILEGED_CONTAINER";
/// Keeps the docker container for a while after its end.
pub const DOCKER_DELAYED_REMOVAL: &str = "YARN_CONTAINER_RUNTIME_DOCKER_DELAYED_REMOVAL";
/// Registry credentials of docker.
pub const DOCKER_CLIENT_CONFIG: &str = "YARN_CONTAINER_RUNTIME_DOCKER_CLIENT_CONFIG";
/// Runs the image's own command instead of the submitted one.
pub const DOCKER_RUN_OVERRIDE_DISABLE: &str = "YARN_CONTAINER_RUNTIME_DOCKER_RUN_OVERRIDE_DISABLE";
/// Runc image.
pub const RUNC_IMAGE: &str = "YARN_CONTAINER_RUNTIME_RUNC_IMAGE";
/// Mounts of a runc container.
pub const RUNC_MOUNTS: &str = "YARN_CONTAINER_RUNTIME_RUNC_MOUNTS";

/// State of local jobs: `$XDG_STATE_HOME/ydl`.
pub const XDG_STATE_HOME: &str = "XDG_STATE_HOME";
/// Disables colours.
pub const NO_COLOR: &str = "NO_COLOR";
/// Cache of packed and built environments: `$XDG_CACHE_HOME/ydl`.
pub const XDG_CACHE_HOME: &str = "XDG_CACHE_HOME";
/// Active virtual environment, the default of `ydl pack`.
pub const VIRTUAL_ENV: &str = "VIRTUAL_ENV";
/// Active conda environment.
pub const CONDA_PREFIX: &str = "CONDA_PREFIX";
