//! The history of a job: one stream of events that the history log, the status page, the client and
//! `--json` read.

use crate::{
    ending::{Cause, Ending, Outcome},
    id::{ContainerId, NodeName, RoleName, TaskId},
    time::{Span, Time},
};
use alloc::{format, string::String};
use core::fmt;
use serde::{Deserialize, Serialize};

/// One entry of a job's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEvent {
    /// Time at which the core recorded the event.
    pub at: Time,
    /// Kind of event, with its data.
    pub kind: HistoryKind,
}

/// Reason why a round restarted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartCause {
    /// An attempt ended before those of its peers.
    #[default]
    AttemptEnded,
    /// A new or returning task joined, and its peers were not interrupted earlier.
    TaskJoined,
    /// The role was scaled down.
    TaskLeft,
}

/// End of an update.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RolloutEnd {
    /// All replicas will run the new revision.
    Promoted,
    /// All replicas will run the revision before.
    RolledBack {
        /// Reason for it.
        reason: String,
    },
}

/// Kind of a [`HistoryEvent`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HistoryKind {
    /// The job started.
    JobStarted,
    /// All members of a round are ready; their programs are told to run.
    RoundStarted {
        /// Number of the round.
        round: u32,
        /// Number of its tasks.
        tasks: u32,
    },
    /// A program is running.
    AttemptStarted {
        /// The task.
        task: TaskId,
        /// Number of the attempt.
        attempt: u32,
        /// Round of the attempt.
        round: u32,
        /// Container of the attempt.
        container: ContainerId,
        /// Node of the container.
        node: NodeName,
    },
    /// An attempt ended.
    AttemptEnded {
        /// The task.
        task: TaskId,
        /// Number of the attempt.
        attempt: u32,
        /// Round of the attempt.
        round: u32,
        /// Container of the attempt.
        container: ContainerId,
        /// Node of the container.
        node: NodeName,
        /// Ending of the attempt.
        ending: Ending,
        /// Consequence for the task and the job.
        disposition: Disposition,
        /// Peak memory of its processes, if the agent measured it.
        peak_memory_mib: u64,
        /// Last lines of its stderr.
        stderr_tail: String,
    },
    /// A running program is stopped because its round restarts or the job ends.
    AttemptStopped {
        /// The task.
        task: TaskId,
        /// Number of the attempt.
        attempt: u32,
    },
    /// A round is abandoned, and its tasks wait for a new one.
    RoundRestarted {
        /// Number of the new round.
        round: u32,
        /// The task that caused the restart.
        task: TaskId,
        /// Reason for the restart.
        #[serde(default)]
        cause: RestartCause,
        /// Number of tasks that restart.
        tasks: u32,
    },
    /// Members joined or left a round that keeps running.
    MembersChanged {
        /// Number of the round.
        round: u32,
        /// Number of its tasks now.
        tasks: u32,
    },
    /// A gang did not get all its containers in time and released those it held.
    GangReleased {
        /// Number of releases so far.
        tries: u32,
        /// Time until it asks again.
        backoff: Span,
        /// Description of the missing containers.
        missing: String,
    },
    /// A node is excluded.
    NodeExcluded {
        /// The node.
        node: NodeName,
        /// Time at which the exclusion expires.
        until: Time,
        /// Reason for the exclusion.
        reason: String,
    },
    /// A node is no longer excluded: the exclusion expired, too few nodes are left, or a role can
    /// run nowhere else.
    NodeReadmitted {
        /// The node.
        node: NodeName,
    },
    /// A task will ask for more memory.
    MemoryIncreased {
        /// The task.
        task: TaskId,
        /// Memory of its next container.
        memory_mib: u64,
    },
    /// A role was scaled.
    RoleScaled {
        /// The role.
        role: RoleName,
        /// Previous number of tasks.
        from: u32,
        /// New number of tasks.
        to: u32,
        /// Reason, unless the user requested it.
        reason: Option<String>,
    },
    /// An update of a serving role started: the first replicas of a new revision are watched.
    RolloutStarted {
        /// The role.
        role: RoleName,
        /// Number of the new revision.
        revision: u32,
        /// Share of the requests in percent, if it is a canary.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        canary: Option<u32>,
    },
    /// A revision was promoted or rolled back.
    RolloutEnded {
        /// The role.
        role: RoleName,
        /// Number of the revision.
        revision: u32,
        /// End of the update.
        end: RolloutEnd,
    },
    /// A replica gets no new requests and is stopped when it has finished its own.
    ReplicaDraining {
        /// The task.
        task: TaskId,
        /// Number of the attempt.
        attempt: u32,
    },
    /// A new master recovered the job.
    MasterRecovered {
        /// Number of containers that are still alive.
        live: u32,
    },
    /// The job is ending.
    JobEnding {
        /// Outcome of the job.
        outcome: Outcome,
    },
    /// The job fails because of another task, whose failure was reported later.
    CauseFound {
        /// The first cause.
        cause: Cause,
    },
    /// The job has finished.
    JobFinished {
        /// Outcome of the job.
        outcome: Outcome,
    },
}

