//! View of a job: the only model read by the client's tables, `--json` and the status page.

use crate::{
    ending::{Outcome, TaskResult},
    id::{ContainerId, NodeName, RoleName, TaskId},
    spec::Range,
    time::Time,
};
use alloc::{string::String, vec::Vec};
use serde::{Deserialize, Serialize};

/// Snapshot of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobView {
    /// Name of the job.
    pub name: String,
    /// Phase of the job.
    pub phase: JobPhase,
    /// Start time.
    pub started: Time,
    /// Time of the snapshot.
    pub now: Time,
    /// Newest round that runs or waits for its members. Newcomers that wait apart have a round
    /// number of their own.
    pub round: u32,
    /// Description of what the job waits for.
    pub reason: String,
    /// Outcome, once the job has ended.
    pub outcome: Option<Outcome>,
    /// All roles.
    pub roles: Vec<RoleView>,
    /// All tasks.
    pub tasks: Vec<TaskView>,
}

impl JobView {
    /// Returns the name of the job's state, used in tables, JSON and on the job's page.
    pub fn word(&self) -> &'static str {
        match (&self.outcome, self.phase) {
            (Some(Outcome::Succeeded), JobPhase::Finished) => "succeeded",
            (Some(Outcome::Failed(_)), JobPhase::Finished) => "failed",
            (Some(Outcome::Killed { .. }), JobPhase::Finished) => "killed",
            (_, JobPhase::Pending) => "pending",
            (_, JobPhase::Running) => "running",
            (_, JobPhase::Ending) => "ending",
            (None, JobPhase::Finished) => "finished",
        }
    }
}

/// Phase of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobPhase {
    /// Some or all programs do not run yet.
    Pending,
    /// Programs are running.
    Running,
    /// The job is ending.
    Ending,
    /// The job has finished.
    Finished,
}

/// A role in a [`JobView`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleView {
    /// Name of the role.
    pub role: RoleName,
    /// Desired number of tasks, and of those stopped on request.
    pub instances: u32,
    /// Range of an elastic role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elastic: Option<Range>,
    /// Tasks that wait for a container.
    pub waiting: u32,
    /// Tasks with a container whose program does not run yet.
    pub preparing: u32,
    /// Tasks whose program runs.
    pub running: u32,
    /// Tasks that succeeded.
    pub succeeded: u32,
    /// Tasks that failed permanently.
    pub failed: u32,
}

/// A task in a [`JobView`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskView {
    /// The task.
    pub task: TaskId,
    /// State of the task.
    pub state: TaskState,
    /// Number of the attempt.
    pub attempt: u32,
    /// Round of the task.
    pub round: u32,
    /// Its container, while it has one.
    pub container: Option<ContainerId>,
    /// Its current or last node.
    pub node: Option<NodeName>,
    /// Time at which it entered this state.
    pub since: Time,
    /// Ending of the latest attempt that ended.
    pub last_ending: Option<String>,
}

/// State of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskState {
    /// It waits for its backoff.
    BackingOff,
    /// It waits for a container.
    Requested,
    /// Its container is being started.
    Launching,
    /// Its agent is ready and waits for its peers.
    Ready,
    /// Its program is being started.
    Starting,
    /// Its program runs.
    Running,
    /// Its program is being stopped for a new round.
    Restarting,
    /// Its program is being stopped or its outputs are being uploaded.
    Stopping,
    /// It succeeded.
    Succeeded,
    /// It failed permanently.
    Failed,
    /// It was stopped with the job.
    Stopped,
}

impl TaskState {
    /// Returns the name used in tables and JSON.
    pub fn word(self) -> &'static str {
        match self {
            TaskState::BackingOff => "backing-off",
            TaskState::Requested => "requested",
            TaskState::Launching => "launching",
            TaskState::Ready => "ready",
            TaskState::Starting => "starting",
            TaskState::Running => "running",
            TaskState::Restarting => "restarting",
            TaskState::Stopping => "stopping",
            TaskState::Succeeded => "succeeded",
            TaskState::Failed => "failed",
            TaskState::Stopped => "stopped",
        }
    }
}

impl From<&TaskResult> for TaskState {
    fn from(result: &TaskResult) -> TaskState {
        match result {
            TaskResult::Succeeded => TaskState::Succeeded,
            TaskResult::Failed(_) => TaskState::Failed,
            TaskResult::Stopped => TaskState::Stopped,
        }
    }
}
