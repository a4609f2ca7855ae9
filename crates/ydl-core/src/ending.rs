//! Endings of attempts and their consequences: the failure table.

use crate::{
    id::{ContainerId, NodeName, TaskId},
    spec::Memory,
    time::Span,
};
use alloc::{format, string::String};
use core::fmt;
use serde::{Deserialize, Serialize};

/// Ending of one attempt of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// The program exited with 0.
    Succeeded,
    /// The program exited with another code.
    Exited {
        /// Exit code.
        code: i32,
    },
    /// A signal ended the program.
    Signalled {
        /// The signal.
        signal: i32,
    },
    /// The program failed, and a port that was released for it was taken by another process.
    PortTaken {
        /// The port.
        port: u16,
    },
    /// The members of the round changed before the program could join them.
    Outdated,
    /// The program could not be executed.
    NotStarted {
        /// Reason for the failure.
        reason: String,
    },
    /// The agent could not prepare the task.
    SetupFailed {
        /// Reason for the failure.
        reason: String,
    },
    /// The agent exited without a report.
    AgentDied {
        /// Exit code, or 128 plus the signal.
        status: i32,
    },
    /// The container exceeded its memory limit.
    MemoryLimit {
        /// Memory used.
        used_mib: u64,
        /// Memory limit.
        limit_mib: u64,
    },
    /// The cluster preempted the container.
    Preempted,
    /// The container was lost with its node, or the cluster has no record of it.
    Lost,
    /// The node could not run the container.
    NodeFault {
        /// Reason for the failure.
        reason: String,
    },
    /// The agent sent no heartbeat within the timeout.
    HeartbeatTimeout {
        /// Time since its last heartbeat.
        silent_for: Span,
    },
    /// A timeout expired.
    TimedOut {
        /// The timeout that expired.
        timeout: TimeoutKind,
        /// Time waited.
        after: Span,
    },
    /// The program succeeded, but its outputs could not be uploaded.
    UploadFailed {
        /// Reason for the failure.
        reason: String,
    },
}

/// Kind of a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeoutKind {
    /// Start of the container.
    Launch,
    /// Readiness of the agent.
    Join,
    /// Start of the program.
    Start,
    /// Stop of the program.
    Stop,
    /// Readiness of a replica.
    Serve,
}

/// Effect of an ending on the node's exclusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExclusionTrigger {
    /// No effect.
    Never,
    /// The node is excluded after several such endings.
    AfterFailures,
    /// The node is excluded at once.
    Immediate,
}

impl Ending {
    /// Returns true if the ending is a failure of the task and uses up a restart.
    pub(crate) fn counts_as_failure(&self) -> bool {
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
                TimeoutKind::Start | TimeoutKind::Stop | TimeoutKind::Serve => true,
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

    /// Returns true if the ending is attributed to the node or to chance and not to the program.
    /// Too many of these in a row count as a failure.
    ///
    /// A heartbeat timeout is one of them. A node without power stops sending heartbeats long
    /// before its cluster reports it as lost, which should cost a task no more than a lost node; a
    /// program that takes its agent down does so on every attempt.
    pub(crate) fn is_node_fault(&self) -> bool {
        matches!(
            self,
            Ending::NodeFault { .. }
                | Ending::PortTaken { .. }
                | Ending::Outdated
                | Ending::HeartbeatTimeout { .. }
                | Ending::TimedOut { timeout: TimeoutKind::Launch | TimeoutKind::Join, .. }
        )
    }

    /// Returns the effect on the node's exclusion.
    pub(crate) fn exclusion_trigger(&self) -> ExclusionTrigger {
        match self {
            Ending::NodeFault { .. } | Ending::HeartbeatTimeout { .. } => {
                ExclusionTrigger::Immediate
            }
            // Another node would not help a program that never serves.
            Ending::TimedOut { timeout: TimeoutKind::Serve, .. } => ExclusionTrigger::AfterFailures,
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

/// Returns the name of a signal, such as `SIGTERM`.
pub(crate) fn signal_name(signal: i32) -> String {
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

/// Formats the ending as the predicate of a sentence about the task.
impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Succeeded => write!(f, "succeeded"),
            Ending::Exited { code } => write!(f, "exited with code {code}"),
            Ending::Signalled { signal } => write!(f, "was killed by {}", signal_name(*signal)),
            Ending::PortTaken { port } => {
                write!(f, "failed because another process took its port {port}")
            }
            Ending::Outdated => write!(f, "was too late to join its round"),
            Ending::NotStarted { reason } => write!(f, "could not be started: {reason}"),
            Ending::SetupFailed { reason } => write!(f, "could not be set up: {reason}"),
            Ending::AgentDied { status } if *status > 128 => {
                write!(f, "lost its agent, which was killed by {}", signal_name(*status - 128))
            }
            Ending::AgentDied { status } => {
                write!(f, "lost its agent, which exited with code {status}")
            }
            Ending::MemoryLimit { used_mib, limit_mib } => {
                // Values that would be equal after rounding are printed in MiB.
                if used_mib * 10 / 1024 == limit_mib * 10 / 1024 {
                    write!(f, "was killed: it used {used_mib} MiB of {limit_mib} MiB memory")
                } else {
                    let (used, limit) = (Memory(*used_mib), Memory(*limit_mib));
                    write!(f, "was killed: it used {used} of {limit} memory")
                }
            }
            Ending::Preempted => write!(f, "was preempted by the cluster"),
            Ending::Lost => write!(f, "was lost with its container"),
            Ending::NodeFault { reason } => write!(f, "could not run on its node: {reason}"),
            Ending::HeartbeatTimeout { silent_for } => {
                write!(f, "sent no heartbeat for {silent_for}")
            }
            Ending::TimedOut { timeout: wait, after } => match wait {
                TimeoutKind::Launch => write!(f, "had no container running after {after}"),
                TimeoutKind::Join => write!(f, "was not ready {after} after its container started"),
                TimeoutKind::Start => write!(f, "did not start its program within {after}"),
                TimeoutKind::Stop => write!(f, "did not stop within {after}"),
                TimeoutKind::Serve => write!(f, "did not serve within {after}"),
            },
            Ending::UploadFailed { reason } => {
                write!(f, "succeeded, but its outputs were not uploaded: {reason}")
            }
        }
    }
}

/// Final result of a task.
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

/// Outcome of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The completion rules are met.
    Succeeded,
    /// The job failed for this cause.
    Failed(Cause),
    /// The job was killed on request.
    Killed {
        /// Originator of the request.
        by: String,
    },
}

/// Cause of a job's failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A task failed permanently.
    Task {
        /// The task.
        task: TaskId,
        /// Number of its last attempt.
        attempt: u32,
        /// Node of that attempt.
        node: Option<NodeName>,
        /// Container of that attempt.
        container: Option<ContainerId>,
        /// Ending of that attempt.
        ending: Ending,
        /// Last lines of its stderr.
        stderr_tail: String,
    },
    /// The containers were not granted.
    NoContainers {
        /// Description of the missing containers.
        missing: String,
    },
    /// The job exceeded its run timeout.
    RunTimeout {
        /// The timeout.
        limit: Span,
    },
    /// A program or a user reported the failure.
    Requested {
        /// Reported reason.
        reason: String,
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
            Cause::Requested { reason } => write!(f, "{reason}"),
        }
    }
}

impl Outcome {
    /// Returns the outcome as a sentence: `the job was killed by ada`.
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
