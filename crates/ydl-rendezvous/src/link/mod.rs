//! Links: byte streams between a program and a protocol on the master, across reconnects and master restarts.
//!
//! * [`frame`]: frames that the agent and the master exchange; [`codec`]: their encoding.
//! * [`sender`]: the agent's end. Buffers the bytes of each program until the master acknowledges them.
//! * [`server`]: the master's end. Assembles messages, passes them to a protocol and sends its output back.
//! * [`reorder`]: restores the order of the master's responses.

pub mod codec;
pub mod frame;
pub mod reorder;
pub mod sender;
pub mod server;
