//! Attempt and container reports.

use crate::proto::yarn::{
    ApplicationAttemptReportProto, ContainerReportProto, SignalContainerCommandProto,
    YarnApplicationAttemptStateProto,
};
use crate::types::named::named;
use crate::types::{
    AttemptId, ContainerId, ContainerState, ExecutionType, ExitStatus, InvalidMessage, NodeId,
    Resource,
};

named! {
    /// State of an attempt.
    pub enum AttemptState: YarnApplicationAttemptStateProto, "attempt state" {
        /// Created.
        New = AppAttemptNew "NEW",
        /// Submitted to the scheduler.
        Submitted = AppAttemptSubmitted "SUBMITTED",
        /// The master waits for a container.
        Scheduled = AppAttemptScheduled "SCHEDULED",
        /// The master's container is being written to the state store.
        AllocatedSaving = AppAttemptAllocatedSaving "ALLOCATED_SAVING",
        /// The master has a container.
        Allocated = AppAttemptAllocated "ALLOCATED",
        /// The master has been launched.
        Launched = AppAttemptLaunched "LAUNCHED",
        /// Failed.
        Failed = AppAttemptFailed "FAILED",
        /// The master has registered.
        Running = AppAttemptRunning "RUNNING",
        /// The master has unregistered.
        Finishing = AppAttemptFinishing "FINISHING",
        /// Finished.
        Finished = AppAttemptFinished "FINISHED",
        /// Killed by a user or an administrator.
        Killed = AppAttemptKilled "KILLED",
    }
}

named! {
    /// Signal for a container's process.
    pub enum Signal: SignalContainerCommandProto, "signal" {
        /// SIGQUIT: a JVM prints a thread dump.
        Quit = OutputThreadDump "OUTPUT_THREAD_DUMP",
        /// SIGTERM. A container that ends on it has exit code 143.
        Terminate = GracefulShutdown "GRACEFUL_SHUTDOWN",
        /// SIGKILL.
        Kill = ForcefulShutdown "FORCEFUL_SHUTDOWN",
    }
}

/// Report about an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttemptReport {
    /// Attempt id.
    pub id: AttemptId,
    /// Current state.
    pub state: AttemptState,
    /// Container of the master, once there is one.
    pub master: Option<ContainerId>,
    /// Host that the master registered.
    pub host: String,
    /// Port that the master registered, or -1.
    pub rpc_port: i32,
    /// Tracking page through the ResourceManager's proxy.
    pub tracking_url: String,
    /// Tracking page as the master registered it.
    pub original_tracking_url: String,
    /// Error message.
    pub diagnostics: String,
    /// Start time in milliseconds.
    pub start_time: i64,
    /// End time in milliseconds, or 0.
    pub finish_time: i64,
}

impl AttemptReport {
    pub(crate) fn of(proto: &ApplicationAttemptReportProto) -> Result<Self, InvalidMessage> {
        let master = proto.am_container_id.as_ref();
        Ok(Self {
            id: AttemptId::of(proto.application_attempt_id.as_ref())?,
            state: AttemptState::of(proto.yarn_application_attempt_state.unwrap_or(-1))?,
            master: master.map(|id| ContainerId::of(Some(id))).transpose()?,
            host: proto.host().to_owned(),
            rpc_port: proto.rpc_port(),
            tracking_url: proto.tracking_url().to_owned(),
            original_tracking_url: proto.original_tracking_url().to_owned(),
            diagnostics: proto.diagnostics().to_owned(),
            start_time: proto.start_time(),
            finish_time: proto.finish_time(),
        })
    }
}

/// Report about a container.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContainerReport {
    /// Container id.
    pub id: ContainerId,
    /// Current state.
    pub state: ContainerState,
    /// Allocated resources.
    pub resource: Resource,
    /// Node, if known.
    pub node: Option<NodeId>,
    /// Web address of the node.
    pub http_address: String,
    /// Exit status, once it has ended.
    pub exit: Option<ExitStatus>,
    /// Error message.
    pub diagnostics: String,
    /// URL of its logs.
    pub log_url: String,
    /// Priority of the ask it was granted for.
    pub priority: i32,
    /// Execution type.
    pub execution: ExecutionType,
    /// Creation time in milliseconds.
    pub creation_time: i64,
    /// End time in milliseconds, or 0.
    pub finish_time: i64,
}

impl ContainerReport {
    pub(crate) fn of(proto: &ContainerReportProto) -> Result<Self, InvalidMessage> {
        let state = ContainerState::of(proto.container_state.unwrap_or(-1))?;
        let exit = proto.container_exit_status.map(ExitStatus::from);
        let node = proto.node_id.as_ref();
        Ok(Self {
            id: ContainerId::of(proto.container_id.as_ref())?,
            state,
            resource: Resource::of(proto.resource.as_ref())?,
            node: node.and_then(|id| NodeId::of(Some(id)).ok()),
            http_address: proto.node_http_address().to_owned(),
            exit: exit.filter(|_| state == ContainerState::Complete),
            diagnostics: proto.diagnostics_info().to_owned(),
            log_url: proto.log_url().to_owned(),
            priority: proto.priority.as_ref().map_or(0, |p| p.priority()),
            execution: ExecutionType::of(proto.execution_type().into())?,
            creation_time: proto.creation_time(),
            finish_time: proto.finish_time(),
        })
    }
}
