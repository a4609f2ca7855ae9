//! What programs are told, and what becomes of what they made.

use super::{KeySpec, key, known_as};

pub const KEYS: &[KeySpec] = &[
    known_as(
        key("env", "map of texts", "none", "{SEED: 1}", "Variables of every role."),
        &["environ", "variables"],
    ),
    known_as(
        key(
            "outputs",
            "map of path to destination",
            "none",
            "{model/: \"out/{role}-{index}\"}",
            "What is copied out of a task's working directory when its program has ended, also after a failure. `{job}`, `{role}` and `{index}` are filled in. Destinations are relative to the job file; on a cluster to the user's home directory in HDFS, or `hdfs://…`. The last part of a path may hold `*`. Two tasks may not write one name: a directory ends in `/` where their files have different names.",
        ),
        &["output", "results"],
    ),
    known_as(
        key(
            "outputs.*.to",
            "destination",
            "required, where an output has keys of its own",
            "out/model",
            "Where it goes: `outputs: {model/: {to: out, from: worker:0, every: 5m}}`.",
        ),
        &["destination", "dest", "path"],
    ),
    known_as(
        key("outputs.*.from", "a task, a role or `all`", "`all`", "worker", "Whose output it is."),
        &["task", "role", "from_task"],
    ),
    known_as(
        key(
            "outputs.*.every",
            "time",
            "only at the end",
            "5m",
            "How often new and finished files are sent while the program runs, as checkpoints should be; then also when a container is taken away, as far as its grace allows.",
        ),
        &["interval", "period"],
    ),
    known_as(
        key(
            "outputs.*.existing",
            "`fail`, `overwrite` or `number`",
            "`overwrite`",
            "number",
            "What happens when the destination is there already, at submit or when the job first sends something there: the job is refused, later its task fails; files of the same names are replaced; or `out` becomes `out-2`.",
        ),
        &["overwrite", "exists", "if_exists"],
    ),
];
