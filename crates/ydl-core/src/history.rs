//! The one stream of what people may want to know: history, page, client and `--json` fold over it.

use crate::{
    ending::{Ending, Outcome},
    id::{ContainerId, NodeName, RoleName, TaskId},
    time::{Span, Time},
};
use alloc::{format, string::String};
use core::fmt;
use serde::{Deserialize, Serialize};

/// Something worth knowing, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEvent {
    /// When the core learned it.
    pub at: Time,
    /// What it is.
    pub kind: HistoryKind,
}

/// How a task began a new round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartCause {
    /// Its attempt has ended before the others' have.
    #[default]
    AttemptEnded,
    /// It is new, or has come back, and the others were not interrupted before it was there.
    TaskJoined,
    /// Its role needs fewer tasks.
    TaskLeft,
}

/// What is worth knowing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HistoryKind {
    /// The job began.
    JobStarted,
    /// A gathering is complete; its programs are told to run.
    RoundStarted {
        /// Its number.
        round: u32,
        /// How many tasks are in it.
        tasks: u32,
    },
    /// A program runs.
    AttemptStarted {
        /// Whose.
        task: TaskId,
        /// Which attempt.
        attempt: u32,
        /// In which round.
        round: u32,
        /// Where.
        container: ContainerId,
        /// Where.
        node: NodeName,
    },
    /// An attempt is over.
    AttemptEnded {
        /// Whose.
        task: TaskId,
        /// Which attempt.
        attempt: u32,
        /// In which round.
        round: u32,
        /// Where.
        container: ContainerId,
        /// Where.
        node: NodeName,
        /// How it ended.
        ending: Ending,
        /// What follows.
        disposition: Disposition,
        /// The most memory its processes used, where the agent could say.
        peak_memory_mib: u64,
        /// The last lines it wrote to stderr.
        stderr_tail: String,
    },
    /// A running program is stopped because a round begins anew or the job is over.
    AttemptStopped {
        /// Whose.
        task: TaskId,
        /// Which attempt.
        attempt: u32,
    },
    /// A round is given up; a new one gathers.
    RoundRestarted {
        /// The new round.
        round: u32,
        /// Who began it.
        task: TaskId,
        /// How.
        #[serde(default)]
        cause: RestartCause,
        /// Who starts again.
        tasks: u32,
    },
    /// Members came or went, and the others run on.
    MembersChanged {
        /// The round that goes on.
        round: u32,
        /// How many tasks are in it now.
        tasks: u32,
    },
    /// The gang could not be had in time and gave everything back.
    GangReleased {
        /// How often so far.
        tries: u32,
        /// How long it stays away.
        backoff: Span,
        /// What was missing, in one sentence.
        missing: String,
    },
    /// A node is avoided.
    NodeExcluded {
        /// Which.
        node: NodeName,
        /// Until when.
        until: Time,
        /// What it is blamed for, in one sentence.
        reason: String,
    },
    /// A node is no longer avoided: its time is up, there are too few nodes to be choosy, or a role can run nowhere else.
    NodeReadmitted {
        /// Which.
        node: NodeName,
    },
    /// A task will ask for more memory.
    MemoryIncreased {
        /// Which.
        task: TaskId,
        /// Its new size.
        memory_mib: u64,
    },
    /// A role has another size.
    RoleScaled {
        /// Which.
        role: RoleName,
        /// From.
        from: u32,
        /// To.
        to: u32,
        /// Why, where nobody asked for it.
        reason: Option<String>,
    },
    /// A new master took over.
    MasterRecovered {
        /// How many containers were still there.
        live: u32,
    },
    /// The job is being ended.
    JobEnding {
        /// As what.
        outcome: Outcome,
    },
    /// The job is over.
    JobFinished {
        /// As what.
        outcome: Outcome,
    },
}

/// What follows the end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Disposition {
    /// The task is done.
    Done,
    /// The task starts again, alone or with others, after a wait.
    Retry {
        /// The wait.
        after: Span,
    },
    /// The task has failed for good, and the job can live with it.
    Tolerated,
    /// The job fails, unless it turns out within a while that the cluster has taken a peer.
    Suspected,
    /// The job fails.
    FailJob,
    /// Nothing: the job is ending, or nobody needs the task any more.
    NoAction,
}

impl fmt::Display for HistoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HistoryKind::JobStarted => write!(f, "the job began"),
            HistoryKind::RoundStarted { round, tasks } => {
                write!(f, "round {round} began with {}", counted(*tasks, "task"))
            }
            HistoryKind::AttemptStarted { task, attempt, node, .. } => {
                write!(f, "{task} runs on `{node}` (attempt {attempt})")
            }
            HistoryKind::AttemptEnded {
                task, attempt, node, ending, disposition: next, ..
            } => {
                write!(f, "{task} {ending} on `{node}` (attempt {attempt})")?;
                match next {
                    Disposition::Retry { after: Span(0) } => write!(f, "; it starts again"),
                    Disposition::Retry { after } => write!(f, "; it starts again in {after}"),
                    Disposition::Tolerated => write!(f, "; the job goes on without it"),
                    Disposition::Suspected => {
                        write!(f, "; the job fails unless a peer was taken from it")
                    }
                    Disposition::FailJob => write!(f, "; the job fails"),
                    Disposition::Done | Disposition::NoAction => Ok(()),
                }
            }
            HistoryKind::AttemptStopped { task, attempt } => {
                write!(f, "{task} is stopped (attempt {attempt})")
            }
            HistoryKind::RoundRestarted { round, task: because, cause: how, tasks } => {
                let tasks = counted(*tasks, "task");
                write!(f, "round {round} gathers {tasks} because ")?;
                match how {
                    RestartCause::AttemptEnded => write!(f, "of {because}"),
                    RestartCause::TaskJoined => write!(f, "{because} joins"),
                    RestartCause::TaskLeft => write!(f, "{because} leaves"),
                }
            }
            HistoryKind::MembersChanged { round, tasks } => {
                write!(f, "round {round} goes on with {}", counted(*tasks, "task"))
            }
            HistoryKind::GangReleased { tries, backoff, missing } => write!(
                f,
                "gave its containers back (try {tries}) and asks again in {backoff}: {missing}"
            ),
            HistoryKind::NodeExcluded { node, reason: because, .. } => {
                write!(f, "node `{node}` is avoided for a while: {because}")
            }
            HistoryKind::NodeReadmitted { node } => write!(f, "node `{node}` is no longer avoided"),
            HistoryKind::MemoryIncreased { task, memory_mib } => {
                write!(f, "{task} asks for {} from now on", crate::spec::Memory(*memory_mib))
            }
            HistoryKind::RoleScaled { role, from, to, reason: because } => {
                write!(f, "role `{role}` goes from {from} to {to}")?;
                match because {
                    Some(because) => write!(f, ": {because}"),
                    None => Ok(()),
                }
            }
            HistoryKind::MasterRecovered { live } => {
                write!(f, "a new master took over {}", counted(*live, "container"))
            }
            HistoryKind::JobEnding { outcome } => write!(f, "the job is ending: {outcome}"),
            HistoryKind::JobFinished { outcome } => write!(f, "{}", outcome.sentence()),
        }
    }
}

/// `1 task`, `2 tasks`.
pub fn counted(n: u32, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}
