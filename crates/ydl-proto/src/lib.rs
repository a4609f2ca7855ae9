//! Messages between client, master and agent, and the files that a job leaves.

pub mod files;
pub mod kv;
pub mod luggage;
pub mod messages;
pub mod usage;
