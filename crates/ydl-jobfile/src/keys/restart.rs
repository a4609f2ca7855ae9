//! What happens when a task fails.

use super::{KeySpec, key, known_as};

pub const KEYS: &[KeySpec] = &[
    known_as(
        key(
            "restart",
            "map",
            "see below",
            "{limit: 3}",
            "What happens when a task fails, for all roles.",
        ),
        &["restarts", "retry", "retries"],
    ),
    key(
        "restart.scope",
        "`task`, `role` or `job`",
        "`task`; `job` with a framework",
        "job",
        "Who starts again: the task alone, its role, or everybody in a new round.",
    ),
    known_as(
        key(
            "restart.limit",
            "count",
            "`0`, in an elastic role `3`",
            "3",
            "So many failures are repaired: of one task where the scope is `task`, of the role otherwise. Preemption and lost nodes never count; a task whose nodes fail it or fall silent five times in a row has failed when it happens again.",
        ),
        &["max", "attempts", "times"],
    ),
    key(
        "restart.backoff",
        "map",
        "see below",
        "{initial: 1s, max: 1m}",
        "The wait before the next attempt; it doubles.",
    ),
    key("restart.backoff.initial", "time", "`1s`", "1s", "The first wait."),
    key("restart.backoff.max", "time", "`1m`", "1m", "The longest wait."),
    key(
        "restart.window",
        "time or `none`",
        "`none`",
        "1h",
        "Failures older than this are forgotten.",
    ),
];
