//! How an attempt ended and what follows from it: the failure table.

use crate::{
    id::{ContainerId, NodeName, TaskId},
    spec::Memory,
    time::Span,
};
use alloc::{format, string::String};
use core::fmt;
use serde::{Deserialize, Serialize};

/// What ended one attempt of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// The program exited with 0.
    Succeeded,
    /// The program exited with another code.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// A signal ended the program.
    Signalled {
        /// Which.
        signal: i32,
    },
    /// The program failed, and a port that was let go for it belongs to somebody else.
    PortTaken {
        /// Which.
        port: u16,
    },
    /// The program was to join others, and could not, because they are not the same any more.
    Outdated,
    /// The program could not be executed.
    NotStarted {
        /// Why.
        reason: String,
    },
    /// The agent could not prepare for the program.
    SetupFailed {
        /// Why.
        reason: String,
    },
    /// The agent itself ended without a word.
    AgentDied {
        /// Exit code, or 128 and the signal.
        status: i32,
    },
    /// The container used more memory than it had asked for.
    MemoryLimit {
        /// How much it used.
        used_mib: u64,
        /// How much it had.
        limit_mib: u64,
    },
    /// The cluster took the container back.
    Preempted,
    /// The container went with its node, or with the cluster's memory of it.
    Lost,
    /// The node could not run the container.
    NodeFault {
        /// Why.
        reason: String,
    },
    /// The agent was quiet for too long.
    HeartbeatTimeout {
        /// How long.
        silent_for: Span,
    },
    /// A deadline passed.
    TimedOut {
        /// What was waited for: `launch`, `join`, `start` or `stop`.
        timeout: TimeoutKind,
        /// How long.
        after: Span,
    },
    /// The program succeeded, its outputs could not be copied.
    UploadFailed {
        /// Why.
        reason: String,
    },
}

/// A wait with a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeoutKind {
    /// For the container to start.
    Launch,
    /// For the agent to be ready.
    Join,
    /// For the program to start.
    Start,
    /// For the program to stop.
    Stop,
}

/// What an ending says about the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExclusionTrigger {
    /// Nothing.
    Never,
    /// It is suspect when this happens several times.
    AfterFailures,
    /// It is to be avoided at once.
    Immediate,
}

impl Ending {
    /// Whether it is somebody's fault and uses up a restart.
    pub fn counts_as_failure(&self) -> bool {
        match self {
            Ending::Succeeded
            | Ending::Preempted
            | Ending::Lost
            | Ending::NodeFault { .. }
            | Ending::PortTaken { .. }
            | Ending::Outdated
            | Ending::HeartbeatTimeout { .. } => false,
            Ending::TimedOut { timeout: wait, .. } => match wait {
                TimeoutKind::Launch | TimeoutKind::Join => false,
                TimeoutKind::Start | TimeoutKind::Stop => true,
            },
            Ending::Exited { .. }
            | Ending::Signalled { .. }
            | Ending::NotStarted { .. }
            | Ending::SetupFailed { .. }
            | Ending::AgentDied { .. }
            | Ending::MemoryLimit { .. }
            | Ending::UploadFailed { .. } => true,
        }
    }

    /// Whether it is laid at the node's door, or at chance's, and not the program's: too many of these in a row are a
    /// failure all the same.
    ///
    /// Silence is one of them. A node without power is silent long before its cluster calls it lost, which should cost
    /// a task no more than being lost; a program that takes its agent down with it does so every time.
    pub fn is_node_fault(&self) -> bool {
        matches!(
            self,
            Ending::NodeFault { .. }
                | Ending::PortTaken { .. }
                | Ending::Outdated
                | Ending::HeartbeatTimeout { .. }
                | Ending::TimedOut { timeout: TimeoutKind::Launch | TimeoutKind::Join, .. }
        )
    }

    /// What it says about the node.
    pub fn exclusion_trigger(&self) -> ExclusionTrigger {
        match self {
            Ending::NodeFault { .. } | Ending::HeartbeatTimeout { .. } => {
                ExclusionTrigger::Immediate
            }
            Ending::TimedOut { .. } => ExclusionTrigger::Immediate,
            Ending::Exited { .. } | Ending::Signalled { .. } | Ending::AgentDied { .. } => {
                ExclusionTrigger::AfterFailures
            }
            Ending::Succeeded
            | Ending::PortTaken { .. }
            | Ending::Outdated
            | Ending::NotStarted { .. }
            | Ending::SetupFailed { .. }
            | Ending::MemoryLimit { .. }
            | Ending::Preempted
            | Ending::Lost
            | Ending::UploadFailed { .. } => ExclusionTrigger::Never,
        }
    }
}

