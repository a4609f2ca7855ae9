//! The [`Protocol`] trait: a rendezvous protocol as a deterministic state machine.
//!
//! A program connects to a port of its own agent. The connection is a *link*: its bytes reach the master in order, and
//! the agent, not the bytes, identifies the task. A protocol gets the bytes since its last message, and says where the
//! first message ends. Its runner, a [`LinkServer`](crate::LinkServer) in the master, keeps an incomplete message and
//! passes it again together with the bytes that follow.
//!
//! A master can fail at any moment. The agent resends what came over a link since the last message that was consumed.
//! If a message calls [`Effects::persist`], it is written to the journal before any of its actions runs. A new master
//! replays the journal in order and continues with new messages. Hence these rules:
//! * Persist a message if a later response on any link can depend on it: a key that is set, a number that is assigned,
//!   a handshake that determines how the rest of the link is parsed. Reads and waits are not persisted: the
//!   agent still has their bytes and sends them again.
//! * Actions depend only on persisted messages and on the message itself, never on the clock, randomness, the order of
//!   a hash map or the number of an accepted link. Persist an open or a close too if its position matters.
//! * A notification that must be repeated until it takes effect is a [`RetryTimer`]. The runner has the clock and
//!   persists each expiry.
//!
//! Bytes sent because of a message that is not persisted always reach the message's own link. On other links, delivery
//! is best effort.

use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use ydl_core::{Cluster, TaskId};

/// Identifier of a link. Not reused during the lifetime of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LinkId {
    /// A program connected. Numbered by the runner of the protocol.
    Accepted(u64),
    /// The protocol requested the connection. Numbered by the protocol, in the order of its requests.
    Dialed(u64),
}

/// The task attempt at the other end of a link, as identified by its agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// For example `worker:3`.
    pub task: TaskId,
    /// Number of the attempt. A higher one replaces the lower ones.
    pub attempt: u32,
    /// Address of the node, as other nodes reach it.
    pub host: Arc<str>,
}

/// Reason for closing a link. Suitable for logs: it contains no payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection(pub String);

impl Rejection {
    /// Creates a rejection from a description, lower case and without a full stop.
    pub fn new(what: impl Into<String>) -> Rejection {
        Rejection(what.into())
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An action that a protocol requests from its runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sends bytes to a program, in the order of these actions.
    Send(LinkId, Vec<u8>),
    /// Closes a link. Bytes sent before still arrive; later input is ignored.
    Close(LinkId),
    /// Asks the agent of a task to connect to its program on a port of the node. The result is an `open` of the link,
    /// or a `close` without one.
    Dial(LinkId, TaskId, u16),
    /// Writes a line to the job's log.
    Log(String),
}

/// Collects the actions that follow from one message.
#[derive(Debug, Default)]
pub struct Effects {
    actions: Vec<Action>,
    persist: bool,
}

impl Effects {
    /// Requires the message to be persisted before any action runs.
    pub fn persist(&mut self) {
        self.persist = true;
    }

    /// Sends bytes to a program.
    pub fn send(&mut self, link: LinkId, bytes: impl Into<Vec<u8>>) {
        self.actions.push(Action::Send(link, bytes.into()));
    }

    /// Closes a link.
    pub fn close(&mut self, link: LinkId) {
        self.actions.push(Action::Close(link));
    }

    /// Opens a link to a program.
    pub fn dial(&mut self, link: LinkId, task: TaskId, port: u16) {
        self.actions.push(Action::Dial(link, task, port));
    }

    /// Writes a line to the job's log.
    pub fn log(&mut self, line: impl Into<String>) {
        self.actions.push(Action::Log(line.into()));
    }

    /// Returns true if the message must be persisted.
    pub fn is_persistent(&self) -> bool {
        self.persist
    }

    /// Returns whether the message must be persisted, and the actions to run afterwards.
    pub fn into_parts(self) -> (bool, Vec<Action>) {
        (self.persist, self.actions)
    }
}

/// Timer for a notification that is sent again until it takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryTimer {
    /// Changes with every notification sent.
    pub id: u64,
    /// Delay before the notification is sent again.
    pub delay: Duration,
}

/// A rendezvous protocol in one round of a job. Every round starts with a new value.
pub trait Protocol: fmt::Debug + Send {
    /// Returns the maximum length of a message. A longer one closes its link before it has any effect. At most a little
    /// over 1 MiB: messages carry addresses and ranks, and persistent ones are written to the journal as a whole.
    fn max_message_len(&self) -> usize;

    /// Handles a new link. Also called when a new master finds the link open. Bytes sent on a link before it is open
    /// are lost.
    fn open(&mut self, link: LinkId, peer: &Peer, effects: &mut Effects);

    /// Handles the first complete message in `bytes` and returns its length. Returns `None`, without any effect, if the
    /// message is incomplete. Called again with the remaining bytes until it returns `None`. On an error the link is
    /// closed and `close` is called.
    fn receive(
        &mut self,
        link: LinkId,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<Option<usize>, Rejection>;

    /// Handles the end of a link: closed by the program, by an error, or because a dial failed. Not called for links
    /// that the protocol closed itself.
    fn close(&mut self, link: LinkId, effects: &mut Effects);

    /// Handles the end of a task attempt and its links. The next attempt finds its state.
    fn attempt_ended(&mut self, _peer: &Peer, _effects: &mut Effects) {}

    /// Handles new members of the round of an elastic job. The programs of remaining members keep running. Attempts
    /// that left have ended before.
    fn members_changed(&mut self, _members: &Cluster, _effects: &mut Effects) {}

    /// Returns the timer of the notification that is to be sent again, if there is one.
    fn retry_timer(&self) -> Option<RetryTimer> {
        None
    }

    /// Handles the expiry of the retry timer. Always persisted.
    fn retry(&mut self, _effects: &mut Effects) {}

    /// Returns true if a program of this task was started for a set of members that has changed since. It cannot
    /// succeed.
    fn is_outdated(&self, _task: &TaskId) -> bool {
        false
    }

    /// Returns the tasks that waiting programs are waiting for.
    fn missing(&self) -> Vec<TaskId> {
        Vec::new()
    }
}
