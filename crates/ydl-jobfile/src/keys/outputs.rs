//! Keys of variables and outputs.

use super::{KeySpec, key, known_as};

pub const KEYS: &[KeySpec] = &[
    known_as(
        key("env", "map of texts", "none", "{SEED: 1}", "Environment variables of every role."),
        &["environ", "variables"],
    ),
    known_as(
        key(
            "outputs",
            "map of path to destination",
            "none",
            "{model/: \"out/{role}-{index}\"}",
            "Paths in a task's working directory that are copied to a destination when its program has ended, also after a failure. `{job}`, `{role}` and `{index}` are replaced. Destinations are relative to the job file, or on a cluster to the user's home directory in HDFS; or `hdfs://…`. The last part of a path may contain `*`. Two tasks must not write the same file: end a directory with `/` if their files have different names.",
        ),
        &["output", "results"],
    ),
    known_as(
        key(
            "outputs.*.to",
            "destination",
            "required",
            "out/model",
            "Destination: `outputs: {model/: {to: out, from: worker:0, every: 5m}}`.",
        ),
        &["destination", "dest", "path"],
    ),
    known_as(
        key(
            "outputs.*.from",
            "a task, a role or `all`",
            "`all`",
            "worker",
            "Tasks whose output is copied.",
        ),
        &["task", "role", "from_task"],
    ),
    known_as(
        key(
            "outputs.*.every",
            "time",
            "at the end only",
            "5m",
            "Interval at which new and finished files are uploaded while the program runs, for example for checkpoints. They are then also uploaded when a container is preempted, as far as its grace period allows.",
        ),
        &["interval", "period"],
    ),
    known_as(
        key(
            "outputs.*.existing",
            "`fail`, `overwrite` or `number`",
            "`overwrite`",
            "number",
            "Behaviour if the destination exists, at submit or at the first upload. `fail`: the job is rejected, or later its task fails. `overwrite`: files of the same names are replaced. `number`: `out` becomes `out-2`.",
        ),
        &["overwrite", "exists", "if_exists"],
    ),
];
