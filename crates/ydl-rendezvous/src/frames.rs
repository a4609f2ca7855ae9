//! What agent and master tell each other about links.
//!
//! An agent names the connections of its programs itself, so that it can go on naming them to another master. Both sides
//! count: an agent the bytes that came from a program, a master what it said on a link. After a break each says how far
//! it is, and what the other has not is sent again.

mod bytes;

pub use bytes::{Bytes, Malformed, read_all};

use serde::{Deserialize, Serialize};

/// A connection, as its agent names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Call {
    /// A program has connected.
    In(u64),
    /// The agent has connected to a program, because the master asked for it by this number.
    Out(u64),
}

/// How much had been said on a link: so many bytes of it were taken, and this was the so-manieth thing said since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// Bytes of the program's that were taken.
    pub taken: u64,
    /// From 1.
    pub index: u32,
}

/// From an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Up {
    /// Said first, to each master anew: all connections there are, 65,535 at most.
    Attach(Vec<Attached>),
    /// A connection is open.
    Open(Call),
    /// What a program said, from that byte on.
    Bytes(Call, u64, Vec<u8>),
    /// Everything up to there is with the program.
    Settled(Call, Mark),
    /// A program says nothing more, and has said that many bytes; or it could not be connected to.
    Closed(Call, u64),
}

/// A connection that an agent has when it finds a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Which.
    pub call: Call,
    /// The first byte that the agent still has; those before were taken.
    pub floor: u64,
    /// What is with the program.
    pub settled: Mark,
}

/// From the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Down {
    /// For a program. What has no mark is not worth saying twice.
    Bytes(Call, Option<Mark>, Vec<u8>),
    /// No more will be said, and nothing more is heard.
    Close(Call, Mark),
    /// Connect to the program's port.
    Dial(Call, u16),
    /// The bytes before are written down, and need not be sent again.
    Taken(Call, u64),
    /// The connection's end is known: it may be forgotten.
    Gone(Call),
}
