//! The words of the ledger: what is wanted, what is said about it, what comes of it.

use crate::types::Resource;

/// Which ask something is about. The ResourceManager keeps one kind of container per priority and
/// allocation id, so every role needs an allocation id of its own; servers before 2.9 know only priorities,
/// so there every role needs one of those.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The lower number is served first.
    pub priority: i32,
    /// Comes back with each container.
    pub allocation: i64,
}

/// Whether containers run at once or wait for room on their node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Execution {
    /// They run at once.
    #[default]
    Guaranteed,
    /// They may wait, and be stopped for guaranteed ones.
    Opportunistic {
        /// Whether a guaranteed container would be refused.
        enforce: bool,
    },
}

/// Containers that are still wanted under one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// How many more: those granted already do not count.
    pub count: u32,
    /// What each has.
    pub resource: Resource,
    /// Where they should be.
    pub localities: Localities,
    /// The label their nodes must have.
    pub label: Option<String>,
    /// Whether they run at once.
    pub execution: Execution,
}

impl Want {
    /// So many containers, anywhere.
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

/// Where containers should be; nothing named means anywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Localities {
    /// Hosts, as their NodeManagers registered them.
    pub nodes: Vec<NodeLocality>,
    /// Racks that will do, beside those of the hosts.
    pub racks: Vec<RackLocality>,
    /// Nowhere else: not another host of the rack, nor another rack.
    pub strict: bool,
}

/// A host and how many containers may be on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLocality {
    /// The host.
    pub host: String,
    /// Its rack, as `/default-rack`. The ResourceManager wants it said.
    pub rack: String,
    /// How many, of all that are wanted.
    pub count: u32,
}

/// A rack and how many containers may be in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RackLocality {
    /// The rack.
    pub rack: String,
    /// How many, of all that are wanted.
    pub count: u32,
}

/// One line of an ask. It replaces what the ResourceManager had under this key and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Whose line it is.
    pub key: Key,
    /// A host, a rack, or `*`.
    pub name: String,
    /// How many are still to be granted.
    pub count: u32,
    /// What each has.
    pub resource: Resource,
    /// Whether places beyond the named ones will do.
    pub relax: bool,
    /// A label; only ever on the line for `*`.
    pub label: Option<String>,
    /// Whether they run at once.
    pub execution: Execution,
}

/// A container given to us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant<C> {
    /// Its id.
    pub container: C,
    /// Under which key, as the ResourceManager says.
    pub key: Key,
    /// Where it is.
    pub host: String,
    /// What it has; may be more than was asked for.
    pub resource: Resource,
    /// Whether it may be stopped for others.
    pub opportunistic: bool,
}

/// How many replies had been taken in. Says how much somebody knew when they said what they want.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyCount(pub u64);

/// What to send with an `allocate` call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerRequest<C> {
    /// The number of the last reply.
    pub response_id: i32,
    /// Lines that have changed.
    pub rows: Vec<Row>,
    /// Containers to be taken back.
    pub releases: Vec<C>,
    /// Hosts on which nothing may be granted any more.
    pub exclude: Vec<String>,
    /// Hosts on which something may be granted again.
    pub readmit: Vec<String>,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerReply<C> {
    /// Its number.
    pub response_id: i32,
    /// Containers given to us.
    pub granted: Vec<Grant<C>>,
    /// Containers that have ended.
    pub completed: Vec<C>,
}

/// What a reply means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyOutcome<C> {
    /// Containers that were wanted. The wants are lowered by them already.
    pub wanted: Vec<Grant<C>>,
    /// Containers nobody wants any more; they will be released with the next request.
    pub surplus: Vec<Grant<C>>,
    /// The number of this reply among those taken in.
    pub reply_count: ReplyCount,
}

/// A reply that does not answer the request in flight; nothing was done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a reply has number {got}, expected {expected:?}")]
pub struct UnexpectedReply {
    /// Its number.
    pub got: i32,
    /// The number that would answer the request in flight; `None` when there is no such request.
    pub expected: Option<i32>,
}
