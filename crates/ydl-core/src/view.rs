//! The job as people see it. The only model read by the client's tables, `--json` and pages.

use crate::{
    ending::{Outcome, TaskResult},
    id::{ContainerId, NodeName, RoleName, TaskId},
    spec::Range,
    time::Time,
};
use alloc::{string::String, vec::Vec};
use serde::{Deserialize, Serialize};

/// A job at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobView {
    /// What people call it.
    pub name: String,
    /// Where it stands.
    pub phase: JobPhase,
    /// When it began.
    pub started: Time,
    /// When this was true.
    pub now: Time,
    /// The newest round that runs or gathers anew. Newcomers have a number of their own while they gather apart.
    pub round: u32,
    /// What it waits for, in one sentence.
    pub why: String,
    /// How it ended, once it has.
    pub outcome: Option<Outcome>,
    /// Every role.
    pub roles: Vec<RoleView>,
    /// Every task.
    pub tasks: Vec<TaskView>,
}

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobPhase {
    /// Nothing runs yet, or not everything that should.
    Pending,
    /// Programs run.
    Running,
    /// It is being ended.
    Ending,
    /// It is over.
    Finished,
}

/// A role in a [`JobView`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleView {
    /// Its name.
    pub role: RoleName,
    /// How many tasks it should have.
    pub instances: u32,
    /// Between which numbers that may change by itself, in an elastic role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elastic: Option<Range>,
    /// How many wait for a container.
    pub waiting: u32,
    /// How many have a container and no program yet.
    pub preparing: u32,
    /// How many run their program.
    pub running: u32,
    /// How many are done.
    pub succeeded: u32,
    /// How many failed for good.
    pub failed: u32,
}

/// A task in a [`JobView`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskView {
    /// Which.
    pub task: TaskId,
    /// What it is doing.
    pub state: TaskState,
    /// Which attempt this is.
    pub attempt: u32,
    /// Which round it belongs to.
    pub round: u32,
    /// Its container, while it has one.
    pub container: Option<ContainerId>,
    /// The node it is or was last on.
    pub node: Option<NodeName>,
    /// Since when it is in this state.
    pub since: Time,
    /// How an earlier attempt ended, or this one.
    pub last_ending: Option<String>,
}

/// What a task is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskState {
    /// It waits before it asks again.
    BackingOff,
    /// It waits for a container.
    Asked,
    /// Its container is being started.
    Launching,
    /// Its agent waits for the others.
    Ready,
    /// Its program is being started.
    Starting,
    /// Its program runs.
    Running,
    /// Its program is stopped, for a new round.
    Restarting,
    /// Its program is stopped or its outputs are copied.
    Stopping,
    /// It succeeded.
    Succeeded,
    /// It failed for good.
    Failed,
    /// It was stopped with the job.
    Stopped,
}

impl TaskState {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            TaskState::BackingOff => "backing-off",
            TaskState::Asked => "asked",
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
