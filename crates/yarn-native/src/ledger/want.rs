//! Data types of the ledger: wants, requests and replies.

use crate::scheduler::{Constraint, Rejection, SchedulingRequest};
use crate::types::Resource;

/// Key of an ask. The ResourceManager keeps one container size per priority and allocation id, so
/// each role needs its own allocation id. Servers before 2.9 know only priorities, so there each
/// role needs its own priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Priority; lower values are served first.
    pub priority: i32,
    /// Allocation request id, returned with each container.
    pub allocation: i64,
}

/// Execution type of an ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Execution {
    /// Containers start at once.
    #[default]
    Guaranteed,
    /// Containers may be queued on their node, and stopped in favour of guaranteed ones.
    Opportunistic {
        /// True if guaranteed containers are not accepted instead.
        enforce: bool,
    },
}

/// Containers wanted under one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// Number still wanted, without those already granted.
    pub count: u32,
    /// Size of each container.
    pub resource: Resource,
    /// Preferred hosts and racks.
    pub localities: Localities,
    /// Required node label.
    pub label: Option<String>,
    /// Execution type.
    pub execution: Execution,
}

impl Want {
    /// Creates a want for containers anywhere.
    pub fn anywhere(count: u32, resource: Resource) -> Self {
        Self {
            count,
            resource,
            localities: Localities::default(),
            label: None,
            execution: Execution::Guaranteed,
        }
    }
}

/// Containers wanted under one key, with a placement constraint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConstrainedWant {
    /// Number still wanted, without those already granted.
    pub count: u32,
    /// Size of each container.
    pub resource: Resource,
    /// Allocation tag of the containers.
    pub tag: String,
    /// Placement constraint.
    pub constraint: Constraint,
}

/// Preferred hosts and racks; empty means anywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Localities {
    /// Hosts, as their NodeManagers registered them.
    pub nodes: Vec<NodeLocality>,
    /// Racks, besides those of the hosts.
    pub racks: Vec<RackLocality>,
    /// True if no other hosts and racks are accepted.
    pub strict: bool,
}

/// Preferred host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLocality {
    /// Host.
    pub host: String,
    /// Rack of the host, as `/default-rack`. The ResourceManager requires it.
    pub rack: String,
    /// Number of containers, out of the total.
    pub count: u32,
}

/// Preferred rack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RackLocality {
    /// Rack.
    pub rack: String,
    /// Number of containers, out of the total.
    pub count: u32,
}

/// Row of an ask. It replaces the ResourceManager's row with the same key and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Key of the ask.
    pub key: Key,
    /// Host, rack, or `*`.
    pub name: String,
    /// Number still to be granted.
    pub count: u32,
    /// Size of each container.
    pub resource: Resource,
    /// True if other places of the same level are accepted.
    pub relax: bool,
    /// Node label; only on the row for `*`.
    pub label: Option<String>,
    /// Execution type.
    pub execution: Execution,
}

/// Granted container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant<C> {
    /// Container id.
    pub container: C,
    /// Key of the ask, as the ResourceManager reports it.
    pub key: Key,
    /// Host it is on.
    pub host: String,
    /// Allocated resources; may exceed the ask.
    pub resource: Resource,
    /// True if it may be stopped in favour of guaranteed containers.
    pub opportunistic: bool,
}

/// Number of replies processed. Tells which grants a caller of `set_wants` has accounted for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyCount(pub u64);

/// Content of an allocate call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerRequest<C> {
    /// Response id of the last reply.
    pub response_id: i32,
    /// Changed rows.
    pub rows: Vec<Row>,
    /// Containers to release.
    pub releases: Vec<C>,
    /// Hosts to exclude from now on.
    pub exclude: Vec<String>,
    /// Hosts to readmit.
    pub readmit: Vec<String>,
    /// Changed scheduling requests.
    pub scheduling_requests: Vec<SchedulingRequest>,
}

/// Content of an allocate reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerReply<C> {
    /// Response id.
    pub response_id: i32,
    /// Granted containers.
    pub granted: Vec<Grant<C>>,
    /// Ended containers.
    pub completed: Vec<C>,
    /// Rejected scheduling requests.
    pub rejected: Vec<Rejection>,
}

/// Result of processing a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyOutcome<C> {
    /// Granted containers that were wanted, already deducted from the wants.
    pub wanted: Vec<Grant<C>>,
    /// Granted containers that were not wanted; the next request releases them.
    pub surplus: Vec<Grant<C>>,
    /// Number of this reply.
    pub reply_count: ReplyCount,
}

/// Error for a reply that does not answer the request in flight. It was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unexpected response id {got}, expected {expected:?}")]
pub struct UnexpectedReply {
    /// Its response id.
    pub got: i32,
    /// Expected response id; `None` if no request is in flight.
    pub expected: Option<i32>,
}
