//! The first version of Rabit's tracker, used by XGBoost up to 2.0 and other Rabit programs.
//!
//! A worker receives its rank and its neighbors in a tree and a ring. When it gets a permit, it receives the neighbors
//! that listen already, connects to them and reports its own port. The other neighbors connect to it later. Numbers
//! have 32 bits, little-endian, without framing.
//!
//! * `topology`: the tree and the ring.
//! * `reader`: parses messages.
//! * `permits`: permits to connect to neighbors.
//! * `tracker`: the protocol.

mod permits;
mod reader;
pub(crate) mod topology;
mod tracker;

pub(crate) use tracker::RabitTracker;
