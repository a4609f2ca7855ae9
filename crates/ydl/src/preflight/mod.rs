//! Whether a cluster can run a job, asked before anything of it is touched.
//!
//! * `has`: what a cluster has, as plain values. * `gather`: asking a ResourceManager for it.
//! * `check`: from a job and a cluster to complaints; pure. * `images`, `queue`, `sizes`, `room`: its parts.

mod cluster;

mod gather;

mod capacity;
mod check;
mod images;
mod queue;
mod sizes;

pub use check::{Findings, Problem, check};
pub use cluster::{Amount, ClusterInfo, Constraints, Label, Node, Queue, Share};
pub use gather::gather;
