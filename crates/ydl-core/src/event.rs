//! Events: the only input of the core.

use crate::{
    cluster::Endpoint,
    ending::Outcome,
    id::{ContainerId, NodeName, RoleName, TaskId},
    spec::{Resources, RevisionSpec},
    time::Span,
};
use alloc::{boxed::Box, collections::BTreeMap, string::String, vec::Vec};
use serde::{Deserialize, Serialize};

/// An event, named in the past tense. Events may arrive late, repeatedly or not at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    // Reported by the backend.
    /// The number of usable nodes changed.
    NodesCounted {
        /// Number of usable nodes.
        nodes: u32,
    },
    /// Nodes without which some role could not run.
    NodesRequired {
        /// The complete set; it replaces the previous one.
        nodes: Vec<NodeName>,
    },
    /// The backend granted containers.
    Granted {
        /// The grants; a grant may be repeated.
        grants: Vec<Grant>,
    },
    /// The node has accepted the launch of a container.
    Launched {
        /// The container.
        container: ContainerId,
    },
    /// A container could not be launched.
    LaunchFailed {
        /// The container.
        container: ContainerId,
        /// Reason for the failure.
        reason: String,
    },
    /// Containers ended. Nothing runs in them any more, unless their node was lost. One event may
    /// report many.
    Ended {
        /// The containers, each with its exit.
        containers: Vec<(ContainerId, ContainerExit)>,
    },
    /// The cluster will preempt a container soon.
    PreemptionWarned {
        /// The container.
        container: ContainerId,
    },
    /// The nodes of containers are taken out of service. Replicas move away; other tasks run until
    /// their containers end.
    NodeDraining {
        /// The containers.
        containers: Vec<ContainerId>,
        /// Time until they end.
        time: Span,
    },
    /// The backend can never satisfy the current asks.
    RequestUnsatisfiable {
        /// Description of the missing resources.
        reason: String,
    },

    // Reported by agents. Each event names its container, which fences earlier attempts.
    /// An agent holds its ports and waits for the order to run.
    Ready {
        /// Container of the agent.
        container: ContainerId,
        /// Round that the agent is ready for.
        round: u32,
        /// Address and ports for its peers.
        endpoint: Endpoint,
    },
    /// An agent could not prepare its task.
    SetupFailed {
        /// Container of the agent.
        container: ContainerId,
        /// Reason for the failure.
        reason: String,
        /// True if the node caused the failure, so that another node may succeed.
        node_fault: bool,
    },
    /// The program is running.
    Started {
        /// Container of the program.
        container: ContainerId,
        /// Round of the attempt.
        round: u32,
    },
    /// The program ended, or could not be started.
    Exited {
        /// Container of the program.
        container: ContainerId,
        /// Round of the attempt.
        round: u32,
        /// Exit of the program.
        exit: ProgramExit,
    },
    /// An agent that was ordered to stop has ended its program, uploaded the outputs if requested,
    /// and is about to exit.
    AgentStopped {
        /// Container of the agent.
        container: ContainerId,
        /// Upload error, if any.
        upload_error: Option<String>,
    },
    /// An agent missed its heartbeats.
    HeartbeatMissed {
        /// Container of the agent.
        container: ContainerId,
    },
    /// The heartbeats of an agent resumed, or its first report arrived.
    HeartbeatResumed {
        /// Container of the agent.
        container: ContainerId,
    },
    /// The probe of a replica succeeds. Only changes are reported.
    Served {
        /// Container of the agent.
        container: ContainerId,
        /// Number of the change, from 1; a late report changes nothing.
        change: u32,
    },
    /// The probe of a replica fails, after it had succeeded.
    Unserved {
        /// Container of the agent.
        container: ContainerId,
        /// Number of the change, from 1; a late report changes nothing.
        change: u32,
    },
    /// A draining replica has no request in flight.
    Drained {
        /// Container of the agent.
        container: ContainerId,
        /// Version of the routes that all live gateways have at least.
        version: u64,
    },

    // Requested by users.
    /// A request to end the job.
    KillRequested {
        /// Originator of the request.
        by: String,
        /// Skip the grace period.
        immediate: bool,
    },
    /// A request to scale a role.
    ScaleRequested {
        /// The role.
        role: RoleName,
        /// New number of tasks.
        instances: u32,
    },
    /// A request for one more task of a role.
    TaskAddRequested {
        /// The role.
        role: RoleName,
        /// Variables of this task, which take precedence over those of its role.
        env: BTreeMap<String, String>,
    },
    /// A request to stop one task for good.
    TaskStopRequested {
        /// The task.
        task: TaskId,
    },
    /// A request to end the job with an outcome.
    EndRequested {
        /// The outcome.
        outcome: Outcome,
    },
    /// A request to update a serving role.
    Updated {
        /// The role.
        role: RoleName,
        /// Number of the new revision, higher than all before.
        revision: u32,
        /// Specification of the revision.
        spec: Box<RevisionSpec>,
        /// Share of the requests in percent, for a canary: it runs until it is judged.
        canary: Option<u32>,
    },
    /// A judgement about a revision, by a user or by the comparison of error rates. A good
    /// candidate is promoted if its replicas serve; a bad one is rolled back.
    Judged {
        /// The role.
        role: RoleName,
        /// Number of the revision.
        revision: u32,
        /// True if the revision is good.
        good: bool,
    },
    /// A request to undo the current update of a role, or the last one.
    UndoRequested {
        /// The role.
        role: RoleName,
    },

    // Generated by the master.
    /// The autoscaler decided on a size.
    Scaled {
        /// The role.
        role: RoleName,
        /// New number of replicas.
        instances: u32,
        /// Reason for it.
        because: String,
        /// Replicas in the order in which they are removed.
        idle: Vec<TaskId>,
    },
    /// A request arrived at a role without replicas.
    Wanted {
        /// The role.
        role: RoleName,
    },
    /// A timer expired.
    Ticked,
    /// A new master has replayed the journal. This must be the first event after the replay: every
    /// wait restarts with it.
    MasterRecovered {
        /// Containers that the backend reports as alive.
        live: Vec<ContainerId>,
    },
}

