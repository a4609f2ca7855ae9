//! Links: byte streams between a program and a protocol on the master, across reconnects and master restarts.
//!
//! Three words for connections: a *conn* ([`frame::ConnId`]) is a socket between a program and its agent. A *link*
//! ([`LinkId`](crate::LinkId)) is the same connection on the master. A *session* is an agent's use of the master's
//! endpoint: it carries the frames of all conns, and is replaced after an error or when the master moves.
//!
//! * [`frame`]: frames that the agent and the master exchange; [`codec`]: their encoding.
//! * [`agent`]: the agent's end. Buffers the bytes of each program until the master acknowledges them.
//! * [`server`]: the master's end. Assembles messages, passes them to a protocol and sends its output back.
//! * [`reorder`]: restores the order of the master's responses.

pub mod agent;
pub mod codec;
pub mod frame;
pub mod reorder;
pub mod server;
