//! What frameworks call scheduler, tracker or store, served by the master: each protocol as a value.
//!
//! No sockets, no clock, no randomness, no async: messages go in, acts come out, and the same messages give the same
//! acts. So the messages that changed something, written down, are all that a new master needs to go on where the old
//! one stopped, in the middle of a barrier too.
//!
//! * [`protocol`]: what a protocol is: the words everything else is said in.
//!
//! A room per protocol, which knows its bytes and its rules and nothing of the others. What may not be here: anything
//! that reads or writes, waits, or knows what a job is.
#![forbid(unsafe_code)]

pub mod protocol;

pub use protocol::{Act, Link, Peer, Protocol, Reaction, Refusal};
