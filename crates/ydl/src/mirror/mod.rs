//! Jobs on a cluster, seen from a machine with its configuration.
//!
//! * `gateway`: the way to a ResourceManager, and what a person is told where there is none.

mod gateway;

pub use gateway::{Gateway, configuration};
