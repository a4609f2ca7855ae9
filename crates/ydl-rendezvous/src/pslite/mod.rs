//! ps-lite's scheduler, which MXNet's `dist_*` stores meet at.
//!
//! A node, that is a server or a worker, connects to the scheduler and says where it listens; when all have, the
//! scheduler connects to each of them and sends everybody's address and number. Later it counts barriers. What a node
//! says comes over the links it opened, what it is told goes over the one that was dialed to it.
//!
//! * `meta`: the messages, as proto2 writes them.
//! * `scheduler`: who is who, and who waits for whom.

mod members;
mod meta;
mod scheduler;
#[cfg(test)]
mod tests;
mod wire;

pub use meta::{EMPTY, PsCommand, PsControl, PsMeta, PsNode, PsRole};
pub use scheduler::PsScheduler;
