//! Output of the core: actions are executed once; asks and orders stand until they change.

use crate::{
    cluster::Cluster,
    ending::Outcome,
    history::HistoryEvent,
    id::{ContainerId, NodeName, RoleName, TaskId},
    spec::Resources,
    time::Span,
};
use alloc::{collections::BTreeMap, string::String, sync::Arc, vec::Vec};
use serde::{Deserialize, Serialize};

/// An action, executed once and in the given order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Launch an agent in this container.
    Launch {
        /// The container.
        container: ContainerId,
        /// Its task; the agent learns it from its order.
        task: TaskId,
        /// Required size of the container.
        resources: Resources,
    },
    /// Release the container, even if a program runs in it.
    Release(ContainerId),
    /// The order of this container changed: deliver it if the agent waits for one. Losing this
    /// action is harmless, because the order stands.
    OrderChanged(ContainerId),
    /// A round started with these members: its rendezvous starts, and replaces that of an older
    /// round. Tasks that start on their own and sidecars start none.
    RoundStarted(Arc<Cluster>),
    /// An attempt is over for its peers: it has ended, is lost, or was given up. Emitted once for
    /// every attempt that was told to run, before its peers are notified of other members.
    AttemptOver(AttemptRun),
    /// The members of a running round changed, and the others keep running
    /// ([`ResizePolicy::Notify`](crate::spec::ResizePolicy::Notify)). The rendezvous of that round
    /// assigns new ranks and notifies them. Joining tasks start with this cluster; the others keep
    /// the one they started with.
    MembersChanged(Arc<Cluster>),
    /// Append an event to the history.
    Record(HistoryEvent),
    /// The job has finished. No action follows.
    Finish(Outcome),
}

/// Outstanding asks for the backend. Absolute: they replace the previous ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asks {
    /// One ask per role and size.
    pub asks: Vec<Ask>,
    /// Nodes that are excluded now.
    pub avoid: Vec<NodeName>,
}

/// An ask for containers of one size for one role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The role.
    pub role: RoleName,
    /// Size of each container.
    pub resources: Resources,
    /// Number of outstanding containers.
    pub count: u32,
}

/// Desired state of an agent. The agent compares the order with its state and acts on the
/// difference, so a lost or repeated order changes nothing.
///
/// An agent without a response for [`heartbeat`](crate::spec::Timeouts::heartbeat) is partitioned:
/// it stops its program within the grace period and exits. The core relies on that before it
/// replaces the task. Any response resets the agent's timer, to the time at which it sent the
/// request. That is safe because the master answers with the order if the agent's is outdated: a
/// response without an order means that the request was sent before the order changed. While the
/// master cannot write its journal, it answers without looking at orders. The timeout
/// [`stop`](crate::spec::Timeouts::stop), which is added to the others, covers a delay of that
/// length. After a longer one, an agent that is cut off right away may overlap its replacement: the
/// core hears of the delay only by the next event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// No program may run. The agent holds its ports and becomes ready for this round.
    Wait {
        /// Round to be ready for.
        round: u32,
        /// Task of this container.
        task: TaskId,
        /// Ports to hold, by name; `true` if the program can bind a port that is still held.
        ports: Vec<(String, bool)>,
        /// Slot of the task in the port range: index and number of slots.
        slot: (u32, u32),
        /// Time between SIGTERM and SIGKILL for a program of an earlier round.
        grace: Span,
    },
    /// The program of this round should run, or have run.
    Run(AttemptRun),
    /// No program may run. Once it has ended, the agent uploads the outputs if requested, reports
    /// and exits.
    Stop {
        /// Time between SIGTERM and SIGKILL.
        grace: Span,
        /// True if the outputs are to be uploaded.
        upload: bool,
    },
}

/// Task, round, attempt and members that an agent is ordered to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRun {
    /// The task.
    pub task: TaskId,
    /// Round of the attempt.
    pub round: u32,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Members of the round, as far as they are known.
    pub cluster: Arc<Cluster>,
    /// Variables of this task alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}
