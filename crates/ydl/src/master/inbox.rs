//! Requests to the master: one bounded inbox, each request with a channel for its response.

use hyper::StatusCode;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use tokio::sync::{mpsc, oneshot};
use ydl_core::{ContainerId, RoleName, TaskId};
use ydl_net::request::Reply;
use ydl_proto::messages;
use ydl_rendezvous::ClientFrame;

/// Capacity of the inbox. Senders wait when it is full.
const CAPACITY: usize = 1024;

/// Request with the channel for its response. The requester may be gone.
#[derive(Debug)]
pub struct Envelope {
    /// Request.
    pub request: MasterRequest,
    /// Channel for the response.
    pub respond_to: oneshot::Sender<MasterResponse>,
    /// Set once the request's content is durable.
    pub durable: DurableFlag,
}

/// Flag that the content of a request is in the journal, so that the sender need not repeat it.
#[derive(Clone, Debug, Default)]
pub struct DurableFlag(Arc<AtomicBool>);

impl DurableFlag {
    /// Sets the flag.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Returns true if the flag is set.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Response to a request.
#[derive(Debug)]
pub enum MasterResponse {
    /// Response that is ready to send.
    Http(Reply),
    /// Order of an agent. It is serialized only when it is sent: in a round with a thousand members each order
    /// lists all of them, and a thousand such texts would fill the master's memory.
    Order(messages::SyncReply),
    /// Client requests for an agent, which then asks for its order again.
    Requests(Vec<messages::NumberedRequest>),
}

impl From<Reply> for MasterResponse {
    fn from(reply: Reply) -> MasterResponse {
        MasterResponse::Http(reply)
    }
}

impl From<MasterResponse> for Reply {
    fn from(response: MasterResponse) -> Reply {
        match response {
            MasterResponse::Http(reply) => reply,
            MasterResponse::Order(synced) => Reply::json(&synced),
            MasterResponse::Requests(requests) => {
                Reply { status: StatusCode::ACCEPTED, ..Reply::json(&requests) }
            }
        }
    }
}

/// Request to the master.
#[derive(Debug)]
pub enum MasterRequest {
    /// An agent reports events and waits for its order.
    Sync(ContainerId, messages::Sync),
    /// An agent fetches the current tokens.
    Tokens(ContainerId),
    /// A waiting agent disconnected or died.
    Disconnected,
    /// A client waits for a view newer than the one it has.
    View {
        /// Number of the view that the client has.
        seen: u64,
    },
    /// The master's own tracker reads the job, including final metrics of attempts that have just ended.
    Snapshot,
    /// A client waits for history events.
    History {
        /// Number of the first event that the client lacks.
        after: u64,
    },
    /// A client kills the job.
    Kill(messages::Kill),
    /// A client resizes a role.
    Scale {
        /// Role to resize.
        role: RoleName,
        /// New number of tasks.
        instances: u32,
    },
    /// A program or a client lists the tasks.
    Tasks,
    /// A program or a client reads the job's specification.
    Spec,
    /// A program or a client changes the job.
    Change {
        /// Container of the program; none for a client.
        by: Option<ContainerId>,
        /// Requested change.
        change: JobChange,
    },
    /// A program or a client accesses the key-value store.
    Kv {
        /// Container of the program; none for a client.
        by: Option<ContainerId>,
        /// Operation.
        request: super::kv_service::KvRequest,
    },
    /// A program reports its progress.
    Metrics {
        /// Container of the program.
        container: ContainerId,
        /// Reported metrics.
        report: messages::MetricsReport,
    },
    /// A client reads logs of a task.
    Logs {
        /// Task that prints the logs.
        task: TaskId,
        /// Log request.
        request: messages::LogRequest,
    },
    /// A client connects to a port of a task.
    Forward {
        /// Task that listens on the port.
        task: TaskId,
        /// Port-forward request.
        request: messages::ForwardRequest,
    },
    /// An agent connected the requested port, or failed to.
    ForwardReply {
        /// Container of the agent.
        container: ContainerId,
        /// Number of the request.
        id: u64,
        /// Reason for the failure.
        failed: Option<String>,
    },
    /// An agent sends frames of its program's links.
    Links {
        /// Container of the agent.
        container: ContainerId,
        /// Session of the agent.
        session: super::links::SessionId,
        /// Frames of the program.
        frames: Vec<ClientFrame>,
    },
    /// An agent waits for frames for its program.
    ListenLinks {
        /// Container of the agent.
        container: ContainerId,
        /// Session of the agent.
        session: super::links::SessionId,
    },
    /// An agent responds to a log request.
    LogReply {
        /// Container of the agent.
        container: ContainerId,
        /// Number of the request.
        id: u64,
        /// Response.
        reply: super::agent_requests::AgentLogReply,
    },
}

/// Change of the job that a program or a client requests.
#[derive(Debug)]
pub enum JobChange {
    /// Adds a task.
    AddTask(messages::TaskAddition),
    /// Stops one task for good.
    StopTask(TaskId),
    /// Ends the job with an outcome.
    End(messages::EndRequest),
    /// Sets the progress of the job.
    Progress(f32),
}

impl MasterRequest {
    /// Returns true if a timeout means "no change" instead of an error.
    pub(crate) fn may_time_out(&self) -> bool {
        use super::kv_service::KvRequest;
        match self {
            MasterRequest::Sync(..)
            | MasterRequest::View { .. }
            | MasterRequest::History { .. }
            | MasterRequest::ListenLinks { .. }
            | MasterRequest::Logs { .. } => true,
            MasterRequest::Kv { request, .. } => {
                matches!(request, KvRequest::Watch(_) | KvRequest::Get { wait: true, .. })
            }
            MasterRequest::Disconnected
            | MasterRequest::Snapshot
            | MasterRequest::Kill(_)
            | MasterRequest::Scale { .. }
            | MasterRequest::Tasks
            | MasterRequest::Spec
            | MasterRequest::Change { .. }
            | MasterRequest::LogReply { .. }
            | MasterRequest::Metrics { .. }
            | MasterRequest::Forward { .. }
            | MasterRequest::ForwardReply { .. }
            | MasterRequest::Links { .. }
            | MasterRequest::Tokens(_) => false,
        }
    }

    /// Returns true if the request contains reports that must become durable.
    pub(crate) fn must_persist(&self) -> bool {
        matches!(self, MasterRequest::Sync(_, sync) if !sync.reports.is_empty())
    }
}

/// Creates an inbox.
pub fn inbox() -> (mpsc::Sender<Envelope>, mpsc::Receiver<Envelope>) {
    mpsc::channel(CAPACITY)
}