/// A container granted by the backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Id of the container.
    pub container: ContainerId,
    /// Role of the ask.
    pub role: RoleName,
    /// Node of the container.
    pub node: NodeName,
    /// Size of the container; it may exceed the ask.
    pub resources: Resources,
}

/// Exit of a container as reported by the backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContainerExit {
    /// Its process exited.
    Completed {
        /// Exit code, or 128 plus the signal.
        status: i32,
    },
    /// It exceeded its memory limit.
    MemoryLimit {
        /// Memory used.
        used_mib: u64,
        /// Memory limit.
        limit_mib: u64,
    },
    /// The cluster preempted it.
    Preempted,
    /// The cluster lost contact with its node. Processes on the node may keep running for a while.
    NodeLost,
    /// The node could not run it.
    NodeFault {
        /// Reason for the failure.
        reason: String,
    },
    /// The master released it, or the backend ended it without a failure.
    Released,
}

/// Exit of a program as reported by its agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramExit {
    /// Exit code, if the program exited by itself.
    pub code: Option<i32>,
    /// Signal that ended the program.
    pub signal: Option<i32>,
    /// Reason why the program could not be started.
    pub not_started: Option<String>,
    /// A port that was released for the program and that another process has taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port_taken: Option<u16>,
    /// The members of its round had changed before the program could join.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub outdated: bool,
    /// The container was being signalled: its exit, not the program's, is the cause.
    pub container_signalled: bool,
    /// Peak memory of the process tree.
    pub peak_memory_mib: u64,
    /// Run time.
    pub ran: Span,
    /// Last lines of its stderr.
    pub stderr_tail: String,
}
