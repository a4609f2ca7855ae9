//! Attempts and containers, as the ResourceManager reports them to clients.

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
    /// How far an attempt has come.
    pub enum AttemptState: YarnApplicationAttemptStateProto, "state of attempts" {
        /// Just made.
        New = AppAttemptNew "NEW",
        /// Handed to the scheduler.
        Submitted = AppAttemptSubmitted "SUBMITTED",
        /// Its master waits for a container.
        Scheduled = AppAttemptScheduled "SCHEDULED",
        /// Its master's container is being written down.
        AllocatedSaving = AppAttemptAllocatedSaving "ALLOCATED_SAVING",
        /// Its master has a container.
        Allocated = AppAttemptAllocated "ALLOCATED",
        /// Its master is started.
        Launched = AppAttemptLaunched "LAUNCHED",
        /// It failed.
        Failed = AppAttemptFailed "FAILED",
        /// Its master has registered.
        Running = AppAttemptRunning "RUNNING",
        /// Its master says that it is over.
        Finishing = AppAttemptFinishing "FINISHING",
        /// It is over.
        Finished = AppAttemptFinished "FINISHED",
        /// Somebody ended it.
        Killed = AppAttemptKilled "KILLED",
    }
}

named! {
    /// A signal for a container's process.
    pub enum Signal: SignalContainerCommandProto, "signal" {
        /// SIGQUIT: a JVM writes down what its threads do.
        Quit = OutputThreadDump "OUTPUT_THREAD_DUMP",
        /// SIGTERM. The container then ends with 143, if it ends.
        Terminate = GracefulShutdown "GRACEFUL_SHUTDOWN",
        /// SIGKILL.
        Kill = ForcefulShutdown "FORCEFUL_SHUTDOWN",
    }
}

/// What the ResourceManager tells about an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttemptReport {
    /// Its id.
    pub id: AttemptId,
    /// How far it has come.
    pub state: AttemptState,
    /// The container of its master, once there is one.
    pub master: Option<ContainerId>,
    /// Where its master listens, as it registered.
    pub host: String,
    /// And on which port, or -1.
    pub rpc_port: i32,
    /// Its page, through the ResourceManager's proxy.
    pub tracking_url: String,
    /// Its page, as its master registered it.
    pub original_tracking_url: String,
    /// What went wrong.
    pub diagnostics: String,
    /// When it began, in milliseconds.
    pub start_time: i64,
    /// When it was over, in milliseconds, or 0.
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

/// What the ResourceManager tells about a container.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContainerReport {
    /// Its id.
    pub id: ContainerId,
    /// How far it has come.
    pub state: ContainerState,
    /// What it has.
    pub resource: Resource,
    /// Its node, where that is known.
    pub node: Option<NodeId>,
    /// Where its node's web pages are.
    pub http_address: String,
    /// How it ended, if it has.
    pub exit: Option<ExitStatus>,
    /// What went wrong.
    pub diagnostics: String,
    /// Where its logs are.
    pub log_url: String,
    /// The priority it was asked for with.
    pub priority: i32,
    /// Whether it runs at once.
    pub execution: ExecutionType,
    /// When it was made, in milliseconds.
    pub creation_time: i64,
    /// When it was over, in milliseconds, or 0.
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
