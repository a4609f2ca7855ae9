//! The operating system as ydl uses it: processes, sockets, private files and environment variables, and how a
//! process reports its failure.
//!
//! The only crate of ydl with `unsafe` code: what happens between fork and exec, and signals.

pub mod children;
pub mod descriptors;
pub mod env;
pub mod interfaces;
pub mod nvml;
pub mod private;
pub mod proc_tree;
pub mod process;
pub mod report;
pub mod sock_diag;
pub mod spawn;
pub mod tcp_table;
pub mod usage;

pub use reason::{reason, worded};

mod reason;
