//! Keys of TensorBoard and MLflow.

use super::{KeySpec, key, known_as};

pub const KEYS: &[KeySpec] = &[
    known_as(
        key(
            "tensorboard",
            "`true`, a directory, or a map",
            "`false`",
            "true",
            "Runs TensorBoard as a separate role in the job's environment; `ydl port-forward JOB` connects to it ([TensorBoard](../how-to/tensorboard.md)).",
        ),
        &["tb", "board", "tensor_board"],
    ),
    known_as(
        key(
            "tensorboard.logdir",
            "directory, or `hdfs://…`",
            "`YDL_CHECKPOINT`",
            "/shared/runs/{job}",
            "Directory of event files. On one machine relative to the job file. On a cluster a path on shared storage, or a directory in HDFS from which growing event files are downloaded. `{job}` is replaced.",
        ),
        &["dir", "log_dir", "logs", "path"],
    ),
    key("tensorboard.memory", "size", "`1 GiB`", "512 MiB", "Memory."),
    key("tensorboard.vcores", "count", "`1`", "1", "Virtual cores."),
    key(
        "mlflow",
        "`true`, an address, or a map",
        "`false`",
        "http://mlflow.example.com:5000",
        "MLflow tracking server to which the master reports the job, its progress and its result; `true` takes the address from `MLFLOW_TRACKING_URI` ([MLflow](../how-to/mlflow.md)).",
    ),
    known_as(
        key(
            "mlflow.uri",
            "`http://…` or `https://…`",
            "`MLFLOW_TRACKING_URI` of the submitting user",
            "http://mlflow.example.com:5000",
            "Address of the server.",
        ),
        &["url", "server", "tracking_uri", "address"],
    ),
    known_as(
        key(
            "mlflow.experiment",
            "text",
            "the job's `name`",
            "digits",
            "Name of the experiment; created if it does not exist.",
        ),
        &["experiment_name"],
    ),
    known_as(
        key("mlflow.run_name", "text", "the job's id", "nightly", "Name of the run."),
        &["run", "name"],
    ),
    key(
        "mlflow.tags",
        "map of texts",
        "none",
        "{team: vision}",
        "Tags of the run, in addition to `ydl.job` and MLflow's own.",
    ),
    key(
        "mlflow.user",
        "text",
        "none",
        "alice",
        "User for servers that require a password. The password is in `token_file`.",
    ),
    known_as(
        key(
            "mlflow.token_file",
            "path",
            "none",
            "mlflow.token",
            "File with the server's token or the user's password, on the submitting machine. Its content is sent to masters only.",
        ),
        &["token", "password", "password_file", "secret"],
    ),
];
