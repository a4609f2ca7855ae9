//! Keys of the restart policy.

use super::{KeySpec, key, known_as};

pub const KEYS: &[KeySpec] = &[
    known_as(
        key("restart", "map", "see below", "{limit: 3}", "Restart policy of all roles."),
        &["restarts", "retry", "retries"],
    ),
    key(
        "restart.scope",
        "`task`, `role` or `job`",
        "`task`; `job` with a framework",
        "job",
        "What restarts after a failure: the task, its role, or all tasks in a new round.",
    ),
    known_as(
        key(
            "restart.limit",
            "count",
            "`0`, in an elastic role `3`",
            "3",
            "Number of failures that lead to a restart: of one task if the scope is `task`, otherwise of the role. Preemption and lost nodes do not count; after five consecutive node failures or heartbeat timeouts of a task, the next one fails it.",
        ),
        &["max", "attempts", "times"],
    ),
    key(
        "restart.backoff",
        "map",
        "see below",
        "{initial: 1s, max: 1m}",
        "Delay before the next attempt; doubles each time.",
    ),
    key("restart.backoff.initial", "time", "`1s`", "1s", "First delay."),
    key("restart.backoff.max", "time", "`1m`", "1m", "Maximum delay."),
    key(
        "restart.window",
        "time or `none`",
        "`none`",
        "1h",
        "Failures older than this do not count.",
    ),
];
