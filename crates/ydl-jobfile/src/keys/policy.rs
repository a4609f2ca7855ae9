//! Keys of gangs, timeouts and node exclusion.

use super::Section;
use crate::{
    fields::Reader,
    formats::{BOOL, COUNT, Format, OneLine, TIME, TIME_OR_NONE},
    roles::PartialBackoff,
};
use ydl_core::spec::{Gang, NodeExclusion, Timeouts};

/// Keys of `gang`.
pub(crate) const GANG: Section<Gang> = Section {
    default: Gang::default,
    fields: &[
        field! {
            /// Starts no task before all have containers.
            "gang.together" = BOOL => together,
            example "true", default "value of `gang`"
        },
        field! {
            /// Time for which an incomplete gang keeps its containers.
            "gang.hold" = TIME => hold,
            example "5m"
        },
        field! {
            /// Number of times an incomplete gang releases its containers and tries again before the job fails.
            "gang.retries" = COUNT => retries,
            example "3"
        },
        field! {
            /// Delay before the next try; doubles each time.
            "gang.backoff" = by_hand(
                "map",
                "Keys",
                Reader::gang_backoff,
                |gang| OneLine(GANG_BACKOFF).print(&gang.backoff.into())
            ),
            example "{initial: 30s, max: 10m}"
        },
        field! {
            /// Time without changes after which a gang with elastic roles starts with the tasks present, or is
            /// interrupted for new ones.
            "gang.settle" = TIME => settle,
            example "10s"
        },
    ],
};

/// Keys of `gang.backoff`.
pub(crate) const GANG_BACKOFF: Section<PartialBackoff> = Section {
    default: || Gang::default().backoff.into(),
    fields: &[
        field! {
            /// First delay.
            "gang.backoff.initial" = TIME => initial,
            example "30s"
        },
        field! {
            /// Maximum delay.
            "gang.backoff.max" = TIME => max,
            example "10m"
        },
    ],
};

/// Keys of `timeouts`.
pub(crate) const TIMEOUTS: Section<Timeouts> = Section {
    default: Timeouts::default,
    fields: &[
        field! {
            /// From the request for containers until all are granted. Waiting for the master of a job in a cluster's
            /// queue is limited for attached clients only.
            "timeouts.allocation" = TIME => allocation,
            example "1h"
        },
        field! {
            /// From the grant until the container starts.
            "timeouts.launch" = TIME => launch,
            example "2m"
        },
        field! {
            /// From the start of the container until its agent is ready. On a cluster the node fetches and unpacks
            /// files and the environment in this time.
            "timeouts.join" = TIME => join,
            example "15m"
        },
        field! {
            /// Additional time, beyond `join`, for downloading a task's inputs.
            "timeouts.fetch" = TIME => fetch,
            example "6h"
        },
        field! {
            /// From the start order until the program runs.
            "timeouts.start" = TIME => start,
            example "2m"
        },
        field! {
            /// From the start of the job until its end.
            "timeouts.run" = TIME_OR_NONE => run,
            example "2h"
        },
        field! {
            /// From the end of all other roles until the end of a role that `follows`, such as TensorFlow's evaluator.
            "timeouts.follow" = TIME => follow,
            example "30m"
        },
        field! {
            /// Maximum time without a heartbeat of an agent, or with a program stopped by SIGSTOP.
            "timeouts.heartbeat" = TIME => heartbeat,
            example "60s"
        },
        field! {
            /// From SIGTERM to SIGKILL.
            "timeouts.grace" = TIME => grace,
            example "10s"
        },
        field! {
            /// Additional time, beyond `grace`, until the container has ended.
            "timeouts.stop" = TIME => stop,
            example "20s"
        },
        field! {
            /// For uploading the outputs of a task.
            "timeouts.upload" = TIME => upload,
            example "10m"
        },
    ],
};

/// Keys of `node_exclusion`.
pub(crate) const NODE_EXCLUSION: Section<NodeExclusion> = Section {
    default: NodeExclusion::default,
    fields: &[
        field! {
            /// Number of program failures on one node after which it is excluded.
            "node_exclusion.failures" = COUNT => failures,
            example "3"
        },
        field! {
            /// Time for which a node stays excluded.
            "node_exclusion.timeout" = TIME => timeout,
            example "30m"
        },
        field! {
            /// Maximum number of excluded nodes; never more than half of the nodes. A node is not excluded if a role
            /// needs it, because no other node has its label, its attributes or room for a task.
            "node_exclusion.max_nodes" = COUNT => max_nodes,
            example "10"
        },
    ],
};
