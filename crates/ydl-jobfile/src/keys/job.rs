//! What the job is.

use super::{KeySpec, key, known_as};

pub const KEYS: &[KeySpec] = &[
    key(
        "name",
        "text",
        "the file's name, or its directory's for `job.yaml`",
        "mnist",
        "What people call the job. Letters, digits, `-`, `_` and `.`.",
    ),
    key(
        "framework",
        "`none`, `mxnet`, `pytorch`, `horovod`, `xgboost`, `lightgbm`, `tensorflow` or `jax`",
        "`none`",
        "none",
        "Whose rendezvous the job needs. `none` runs any command.",
    ),
    known_as(
        key(
            "cluster_flags",
            "`true` or `false`",
            "`false`",
            "false",
            "Programs of TensorFlow get `--ps_hosts`, `--worker_hosts`, `--job_name` and `--task_index` after their own arguments, as those written for TensorFlow 1 expect. For roles `ps` and `worker` with `run`.",
        ),
        &["flags", "tf_flags", "ps_hosts", "worker_hosts", "job_name", "task_index"],
    ),
];