/// Consequence of the end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Disposition {
    /// The task is done.
    Done,
    /// The task is retried, alone or with its peers, after a backoff.
    Retry {
        /// The backoff.
        after: Span,
    },
    /// The task failed permanently; the job tolerates it.
    Tolerated,
    /// The job fails, unless the failure turns out to follow from the loss of a peer.
    Suspected,
    /// The job fails.
    FailJob,
    /// No consequence: the job is ending, or the task is not needed any more.
    NoAction,
}

impl fmt::Display for HistoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HistoryKind::JobStarted => write!(f, "the job started"),
            HistoryKind::RoundStarted { round, tasks } => {
                write!(f, "round {round} started with {}", counted(*tasks, "task"))
            }
            HistoryKind::AttemptStarted { task, attempt, node, .. } => {
                write!(f, "{task} runs on `{node}` (attempt {attempt})")
            }
            HistoryKind::AttemptEnded {
                task, attempt, node, ending, disposition: next, ..
            } => {
                write!(f, "{task} {ending} on `{node}` (attempt {attempt})")?;
                match next {
                    Disposition::Retry { after: Span(0) } => write!(f, "; retrying"),
                    Disposition::Retry { after } => write!(f, "; retrying in {after}"),
                    Disposition::Tolerated => write!(f, "; the job continues without it"),
                    Disposition::Suspected => {
                        write!(f, "; the job fails unless a peer was lost")
                    }
                    Disposition::FailJob => write!(f, "; the job fails"),
                    Disposition::Done | Disposition::NoAction => Ok(()),
                }
            }
            HistoryKind::AttemptStopped { task, attempt } => {
                write!(f, "{task} is stopped (attempt {attempt})")
            }
            HistoryKind::RoundRestarted { round, task, cause, tasks } => {
                let tasks = counted(*tasks, "task");
                write!(f, "round {round} restarts with {tasks}: {task} ")?;
                match cause {
                    RestartCause::AttemptEnded => write!(f, "ended"),
                    RestartCause::TaskJoined => write!(f, "joined"),
                    RestartCause::TaskLeft => write!(f, "left"),
                }
            }
            HistoryKind::MembersChanged { round, tasks } => {
                write!(f, "round {round} continues with {}", counted(*tasks, "task"))
            }
            HistoryKind::GangReleased { tries, backoff, missing } => write!(
                f,
                "released its containers (try {tries}); asking again in {backoff}: {missing}"
            ),
            HistoryKind::NodeExcluded { node, reason, .. } => {
                write!(f, "node `{node}` is excluded: {reason}")
            }
            HistoryKind::NodeReadmitted { node } => {
                write!(f, "node `{node}` is no longer excluded")
            }
            HistoryKind::MemoryIncreased { task, memory_mib } => {
                write!(f, "{task} will ask for {}", crate::spec::Memory(*memory_mib))
            }
            HistoryKind::RoleScaled { role, from, to, reason } => {
                write!(f, "role `{role}` scaled from {from} to {to}")?;
                match reason {
                    Some(reason) => write!(f, ": {reason}"),
                    None => Ok(()),
                }
            }
            HistoryKind::RolloutStarted { role, revision, canary } => {
                write!(f, "role `{role}` is updated to revision {revision}")?;
                match canary {
                    Some(percent) => write!(f, ", a canary with {percent}% of the requests"),
                    None => Ok(()),
                }
            }
            HistoryKind::RolloutEnded { role, revision, end } => match end {
                RolloutEnd::Promoted => {
                    write!(f, "revision {revision} of role `{role}` is promoted")
                }
                RolloutEnd::RolledBack { reason } => {
                    write!(f, "revision {revision} of role `{role}` is rolled back: {reason}")
                }
            },
            HistoryKind::ReplicaDraining { task, attempt } => {
                write!(f, "{task} finishes its requests (attempt {attempt})")
            }
            HistoryKind::MasterRecovered { live } => {
                write!(f, "a new master recovered {}", counted(*live, "container"))
            }
            HistoryKind::JobEnding { outcome } => write!(f, "the job is ending: {outcome}"),
            HistoryKind::CauseFound { cause } => write!(f, "the first cause: {cause}"),
            HistoryKind::JobFinished { outcome } => write!(f, "{}", outcome.sentence()),
        }
    }
}

/// Formats a count with its noun: `1 task`, `2 tasks`.
pub fn counted(n: u32, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}
