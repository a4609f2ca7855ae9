//! Keys of the restart policy.

use super::Section;
use crate::{
    formats::{COUNT, OneLine, TIME, TIME_OR_NONE},
    roles::{PartialBackoff, PartialRestart, RESTART_SCOPE},
};
use ydl_core::spec::Restart;

/// Keys of `restart`.
pub(crate) const RESTART: Section<PartialRestart> = Section {
    default: || Restart::default().into(),
    fields: &[
        field! {
            /// Scope of a restart after a failure: the task, its role, or all tasks in a new round.
            "restart.scope" = RESTART_SCOPE => scope,
            example "job", default "`task`; `job` with a framework"
        },
        field! {
            /// Number of failures that lead to a restart: of one task if the scope is `task`, otherwise of the role.
            /// Preemption and lost nodes do not count; of consecutive node faults and heartbeat timeouts of a task,
            /// the sixth and later ones count.
            "restart.limit" = COUNT => limit,
            example "3", default "`0`, in an elastic role `3`", also ["max", "attempts", "times"]
        },
        field! {
            /// Delay before the next attempt; doubles each time.
            "restart.backoff" = OneLine(RESTART_BACKOFF) => backoff,
            example "{initial: 1s, max: 1m}"
        },
        field! {
            /// Failures older than this do not count.
            "restart.window" = TIME_OR_NONE => window,
            example "1h"
        },
    ],
};

/// Keys of `restart.backoff`.
pub(crate) const RESTART_BACKOFF: Section<PartialBackoff> = Section {
    default: || Restart::default().backoff.into(),
    fields: &[
        field! {
            /// First delay.
            "restart.backoff.initial" = TIME => initial,
            example "1s"
        },
        field! {
            /// Maximum delay.
            "restart.backoff.max" = TIME => max,
            example "1m"
        },
    ],
};
