//! Checks whether a cluster can run a job, without changing the cluster.
//!
//! * `cluster`: resources and limits of a cluster, as plain values.
//! * `gather`: queries a ResourceManager for them.
//! * `check`: compares a job with a cluster; pure.
//! * `images`, `queue`, `sizes`, `capacity`: the parts of `check`.
//! * `file_systems`: compares a job's file systems with the configuration.

mod capacity;
mod check;
mod cluster;
mod file_systems;
mod gather;
mod images;
mod queue;
mod sizes;

pub use check::{Findings, Problem, check};
pub use cluster::{Amount, ClusterInfo, Constraints, Label, Node, Queue, Share};
pub use file_systems::check_file_systems;
pub use gather::gather;
