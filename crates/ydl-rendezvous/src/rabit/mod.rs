//! Rabit's tracker, first version: what XGBoost up to 2.0 and other Rabit programs meet at.
//!
//! A worker is told its rank, its neighbours in a tree and in a ring, and then, when it is its turn, which of them listen
//! already; it connects to those, says where it listens itself, and the others connect to it later. Numbers are 32 bits,
//! little-endian; there is no framing.
//!
//! * `topology`: who is whose neighbour.
//! * `words`: what a worker says.
//! * `turns`: who may link up now, and with whom.
//! * `tracker`: who is where.

mod permits;
mod reader;
mod topology;
mod tracker;

pub use topology::Topology;
pub(crate) use tracker::RabitTracker;
