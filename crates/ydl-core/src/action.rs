//! What must be done. Actions are done once; asks and orders stand until they change.

use crate::{
    cluster::Cluster,
    ending::Outcome,
    history::HistoryEvent,
    id::{ContainerId, NodeName, RoleName, TaskId},
    spec::Resources,
    time::Span,
};
use alloc::{string::String, sync::Arc, vec::Vec};
use serde::{Deserialize, Serialize};

/// Something to do once, in the order given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Start an agent in this container.
    Launch {
        /// Where.
        container: ContainerId,
        /// For which task; the agent itself learns it by its order.
        task: TaskId,
        /// How large the container must be.
        resources: Resources,
    },
    /// Give the container back, whatever runs in it.
    Release(ContainerId),
    /// The order of this container has changed: answer it if it listens. Losing this is harmless, because the
    /// order stands.
    OrderChanged(ContainerId),
    /// A round has begun with these members: its rendezvous begins with them, and a newer round's takes an older one's
    /// place. Tasks that start on their own, in a round or beside the job, begin none.
    RoundStarted(Arc<Cluster>),
    /// What ran there is over for its peers: it has ended, it is gone, or nobody counts on it any more. Said once of every
    /// attempt that was told to run, however that came to be known, and before anybody is told of other members.
    AttemptOver(Run),
    /// The members of a running round have changed, and those who stay run on
    /// ([`ResizePolicy::Told`](crate::spec::ResizePolicy::Told)): hand this to the rendezvous of the round that it names, which
    /// gives everybody a new rank and tells them. Newcomers are told to run with this very cluster; the others keep
    /// the one they were started with.
    MembersChanged(Arc<Cluster>),
    /// Write this down.
    Record(HistoryEvent),
    /// The job is over. Nothing follows.
    Finish(Outcome),
}

/// What the backend should still grant. Absolute: it replaces what was asked before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asks {
    /// One line per role and size.
    pub asks: Vec<Ask>,
    /// Nodes that must not be used now.
    pub avoid: Vec<NodeName>,
}

/// So many containers of one size for one role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// For whom.
    pub role: RoleName,
    /// How large each is.
    pub resources: Resources,
    /// How many are still missing.
    pub count: u32,
}

/// What an agent should be doing now. It compares this with what it does and acts on the difference, so a lost
/// or repeated order changes nothing.
///
/// An agent that has had no order for [`silence`](crate::spec::Timeouts::silence) is cut off: it stops its
/// program within the grace and leaves. The core counts on that before it puts another in its place, so only an
/// answer that carries an order may set the agent's clock back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// No program may run; hold the ports and be ready for this round.
    Wait {
        /// The round to be ready for.
        round: u32,
        /// Which task this container is.
        task: TaskId,
        /// The ports to hold, by name; `true` where the program can bind one that is still held.
        ports: Vec<(String, bool)>,
        /// Which share of the port range is this task's: so many of so many.
        slot: (u32, u32),
        /// How long a program of an earlier round has between SIGTERM and SIGKILL.
        grace: Span,
    },
    /// The program of this round should run, or have run.
    Run(Run),
    /// No program may run; when it has ended, copy the outputs if told to, say so, and leave.
    Stop {
        /// How long the program has between SIGTERM and SIGKILL.
        grace: Span,
        /// Whether the outputs are wanted.
        upload: bool,
    },
}

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Who this is.
    pub task: TaskId,
    /// Which gathering this belongs to.
    pub round: u32,
    /// How often this task was tried, from 1.
    pub attempt: u32,
    /// Everybody, as far as they are known.
    pub cluster: Arc<Cluster>,
}
