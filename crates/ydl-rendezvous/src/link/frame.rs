//! Frames that the agent and the master exchange about links.
//!
//! Agents number the connections that they accept, the protocol those that it requests. Both numbers stay valid with a
//! new master. Both ends count: the agent the bytes that a program wrote, the master its output on a link. At the start
//! of a session, the agent reports its positions and resends its unacknowledged bytes; the master acknowledges what it
//! has, and resends the output that the agent lacks.

use serde::{Deserialize, Serialize};

/// Identifier of a connection between a program and its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ConnId {
    /// A program connected to the agent.
    Inbound(u64),
    /// The agent connected to a program, at the master's request with this number.
    Outbound(u64),
}

/// Identifies one output item of a link: how many bytes of the program were consumed when it was produced, and its number
/// among the items produced at that point. A new master produces the same ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq {
    /// Bytes of the program consumed before this output.
    pub consumed: u64,
    /// Number of the output item, starting at 1.
    pub index: u32,
}

/// Frame from an agent to the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientFrame {
    /// First frame of a session: all connections of the agent, at most 65,535.
    Attach(Vec<ConnState>),
    /// A connection opened.
    Open(ConnId),
    /// Bytes from a program, with the offset of the first one.
    Data(ConnId, u64, Vec<u8>),
    /// Acknowledges delivery to the program up to a position.
    Ack(ConnId, Seq),
    /// A program closed its connection after this many bytes, or a dial failed.
    Closed(ConnId, u64),
}

/// State of an agent's connection when it attaches to a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnState {
    /// The connection.
    pub conn: ConnId,
    /// Offset of the first byte that the agent still buffers. Earlier ones were acknowledged.
    pub buffered_from: u64,
    /// Output delivered to the program.
    pub acked: Seq,
}

/// Frame from the master to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerFrame {
    /// Bytes for a program. Without a position, they are not resent.
    Data(ConnId, Option<Seq>, Vec<u8>),
    /// Closes a connection after its pending output. Later input is ignored.
    Close(ConnId, Seq),
    /// Asks the agent to connect to a port of the program.
    Dial(ConnId, u16),
    /// The agent may drop bytes before this offset: every message there is journaled or was answered.
    Ack(ConnId, u64),
    /// Releases the state of a closed connection.
    Release(ConnId),
}
