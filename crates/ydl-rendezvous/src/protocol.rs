//! What a protocol is.
//!
//! A program connects to a port of its own agent. That is a *link*: its bytes travel to the master in order, and the
//! master knows from the agent, not from what is said, which task speaks. A protocol sees whole messages only: who runs
//! it puts pieces together, and gives what is left of a piece again with the next one.
//!
//! A master can die at any moment. What came over a link since the last message that was *taken* is sent again by the
//! agent, and a message whose [`Reaction`] says [`keep`](Reaction::keep) is written down before any of its acts is done;
//! a new master is given the messages written down, in their order, and then what is new. Hence two rules:
//! * A message is kept if any later answer, on any link, can depend on it: a key that is set, a number that is given, a
//!   handshake that tells how the rest of the link is to be read. Reading is not kept, and a wait is not: whoever
//!   waits asks again.
//! * Acts depend on what was kept and on the message itself: no clock, no chance, no order of a hash map, no number of an
//!   accepted link. An opening or an end is kept too if it matters when it came.
//! * What is to be said again after a while is a [`Reminder`]: whoever runs the protocol has the clock, and writes down
//!   that the time has come.
//!
//! What is sent because of a message that is not kept reaches its own link for certain, and another's if all goes well.

use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use ydl_core::{Cluster, TaskId};

/// One connection. No number is used twice while a protocol lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Link {
    /// A program has connected: numbered by who runs the protocol.
    Accepted(u64),
    /// The protocol has asked for it: numbered by itself, in the order of its asking.
    Dialed(u64),
}

/// Whose program it is. Known from the agent through which it speaks, so nobody can say that he is another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// `worker:3`.
    pub task: TaskId,
    /// Which attempt of it: a higher one has taken the place of those before.
    pub attempt: u32,
    /// The node's address, as other nodes reach it.
    pub host: Arc<str>,
}

/// Why a link is ended: one sentence's worth, for the log and for people, without what was said on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

impl Refusal {
    /// From what is wrong, lower case and without a full stop.
    pub fn new(what: impl Into<String>) -> Refusal {
        Refusal(what.into())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Bytes for a program, in the order of these acts.
    Send(Link, Vec<u8>),
    /// No more is said on a link, and nothing more of it is heard. What was sent before arrives.
    Close(Link),
    /// That task's agent connects to its program, which listens on that port of the node. Comes back as an opened link,
    /// or as a closed one that never was open.
    Dial(Link, TaskId, u16),
    /// Something that people want to read in the job's log.
    Say(String),
}

/// What follows from a message.
#[derive(Debug, Default)]
pub struct Reaction {
    acts: Vec<Act>,
    keep: bool,
}

impl Reaction {
    /// The message is to be written down before anything is done.
    pub fn keep(&mut self) {
        self.keep = true;
    }

    /// Bytes for a program.
    pub fn send(&mut self, link: Link, bytes: impl Into<Vec<u8>>) {
        self.acts.push(Act::Send(link, bytes.into()));
    }

    /// The end of a link.
    pub fn close(&mut self, link: Link) {
        self.acts.push(Act::Close(link));
    }

    /// A link to a program.
    pub fn dial(&mut self, link: Link, task: TaskId, port: u16) {
        self.acts.push(Act::Dial(link, task, port));
    }

    /// A line for people.
    pub fn say(&mut self, line: impl Into<String>) {
        self.acts.push(Act::Say(line.into()));
    }

    /// Whether the message is to be written down so far.
    pub fn is_kept(&self) -> bool {
        self.keep
    }

    /// Whether it is to be written down, and what is to be done then.
    pub fn into_parts(self) -> (bool, Vec<Act>) {
        (self.keep, self.acts)
    }
}

/// Something that was said, and that nobody has heeded yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reminder {
    /// Another one each time that it was said.
    pub number: u64,
    /// It is said again when nobody has heeded it for so long.
    pub after: Duration,
}

/// A protocol, for one round of a job: another round begins with another value.
pub trait Protocol: fmt::Debug + Send {
    /// A message that is longer ends its link, before it has changed anything. A little more than a mebibyte at most:
    /// rendezvous is about addresses and numbers, and what is kept is written down whole.
    fn message_max(&self) -> usize;

    /// A link is open. It is new to the protocol, also when a new master finds it open. What is sent on a link before
    /// it is open is lost.
    fn open(&mut self, link: Link, peer: &Peer, reaction: &mut Reaction);

    /// The first whole message of these bytes, if there is one: how long it was. `None` if more must come first; then
    /// nothing has changed. Called again with what follows, until there is no whole message. An error ends the link, and
    /// `close` comes next.
    fn take(
        &mut self,
        link: Link,
        bytes: &[u8],
        reaction: &mut Reaction,
    ) -> Result<Option<usize>, Refusal>;

    /// A link has ended: by the program, by an error, or because a dial failed. Not called for what the protocol closed
    /// itself.
    fn close(&mut self, link: Link, reaction: &mut Reaction);

    /// An attempt of a task is over, and its links with it. What it leaves behind is for the next attempt to find.
    fn ended(&mut self, _peer: &Peer, _reaction: &mut Reaction) {}

    /// Others are members of the round from now on, of an elastic job whose programs run on when that happens. An attempt
    /// that has gone has ended before.
    fn told(&mut self, _members: &Cluster, _reaction: &mut Reaction) {}

    /// What is to be said again unless it is heeded.
    fn reminder(&self) -> Option<Reminder> {
        None
    }

    /// It is time to say that again. Always kept.
    fn remind(&mut self, _reaction: &mut Reaction) {}

    /// Whether a program of that task was started to join members who are not the same any more, and could not but fail.
    fn is_outdated(&self, _task: &TaskId) -> bool {
        false
    }

    /// Whom those who wait are waiting for.
    fn missing(&self) -> Vec<TaskId> {
        Vec::new()
    }
}
