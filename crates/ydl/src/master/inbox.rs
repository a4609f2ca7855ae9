//! What comes to the master from outside: one bounded inbox, each question with the place its answer goes to.

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

/// Questions that wait to be looked at. When it is full, those who ask wait.
const ROOM: usize = 1024;

/// A question and where its answer goes. The asker may be gone by then.
#[derive(Debug)]
pub struct Letter {
    /// What is asked.
    pub question: Question,
    /// Where the answer goes.
    pub answer: oneshot::Sender<Answer>,
    /// Whether what it says is safe.
    pub kept: Kept,
}

/// Set when what a letter said is safe in the diary: whoever sent it need not say it again.
#[derive(Clone, Debug, Default)]
pub struct Kept(Arc<AtomicBool>);

impl Kept {
    /// It is safe.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it is.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What goes back.
#[derive(Debug)]
pub enum Answer {
    /// An answer that is ready to be sent.
    Reply(Reply),
    /// An agent's order. It is written out only when its turn comes: a round of a thousand tells each of its
    /// members about all of them, and a thousand such texts at once would be most of the master's memory.
    Order(talk::SyncReply),
    /// What is wished of an agent, which then asks for its order again.
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

/// What can be asked of a master.
#[derive(Debug)]
pub enum Question {
    /// An agent says what happened and waits for its order.
    Sync(ContainerId, talk::Sync),
    /// An agent wants the tokens that it should have.
    Tokens(ContainerId),
    /// An agent that waited for its order is not there any more: it has died, or its connection has.
    Gone,
    /// Somebody looks at the job, unless it is still the view they have seen.
    View {
        /// The number of the view they have.
        seen: u64,
    },
    /// The master itself looks at the job to tell others: with what programs have reported that ended just now.
    Everything,
    /// Somebody wants the facts from that number on.
    Facts {
        /// The number of the first one they do not have.
        after: u64,
    },
    /// Somebody wants the job to end.
    Kill(talk::Kill),
    /// Somebody wants a role to have another size.
    Scale {
        /// Which role.
        role: RoleName,
        /// Its new number of tasks.
        instances: u32,
    },
    /// User code or a person wants something of the key-value store.
    Store {
        /// The container whose program it is; nobody for a person.
        by: Option<ContainerId>,
        /// What.
        wish: super::store::Wish,
    },
    /// A program reports how far its training is.
    Metrics {
        /// Its container.
        container: ContainerId,
        /// What.
        said: talk::MetricsReport,
    },
    /// Somebody wants to see what a task prints.
    Logs {
        /// Which task.
        task: TaskId,
        /// What of it.
        want: talk::AgentRequest,
    },
    /// Somebody wants to reach a port of a task's program.
    Open {
        /// Which task.
        task: TaskId,
        /// The port's name, if one is said.
        port: Option<String>,
    },
    /// An agent leads to the port that was wished, or says why it cannot.
    Opened {
        /// The agent's.
        container: ContainerId,
        /// The wish.
        id: u64,
        /// Why not.
        refused: Option<String>,
    },
    /// An agent says what came over its program's links.
    Links {
        /// The agent's.
        container: ContainerId,
        /// Over which connection.
        at: super::links::Connection,
        /// What.
        ups: Vec<ClientFrame>,
    },
    /// An agent waits for what its program is to be told.
    Listen {
        /// The agent's.
        container: ContainerId,
        /// Over which connection.
        at: super::links::Connection,
    },
    /// An agent has found what was wished.
    Logged {
        /// The agent's.
        container: ContainerId,
        /// The wish.
        id: u64,
        /// What was found.
        found: super::relay::Logged,
    },
}

impl Question {
    /// Whether no answer within its time means that there is nothing new, and not that something is wrong.
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

    /// Whether the master is told something by it that must not be forgotten.
    pub fn says_something(&self) -> bool {
        matches!(self, Question::Sync(_, sync) if !sync.reports.is_empty())
    }
}

/// The two ends of a new inbox.
pub fn inbox() -> (mpsc::Sender<Letter>, mpsc::Receiver<Letter>) {
    mpsc::channel(ROOM)
}