/// The names of signals a person knows.
pub fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        other => return format!("signal {other}"),
    };
    String::from(name)
}

/// The rest of a sentence that begins with the task's name.
impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Succeeded => write!(f, "succeeded"),
            Ending::Exited { code } => write!(f, "exited with code {code}"),
            Ending::Signalled { signal } => write!(f, "was killed by {}", signal_name(*signal)),
            Ending::PortTaken { port } => {
                write!(f, "failed when somebody else had taken its port {port}")
            }
            Ending::Outdated => write!(f, "came too late to join its peers"),
            Ending::NotStarted { reason: why } => write!(f, "could not be started: {why}"),
            Ending::SetupFailed { reason: why } => write!(f, "could not get ready: {why}"),
            Ending::AgentDied { status } if *status > 128 => {
                write!(f, "lost its agent, which was killed by {}", signal_name(*status - 128))
            }
            Ending::AgentDied { status } => {
                write!(f, "lost its agent, which exited with code {status}")
            }
            Ending::MemoryLimit { used_mib, limit_mib } => {
                // Figures that would look alike once rounded are told in MiB.
                if used_mib * 10 / 1024 == limit_mib * 10 / 1024 {
                    write!(f, "was killed: it used {used_mib} of {limit_mib} MiB memory")
                } else {
                    let (used, limit) = (Memory(*used_mib), Memory(*limit_mib));
                    write!(f, "was killed: it used {used} of {limit} memory")
                }
            }
            Ending::Preempted => write!(f, "was preempted by the cluster"),
            Ending::Lost => write!(f, "was lost with its container"),
            Ending::NodeFault { reason: why } => write!(f, "could not run on its node: {why}"),
            Ending::HeartbeatTimeout { silent_for: quiet } => {
                write!(f, "was not heard of for {quiet}")
            }
            Ending::TimedOut { timeout: wait, after } => match wait {
                TimeoutKind::Launch => write!(f, "had no container running after {after}"),
                TimeoutKind::Join => write!(f, "was not ready {after} after its container started"),
                TimeoutKind::Start => write!(f, "did not start its program within {after}"),
                TimeoutKind::Stop => write!(f, "did not stop within {after}"),
            },
            Ending::UploadFailed { reason: why } => {
                write!(f, "succeeded, but its outputs were not saved: {why}")
            }
        }
    }
}

/// How a task ended for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskResult {
    /// Its last attempt succeeded.
    Succeeded,
    /// Its last attempt failed and no restart was left.
    Failed(Ending),
    /// It was stopped because the job was over.
    Stopped,
}

/// How the job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// As its completion rules want it.
    Succeeded,
    /// For this reason.
    Failed(Cause),
    /// Somebody wanted it to end.
    Killed {
        /// Who or what.
        by: String,
    },
}

/// Why a job failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A task failed for good.
    Task {
        /// Which.
        task: TaskId,
        /// Its last attempt.
        attempt: u32,
        /// Where it ran.
        node: Option<NodeName>,
        /// In which container.
        container: Option<ContainerId>,
        /// How it ended.
        ending: Ending,
        /// The last lines it wrote to stderr.
        stderr_tail: String,
    },
    /// The containers could not be had.
    NoContainers {
        /// What was missing, in one sentence.
        missing: String,
    },
    /// The job ran longer than it was allowed to.
    RunTimeout {
        /// The limit.
        limit: Span,
    },
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Task { task, attempt, node, ending, .. } => {
                write!(f, "{task} {ending}")?;
                if let Some(node) = node {
                    write!(f, " on `{node}`")?;
                }
                write!(f, " (attempt {attempt})")
            }
            Cause::NoContainers { missing } => write!(f, "{missing}"),
            Cause::RunTimeout { limit } => {
                write!(f, "the job ran longer than its limit of {limit}")
            }
        }
    }
}

impl Outcome {
    /// The whole sentence: `the job was killed by ada`.
    pub fn sentence(&self) -> String {
        match self {
            Outcome::Killed { .. } => format!("the job was {self}"),
            Outcome::Succeeded | Outcome::Failed(_) => format!("the job {self}"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Succeeded => write!(f, "succeeded"),
            Outcome::Failed(cause) => write!(f, "failed: {cause}"),
            Outcome::Killed { by } => write!(f, "killed by {by}"),
        }
    }
}
