//! Keys of the job itself.

use super::{KeySpec, key, known_as};

pub const KEYS: &[KeySpec] = &[
    key(
        "name",
        "text",
        "file name, or name of the directory for `job.yaml`",
        "mnist",
        "Name of the job: letters, digits, `-`, `_` and `.`.",
    ),
    key(
        "framework",
        "`none`, `mxnet`, `pytorch`, `horovod`, `xgboost`, `lightgbm`, `tensorflow` or `jax`",
        "`none`",
        "none",
        "Framework whose rendezvous the job uses. `none` runs any command.",
    ),
    known_as(
        key(
            "cluster_flags",
            "`true` or `false`",
            "`false`",
            "false",
            "Appends `--ps_hosts`, `--worker_hosts`, `--job_name` and `--task_index` to the arguments of TensorFlow programs, as TensorFlow 1 programs expect. Applies to roles `ps` and `worker` with `run`.",
        ),
        &["flags", "tf_flags", "ps_hosts", "worker_hosts", "job_name", "task_index"],
    ),
];
