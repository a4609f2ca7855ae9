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
pub struct Fact {
    /// When the core learned it.
    pub at: Time,
    /// What it is.
    pub what: What,
}

/// How a task began a new round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Broken {
    /// Its attempt has ended before the others' have.
    #[default]
    Ended,
    /// It is new, or has come back, and the others were not interrupted before it was there.
    Joins,
    /// Its role needs fewer tasks.
    Leaves,
}

/// What is worth knowing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
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
        next: Next,
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
    RoundBroken {
        /// The new round.
        round: u32,
        /// Who began it.
        because: TaskId,
        /// How.
        #[serde(default)]
        how: Broken,
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
    GangGaveBack {
        /// How often so far.
        tries: u32,
        /// How long it stays away.
        backoff: Span,
        /// What was missing, in one sentence.
        missing: String,
    },
    /// A node is avoided.
    NodeBlamed {
        /// Which.
        node: NodeName,
        /// Until when.
        until: Time,
        /// What it is blamed for, in one sentence.
        because: String,
    },
    /// A node is no longer avoided: its time is up, there are too few nodes to be choosy, or a role can run nowhere else.
    NodeForgiven {
        /// Which.
        node: NodeName,
    },
    /// A task will ask for more memory.
    MemoryGrew {
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
        because: Option<String>,
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
pub enum Next {
    /// The task is done.
    Done,
    /// The task starts again, alone or with others, after a wait.
    Again {
        /// The wait.
        after: Span,
    },
    /// The task has failed for good, and the job can live with it.
    Tolerated,
    /// The job fails, unless it turns out within a while that the cluster has taken a peer.
    Doubted,
    /// The job fails.
    JobFails,
    /// Nothing: the job is ending, or nobody needs the task any more.
    Nothing,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::JobStarted => write!(f, "the job began"),
            What::RoundStarted { round, tasks } => {
                write!(f, "round {round} began with {}", counted(*tasks, "task"))
            }
            What::AttemptStarted { task, attempt, node, .. } => {
                write!(f, "{task} runs on `{node}` (attempt {attempt})")
            }
            What::AttemptEnded { task, attempt, node, ending, next, .. } => {
                write!(f, "{task} {ending} on `{node}` (attempt {attempt})")?;
                match next {
                    Next::Again { after: Span(0) } => write!(f, "; it starts again"),
                    Next::Again { after } => write!(f, "; it starts again in {after}"),
                    Next::Tolerated => write!(f, "; the job goes on without it"),
                    Next::Doubted => {
                        write!(f, "; the job fails unless a peer was taken from it")
                    }
                    Next::JobFails => write!(f, "; the job fails"),
                    Next::Done | Next::Nothing => Ok(()),
                }
            }
            What::AttemptStopped { task, attempt } => {
                write!(f, "{task} is stopped (attempt {attempt})")
            }
            What::RoundBroken { round, because, how, tasks } => {
                let tasks = counted(*tasks, "task");
                write!(f, "round {round} gathers {tasks} because ")?;
                match how {
                    Broken::Ended => write!(f, "of {because}"),
                    Broken::Joins => write!(f, "{because} joins"),
                    Broken::Leaves => write!(f, "{because} leaves"),
                }
            }
            What::MembersChanged { round, tasks } => {
                write!(f, "round {round} goes on with {}", counted(*tasks, "task"))
            }
            What::GangGaveBack { tries, backoff, missing } => write!(
                f,
                "gave its containers back (try {tries}) and asks again in {backoff}: {missing}"
            ),
            What::NodeBlamed { node, because, .. } => {
                write!(f, "node `{node}` is avoided for a while: {because}")
            }
            What::NodeForgiven { node } => write!(f, "node `{node}` is no longer avoided"),
            What::MemoryGrew { task, memory_mib } => {
                write!(f, "{task} asks for {} from now on", crate::spec::Memory(*memory_mib))
            }
            What::RoleScaled { role, from, to, because } => {
                write!(f, "role `{role}` goes from {from} to {to}")?;
                match because {
                    Some(because) => write!(f, ": {because}"),
                    None => Ok(()),
                }
            }
            What::MasterRecovered { live } => {
                write!(f, "a new master took over {}", counted(*live, "container"))
            }
            What::JobEnding { outcome } => write!(f, "the job is ending: {outcome}"),
            What::JobFinished { outcome } => write!(f, "{}", outcome.sentence()),
        }
    }
}

/// `1 task`, `2 tasks`.
pub fn counted(n: u32, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}
