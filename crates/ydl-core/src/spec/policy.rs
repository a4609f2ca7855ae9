//! What happens when: restarts, completion, gangs, deadlines, blame. Data only; the deciding is in `job`.

use crate::time::Span;
use serde::{Deserialize, Serialize};

/// What happens when a task of a role fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    /// Who starts again with it.
    pub scope: RestartScope,
    /// So many failures are repaired: of one task where the scope is `task`, of the role otherwise. Endings that
    /// are nobody's fault (preemption, a lost node) are always repaired and never counted.
    pub limit: u32,
    /// How long to wait before the next attempt.
    pub backoff: Backoff,
    /// Failures older than this are forgotten; without it none ever is.
    pub window: Option<Span>,
}

/// Who starts again when one task fails.
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

/// A wait that doubles from `first` up to `most`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// The first wait.
    pub initial: Span,
    /// The longest wait.
    pub max: Span,
}

impl Backoff {
    /// The wait after the `n`th failure, counted from 1.
    pub fn delay(&self, n: u32) -> Span {
        let doubled = self.initial.0.saturating_mul(1 << n.saturating_sub(1).min(32));
        Span(doubled.min(self.max.0))
    }
}

/// What a role's end means for the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Completion {
    /// The job needs every task of this role to succeed.
    All,
    /// The job needs one task of this role to succeed.
    Any,
    /// When every task of this role has succeeded the job has, whatever the others do.
    Primary,
    /// It need not end: its tasks are stopped when the others are done (parameter servers, sidecars).
    Service,
    /// It ends by itself soon after the others (evaluators). It is waited for, but not for ever.
    Follows,
    /// It stands beside the job and is no part of it (TensorBoard, a notebook): it is in no round and has no rank, nobody
    /// waits for it, and the job cares neither for its failures nor for its end.
    Sidecar,
}

/// Whether tasks start together, and what is done while they cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gang {
    /// Nobody starts before everybody is there.
    pub together: bool,
    /// How long an incomplete gang keeps the containers it has. Two half-gangs that wait for each other would
    /// otherwise wait for ever.
    pub hold: Span,
    /// How often the gang gives everything back and tries again before the job fails.
    pub retries: u32,
    /// How long it stays away before it tries again.
    pub backoff: Backoff,
    /// How long nothing may have changed before a gang of elastic roles begins with those who are there, or is
    /// interrupted for those who have come.
    #[serde(default = "settle")]
    pub settle: Span,
    /// What members of a running round do when others come and go.
    #[serde(default)]
    pub reform: ResizePolicy,
}

/// How long a gang waits for more unless the user says otherwise.
pub const SETTLE: Span = Span::seconds(10);

fn settle() -> Span {
    SETTLE
}

/// What the programs of a gang whose members come and go do about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResizePolicy {
    /// All of them are stopped and start again in a new round, with new ranks.
    #[default]
    Restart,
    /// They run on in their round and are told of the change by their framework's rendezvous: the core says
    /// [`Action::Changed`](crate::Action::Changed), the master hands it to the protocol.
    Notify,
}

/// How long each wait may take. Every state of a task has one; a job cannot hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeouts {
    /// From asking for containers until all are granted.
    pub allocation: Span,
    /// From a grant until the container is known to start.
    pub launch: Span,
    /// From the container's start until its agent is ready. A node of a cluster fetches and unpacks an environment
    /// meanwhile, and says nothing of it.
    pub join: Span,
    /// How long, beyond `join`, the inputs of a task may take to come.
    pub fetch: Span,
    /// From the order to run until the program runs.
    pub start: Span,
    /// From the job's start until its end; without it a job may run for ever.
    pub run: Option<Span>,
    /// From the moment when only roles that follow are left until they have ended, too.
    pub follow: Span,
    /// How long an agent may be quiet.
    pub heartbeat: Span,
    /// How long a program has between SIGTERM and SIGKILL.
    pub grace: Span,
    /// How long, beyond the grace, an agent may take to obey, and a container to be gone.
    pub stop: Span,
    /// How long copying the outputs of a task may take.
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

/// When a node is avoided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeExclusion {
    /// So many failures of programs on one node make it suspect; faults of the node itself count at once.
    pub failures: u32,
    /// How long a suspect is avoided.
    pub timeout: Span,
    /// At most so many nodes are avoided at a time, and never more than half of those there are, nor those that a role
    /// cannot do without.
    pub max_nodes: u32,
}

impl Default for NodeExclusion {
    fn default() -> Self {
        NodeExclusion { failures: 3, timeout: Span::minutes(30), max_nodes: 10 }
    }
}

/// More memory after a kill for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryGrowth {
    /// So many percent more each time.
    pub percent: u32,
    /// Never more than this.
    pub max_mib: u64,
}
