//! Whether a cluster can run a job, asked before anything of it is touched.
//!
//! * `has`: what a cluster has, as plain values. * `gather`: asking a ResourceManager for it.
//! * `check`: from a job and a cluster to complaints; pure. * `images`, `queue`, `sizes`, `room`: its parts.

mod has;

mod gather;

mod check;
mod images;
mod queue;
mod room;
mod sizes;

pub use check::{Complaint, Findings, check};
pub use gather::gather;
pub use has::{Amount, Constraints, Has, Label, Node, Queue, Share};
