//! Requests to the master: one bounded inbox, each request with a channel for its response.

use hyper::StatusCode;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use tokio::sync::{mpsc, oneshot};
use ydl_core::{ContainerId, RoleName, TaskId};
use ydl_net::request::Reply;
use ydl_proto::messages as talk;
use ydl_rendezvous::ClientFrame;

/// Capacity of the inbox. Senders wait when it is full.
const ROOM: usize = 1024;

/// Request with the channel for its response. The requester may be gone.
#[derive(Debug)]
pub struct Letter {
    /// Request.
    pub question: Question,
    /// Channel for the response.
    pub answer: oneshot::Sender<Answer>,
    /// Set once the request's content is durable.
    pub kept: Kept,
}

/// Flag that the content of a request is in the journal, so that the sender need not repeat it.
#[derive(Clone, Debug, Default)]
pub struct Kept(Arc<AtomicBool>);

impl Kept {
    /// Sets the flag.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Returns true if the flag is set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Response to a request.
#[derive(Debug)]
pub enum Answer {
    /// Response that is ready to send.
    Reply(Reply),
    /// Order of an agent. It is serialized only when it is sent: in a round with a thousand members each order
    /// lists all of them, and a thousand such texts would fill the master's memory.
    Order(talk::SyncReply),
    /// Client requests for an agent, which then asks for its order again.
    Wishes(Vec<talk::NumberedRequest>),
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Answer {
        Answer::Reply(reply)
    }
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Reply {
        match answer {
            Answer::Reply(reply) => reply,
            Answer::Order(synced) => Reply::json(&synced),
            Answer::Wishes(wishes) => {
                Reply { status: StatusCode::ACCEPTED, ..Reply::json(&wishes) }
            }
        }
    }
}

/// Request to the master.
#[derive(Debug)]
pub enum Question {
    /// An agent reports events and waits for its order.
    Sync(ContainerId, talk::Sync),
    /// An agent fetches the current tokens.
    Tokens(ContainerId),
    /// A waiting agent disconnected or died.
    Gone,
    /// A client waits for a view newer than the one it has.
    View {
        /// Number of the view that the client has.
        seen: u64,
    },
    /// The master's own tracker reads the job, including final metrics of attempts that have just ended.
    Everything,
    /// A client waits for history events.
    Facts {
        /// Number of the first event that the client lacks.
        after: u64,
    },
    /// A client kills the job.
    Kill(talk::Kill),
    /// A client resizes a role.
    Scale {
        /// Role to resize.
        role: RoleName,
        /// New number of tasks.
        instances: u32,
    },
    /// A program or a client accesses the key-value store.
    Store {
        /// Container of the program; none for a client.
        by: Option<ContainerId>,
        /// Operation.
        wish: super::store::Wish,
    },
    /// A program reports its progress.
    Metrics {
        /// Container of the program.
        container: ContainerId,
        /// Reported metrics.
        said: talk::MetricsReport,
    },
    /// A client reads logs of a task.
    Logs {
        /// Task that prints the logs.
        task: TaskId,
        /// Log request.
        want: talk::AgentRequest,
    },
    /// A client connects to a port of a task.
    Open {
        /// Task that listens on the port.
        task: TaskId,
        /// Name of the port, if given.
        port: Option<String>,
    },
    /// An agent connected the requested port, or failed to.
    Opened {
        /// Container of the agent.
        container: ContainerId,
        /// Number of the request.
        id: u64,
        /// Reason for the failure.
        refused: Option<String>,
    },
    /// An agent sends frames of its program's links.
    Links {
        /// Container of the agent.
        container: ContainerId,
        /// Connection of the agent.
        at: super::links::Connection,
        /// Frames of the program.
        ups: Vec<ClientFrame>,
    },
    /// An agent waits for frames for its program.
    Listen {
        /// Container of the agent.
        container: ContainerId,
        /// Connection of the agent.
        at: super::links::Connection,
    },
    /// An agent responds to a log request.
    Logged {
        /// Container of the agent.
        container: ContainerId,
        /// Number of the request.
        id: u64,
        /// Response.
        found: super::relay::Logged,
    },
}

impl Question {
    /// Returns true if a timeout means "no change" instead of an error.
    pub fn may_wait(&self) -> bool {
        use super::store::Wish;
        match self {
            Question::Sync(..)
            | Question::View { .. }
            | Question::Facts { .. }
            | Question::Listen { .. }
            | Question::Logs { .. } => true,
            Question::Store { wish, .. } => {
                matches!(wish, Wish::Watch(_) | Wish::Get { wait: true, .. })
            }
            Question::Gone
            | Question::Everything
            | Question::Kill(_)
            | Question::Scale { .. }
            | Question::Logged { .. }
            | Question::Metrics { .. }
            | Question::Open { .. }
            | Question::Opened { .. }
            | Question::Links { .. }
            | Question::Tokens(_) => false,
        }
    }

    /// Returns true if the request contains reports that must become durable.
    pub fn says_something(&self) -> bool {
        matches!(self, Question::Sync(_, sync) if !sync.reports.is_empty())
    }
}

/// Creates an inbox.
pub fn inbox() -> (mpsc::Sender<Letter>, mpsc::Receiver<Letter>) {
    mpsc::channel(ROOM)
}
