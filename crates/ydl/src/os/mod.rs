//! The one room that may call the operating system unsafely, and the safe doors to it.

pub mod children;
pub mod descriptors;
pub mod interfaces;
pub mod nvml;
pub mod proc_tree;
pub mod process;
pub mod sock_diag;
pub mod spawn;
pub mod tcp_table;
pub mod usage;

pub use reason::{reason, worded};

mod reason;
