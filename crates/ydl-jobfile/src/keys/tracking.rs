//! Keys of TensorBoard and MLflow.

use super::Section;
use crate::{
    formats::{COUNT, SIZE},
    mlflow::{self, ADDRESS, MLFLOW_NAME, RunTags, TOKEN_FILE, USER},
    tensorboard::{LOGDIR, TensorBoard},
};
use ydl_core::spec::Mlflow;

/// Keys of `tensorboard`.
pub(crate) const TENSORBOARD: Section<TensorBoard> = Section {
    default: TensorBoard::default,
    fields: &[
        field! {
            /// Directory of event files. On one machine relative to the job file. On a cluster a path on shared
            /// storage, or a directory in HDFS from which growing event files are downloaded. `{job}` is replaced.
            "tensorboard.logdir" = LOGDIR => logdir,
            example "/shared/runs/{job}", default "`YDL_CHECKPOINT`",
            also ["dir", "log_dir", "logs", "path"]
        },
        field! {
            /// Memory.
            "tensorboard.memory" = SIZE => memory_mib,
            example "512 MiB"
        },
        field! {
            /// Virtual cores.
            "tensorboard.vcores" = COUNT => vcores,
            example "1"
        },
    ],
};

/// Keys of `mlflow`.
pub(crate) const MLFLOW: Section<Mlflow> = Section {
    default: mlflow::default_run,
    fields: &[
        field! {
            /// Address of the server.
            "mlflow.uri" = ADDRESS => uri,
            example "http://mlflow.example.com:5000", default "`MLFLOW_TRACKING_URI` of the submitting user",
            also ["url", "server", "tracking_uri", "address"]
        },
        field! {
            /// Name of the experiment; created if it does not exist.
            "mlflow.experiment" = MLFLOW_NAME => experiment,
            example "digits", default "the job's `name`", also ["experiment_name"]
        },
        field! {
            /// Name of the run.
            "mlflow.run_name" = MLFLOW_NAME => run_name,
            example "nightly", default "the job's id", also ["run", "name"]
        },
        field! {
            /// Tags of the run, in addition to `ydl.job` and MLflow's own.
            "mlflow.tags" = RunTags => tags,
            example "{team: vision}"
        },
        field! {
            /// User for servers that require a password. The password is in `token_file`.
            "mlflow.user" = USER => user,
            example "alice"
        },
        field! {
            /// File with the server's token or the user's password, on the submitting machine. Its content is sent to
            /// masters only.
            "mlflow.token_file" = TOKEN_FILE => token_file,
            example "mlflow.token", also ["token", "password", "password_file", "secret"]
        },
    ],
};
