//! Messages between client, master and agent, and the files that a job leaves.

pub mod files;
pub mod inline_files;
pub mod kv;
pub mod messages;
pub mod transaction;
pub mod usage;
pub mod version;
