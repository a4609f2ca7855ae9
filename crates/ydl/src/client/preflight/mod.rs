//! Checks whether a cluster can run a job, before anything of it is changed.
//!
//! * `cluster`: resources and limits of a cluster, as plain values. * `gather`: queries a ResourceManager for them.
//! * `check`: compares a job with a cluster; pure. * `images`, `queue`, `sizes`, `capacity`: its parts.
//! * `file_systems`: compares a job's file systems with the configuration.

mod cluster;

mod gather;

mod capacity;
mod check;
mod file_systems;
mod images;
mod queue;
mod sizes;

pub use check::{Findings, Problem, check};
pub use cluster::{Amount, ClusterInfo, Constraints, Label, Node, Queue, Share};
pub use file_systems::check_file_systems;
pub use gather::gather;
