//! Policies: restarts, completion, gangs, timeouts and node exclusion. Data only; `job` applies
//! them.

use crate::time::Span;
use serde::{Deserialize, Serialize};

/// Restart policy of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    /// Tasks that restart with a failed task.
    pub scope: RestartScope,
    /// Number of failures that are retried: of one task if the scope is `task`, of the role
    /// otherwise. Endings that are not failures (preemption, a lost node) are always retried and
    /// never counted.
    pub limit: u32,
    /// Wait before the next attempt.
    pub backoff: Backoff,
    /// Window in which failures count; without it all failures count.
    pub window: Option<Span>,
}

impl Restart {
    /// Default limit of elastic roles, which must survive preemption. A failure counts until the
    /// cluster is known to be its cause.
    pub const ELASTIC_LIMIT: u32 = 3;

    /// Returns the default of sidecars: a few restarts, because nothing depends on them.
    pub fn of_sidecar() -> Restart {
        Restart { limit: 3, ..Restart::default() }
    }
}

impl Default for Restart {
    fn default() -> Self {
        Restart {
            scope: RestartScope::Task,
            limit: 0,
            backoff: Backoff { initial: Span::seconds(1), max: Span::minutes(1) },
            window: None,
        }
    }
}

/// Tasks that restart when one task fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartScope {
    /// Only the task.
    Task,
    /// Every task of its role, in a new round.
    Role,
    /// Every task of the job, in a new round.
    Job,
}

/// A wait that doubles from `initial` up to `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// The first wait.
    pub initial: Span,
    /// The longest wait.
    pub max: Span,
}

impl Backoff {
    /// Returns the wait after the `n`th failure, counted from 1.
    pub fn delay(&self, n: u32) -> Span {
        let doubled = self.initial.0.saturating_mul(1 << n.saturating_sub(1).min(32));
        Span(doubled.min(self.max.0))
    }
}

/// Effect of a role's end on the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Completion {
    /// The job needs every task of this role to succeed.
    #[default]
    All,
    /// The job needs one task of this role to succeed.
    Any,
    /// The job succeeds when every task of this role has succeeded, regardless of other roles.
    Primary,
    /// The role need not end: its tasks are stopped when the others are done (parameter servers).
    Service,
    /// The role ends by itself soon after the others (evaluators). The job waits for it up to a
    /// timeout.
    Follows,
    /// The role runs next to the job (TensorBoard, a notebook): it is in no round, has no rank, is
    /// not waited for, and neither its failures nor its end affect the job.
    Sidecar,
}

/// Gang scheduling of tasks, and the handling of incomplete gangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gang {
    /// Start tasks only when all are ready.
    pub together: bool,
    /// Time an incomplete gang keeps its containers. Two incomplete gangs that wait for each other
    /// would otherwise deadlock.
    pub hold: Span,
    /// Number of times the gang releases its containers and tries again before the job fails.
    pub retries: u32,
    /// Wait before it tries again.
    pub backoff: Backoff,
    /// Time without a change before a gang of elastic roles starts with the ready tasks, or is
    /// interrupted for newcomers.
    pub settle: Span,
    /// Reaction of running members when others join or leave.
    #[serde(default)]
    pub resize: ResizePolicy,
}

impl Default for Gang {
    fn default() -> Self {
        Gang {
            together: false,
            hold: Span::minutes(5),
            retries: 3,
            backoff: Backoff { initial: Span::seconds(30), max: Span::minutes(10) },
            settle: Span::seconds(10),
            resize: ResizePolicy::Restart,
        }
    }
}

/// Reaction of running programs to a change of the members of their round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResizePolicy {
    /// All programs are stopped and restart in a new round with new ranks.
    #[default]
    Restart,
    /// The programs keep running and are notified by the rendezvous of their framework: the core
    /// emits [`Action::MembersChanged`](crate::Action::MembersChanged), and the master passes it to
    /// the protocol.
    Notify,
}

/// Timeouts of all waits. Every state of a task has one, so a job cannot hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeouts {
    /// From the asks until all containers are granted.
    pub allocation: Span,
    /// From a grant until the container starts.
    pub launch: Span,
    /// From the container's start until its agent is ready. On a cluster, the node downloads and
    /// unpacks the environment in this time.
    pub join: Span,
    /// Time for the download of a task's inputs, in addition to `join`.
    pub fetch: Span,
    /// From the order to run until the program runs.
    pub start: Span,
    /// From the job's start until its end; unlimited if not set.
    pub run: Option<Span>,
    /// From the time when only followers are left until they have ended.
    pub follow: Span,
    /// Heartbeat timeout of an agent.
    pub heartbeat: Span,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Span,
    /// Time for an agent to obey, or a container to end, in addition to the grace period.
    pub stop: Span,
    /// Time for the upload of a task's outputs.
    pub upload: Span,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            allocation: Span::hours(1),
            launch: Span::minutes(2),
            join: Span::minutes(15),
            fetch: Span::hours(6),
            start: Span::minutes(2),
            run: None,
            follow: Span::minutes(30),
            heartbeat: Span::seconds(60),
            grace: Span::seconds(10),
            stop: Span::seconds(20),
            upload: Span::minutes(10),
        }
    }
}

/// Conditions under which a node is excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeExclusion {
    /// Number of program failures that exclude a node; node faults exclude it at once.
    pub failures: u32,
    /// Duration of an exclusion.
    pub timeout: Span,
    /// Maximum number of excluded nodes. Never more than half of the nodes, nor nodes that a role
    /// requires.
    pub max_nodes: u32,
}

impl Default for NodeExclusion {
    fn default() -> Self {
        NodeExclusion { failures: 3, timeout: Span::minutes(30), max_nodes: 10 }
    }
}

/// Memory growth after a container exceeded its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryGrowth {
    /// Growth per retry in percent.
    pub percent: u32,
    /// Maximum memory.
    pub max_mib: u64,
}

impl MemoryGrowth {
    /// Default growth in percent.
    pub const PERCENT: u32 = 50;
}
