//! Checks whether a cluster can run a job, before anything of it is changed.
//!
//! * `cluster`: resources and limits of a cluster, as plain values. * `gather`: queries a ResourceManager for them.
//! * `check`: compares a job with a cluster; pure. * `images`, `queue`, `sizes`, `capacity`: its parts.

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
