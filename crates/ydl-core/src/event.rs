//! What happened. Everything the core ever learns comes in as one of these.

use crate::{
    cluster::Endpoint,
    id::{ContainerId, NodeName, RoleName},
    spec::Resources,
    time::Span,
};
use alloc::{string::String, vec::Vec};
use serde::{Deserialize, Serialize};

/// Something that happened, in the past tense. Late, repeated and lost ones are expected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    // From the backend.
    /// The backend can place containers on so many nodes.
    NodesCounted {
        /// How many there are now.
        nodes: u32,
    },
    /// Some role could run nowhere if these nodes were avoided.
    NodesRequired {
        /// All of them; whoever was named before and is not now can be done without.
        nodes: Vec<NodeName>,
    },
    /// Containers were granted.
    Granted {
        /// Each of them; a grant may be repeated.
        grants: Vec<Grant>,
    },
    /// A container that we launched is starting.
    Launched {
        /// Which.
        container: ContainerId,
    },
    /// A container could not be launched.
    LaunchFailed {
        /// Which.
        container: ContainerId,
        /// Why, in one sentence.
        reason: String,
    },
    /// Containers ended: nothing runs in them any more, unless they were lost with their node. One batch may
    /// name many.
    Ended {
        /// Each with how it ended.
        containers: Vec<(ContainerId, ContainerExit)>,
    },
    /// The cluster wants a container back soon.
    PreemptionWarned {
        /// Which.
        container: ContainerId,
    },
    /// What was asked for can never be had here.
    RequestUnsatisfiable {
        /// What is short, in one sentence.
        reason: String,
    },

    // From the agents. Each names the container it comes from: that is the fence.
    /// An agent holds its ports and waits for its program.
    Ready {
        /// Where it runs.
        container: ContainerId,
        /// The round it is ready for.
        round: u32,
        /// Where its peers reach it.
        endpoint: Endpoint,
    },
    /// An agent cannot be made ready.
    SetupFailed {
        /// Where it runs.
        container: ContainerId,
        /// Why, in one sentence.
        reason: String,
        /// Whether its node is at fault, so that another might do better.
        node_fault: bool,
    },
    /// The program runs.
    Started {
        /// Where.
        container: ContainerId,
        /// In which round.
        round: u32,
    },
    /// The program ended, or could not be started.
    Exited {
        /// Where.
        container: ContainerId,
        /// In which round.
        round: u32,
        /// How.
        exit: ProgramExit,
    },
    /// An agent has stopped its program, copied what was to be copied, and is about to leave.
    OutputsUploaded {
        /// Where.
        container: ContainerId,
        /// What could not be copied.
        error: Option<String>,
    },
    /// An agent has missed its beats.
    HeartbeatMissed {
        /// Where.
        container: ContainerId,
    },
    /// A quiet agent was heard again.
    HeartbeatResumed {
        /// Where.
        container: ContainerId,
    },

    // From people.
    /// Somebody wants the job to end.
    KillRequested {
        /// Who or what, for the record.
        by: String,
        /// Without grace.
        immediate: bool,
    },
    /// Somebody wants a role to have another size.
    ScaleRequested {
        /// Which role.
        role: RoleName,
        /// Its new number of tasks.
        instances: u32,
    },

    // From the shell.
    /// Time has passed.
    Ticked,
    /// A new master has replayed the journal; these containers are still alive. It must be the first event after
    /// the replay: every wait begins again with it.
    MasterRecovered {
        /// What the backend says is alive.
        live: Vec<ContainerId>,
    },
}

/// A container that the backend gave us.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Its name.
    pub container: ContainerId,
    /// The role it was asked for.
    pub role: RoleName,
    /// Where it is.
    pub node: NodeName,
    /// Its size, which may be larger than what was asked.
    pub resources: Resources,
}

/// How a container ended, as its backend saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContainerExit {
    /// Its process ended by itself.
    Completed {
        /// Exit code, or 128 and the signal.
        status: i32,
    },
    /// It used more memory than it had asked for.
    MemoryLimit {
        /// How much it used.
        used_mib: u64,
        /// How much it had.
        limit_mib: u64,
    },
    /// The cluster took it back for others.
    Preempted,
    /// The cluster no longer hears its node. What runs there may run on for a while.
    NodeLost,
    /// The node could not run it.
    NodeFault {
        /// Why, in one sentence.
        reason: String,
    },
    /// We gave it back, or the backend ended it without anybody's fault.
    Released,
}

/// How a program ended, as its agent saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramExit {
    /// Its exit code, where it ended by itself.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Why it could not be started at all.
    pub not_started: Option<String>,
    /// A port that was let go for it, and that somebody else has now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port_taken: Option<u16>,
    /// Who is in its round had changed before it could join, so that it could not but fail.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub outdated: bool,
    /// The container itself was being signalled: its end, not the program's, is the cause.
    pub container_signalled: bool,
    /// The most memory its process tree used.
    pub peak_memory_mib: u64,
    /// How long it ran.
    pub ran: Span,
    /// The last lines it wrote to stderr.
    pub stderr_tail: String,
}
