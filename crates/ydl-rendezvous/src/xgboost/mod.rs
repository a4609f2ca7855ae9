//! The tracker of XGBoost 2.1 and later.
//!
//! The same magic number as Rabit's, followed by length-prefixed JSON. A worker registers its port. When all have, each
//! receives its next neighbor in the ring, which implies its own rank. Every other command has its own connection. A
//! failed worker ends the group: the others are notified on their error ports and exit, instead of waiting for the
//! operating system to detect the failure.
//!
//! * `message`: parses messages.
//! * `tracker`: the protocol.

mod message;
mod tracker;

pub(crate) use tracker::{ERROR, XgboostTracker};
