//! ps-lite's scheduler, the rendezvous of MXNet's `dist_*` stores.
//!
//! A node (a server or a worker) connects to the scheduler and registers its address. When all nodes have registered,
//! the scheduler connects to each of them and sends the addresses and ids of all. Later it counts barriers. A node
//! sends messages over links that it opened, and receives messages over a link that the scheduler dialed.
//!
//! * `wire`: the subset of protocol buffers in use; `meta`: the messages.
//! * `members`: registered nodes and barriers.
//! * `scheduler`: the protocol.

mod members;
mod meta;
mod scheduler;
#[cfg(test)]
mod tests;
mod wire;

pub use meta::{EMPTY, PsCommand, PsControl, PsMeta, PsNode, PsRole};
pub use scheduler::PsScheduler;
