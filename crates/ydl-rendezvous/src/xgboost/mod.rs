//! The tracker of XGBoost from 2.1 on.
//!
//! The same magic number as Rabit's, then texts of JSON with their length before them. A worker says where it listens;
//! when all have, each is told its neighbour in the ring, from which it knows its own rank. Everything else comes on a
//! connection of its own. A worker that fails, or dies, is the end of the group: the others are told so at the port
//! where they listen for it, and exit, where they would otherwise wait for the operating system to notice.
//!
//! * `message`: what a worker says.
//! * `tracker`: who is where.

mod message;
mod tracker;

pub(crate) use tracker::{ERROR, XgboostTracker};
