//! Where people look while a job runs, and after it.

use super::{KeySpec, key, known_as};

pub const KEYS: &[KeySpec] = &[
    known_as(
        key(
            "tensorboard",
            "`true`, a directory, or a map",
            "`false`",
            "true",
            "TensorBoard beside the job, from the job's environment, as a role of its own: `ydl port-forward JOB` leads there ([TensorBoard](../how-to/tensorboard.md)).",
        ),
        &["tb", "board", "tensor_board"],
    ),
    known_as(
        key(
            "tensorboard.logdir",
            "directory, or `hdfs://…`",
            "`YDL_CHECKPOINT`",
            "/shared/runs/{job}",
            "What it looks at. On one machine relative to the job file; on a cluster a path that all nodes share, or a place in HDFS from which event files are brought as they grow. `{job}` is filled in.",
        ),
        &["dir", "log_dir", "logs", "path"],
    ),
    key("tensorboard.memory", "size", "`1 GiB`", "512 MiB", "Its memory."),
    key("tensorboard.vcores", "count", "`1`", "1", "Its virtual cores."),
    key(
        "mlflow",
        "`true`, an address, or a map",
        "`false`",
        "http://mlflow.example.com:5000",
        "MLflow's tracking server, which the master tells what the job is, how it goes and how it ended; `true` takes the address from `MLFLOW_TRACKING_URI` ([MLflow](../how-to/mlflow.md)).",
    ),
    known_as(
        key(
            "mlflow.uri",
            "`http://…` or `https://…`",
            "`MLFLOW_TRACKING_URI` of whoever submits",
            "http://mlflow.example.com:5000",
            "The server's address.",
        ),
        &["url", "server", "tracking_uri", "address"],
    ),
    known_as(
        key(
            "mlflow.experiment",
            "text",
            "the job's `name`",
            "digits",
            "The experiment, which is made if there is none.",
        ),
        &["experiment_name"],
    ),
    known_as(
        key("mlflow.run_name", "text", "the job's id", "nightly", "What the run is called."),
        &["run", "name"],
    ),
    key(
        "mlflow.tags",
        "map of texts",
        "none",
        "{team: vision}",
        "Tags of the run, beside `ydl.job` and MLflow's own.",
    ),
    key(
        "mlflow.user",
        "text",
        "none",
        "alice",
        "To a server that asks for a password: whose it is. The password is in `token_file`.",
    ),
    known_as(
        key(
            "mlflow.token_file",
            "path",
            "none",
            "mlflow.token",
            "A file with the server's token, or the user's password; on the machine from which the job is submitted. Only masters get what is in it.",
        ),
        &["token", "password", "password_file", "secret"],
    ),
];
