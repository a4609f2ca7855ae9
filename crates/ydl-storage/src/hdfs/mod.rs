//! Files in HDFS, for client, master and agent.
//!
//! All calls go through [`Hdfs`]: each has a deadline, a panic in hdfs-native stays in its call, and an error says what
//! failed, on which file, why, and what to do. Files are named by their URL, such as
//! `hdfs://namenode:8020/user/alice/file`, or by their path.
//!
//! * `settings`: the cluster's configuration as pairs of key and value.
//! * `file_systems`: the file systems that a job uses, connected on first use.
//! * `tokens`: delegation tokens, their owners, and the current ones of a job's agents.
//! * `connect`: from a configuration and an identity to a file system. `targets`: its URL as hdfs-native reads it.
//! * `call`: one call with its deadline, isolated from panics.
//! * `error`: kinds of failures. `exceptions`: translation of NameNode exceptions.
//! * `entries`: directories, names and permissions. `small_files`: files read and written in one chunk. `writer`, `reader`,
//!   `upload`: larger files. `close_file`: closes a file without the library's retry pause.
//! * `layout`: names of all files in the staging directory.

mod call;
mod close_file;
mod connect;
mod entries;
mod error;
mod exceptions;
mod file_systems;
pub mod layout;
mod reader;
mod settings;
mod small_files;
mod targets;
mod tokens;
mod upload;
mod writer;

pub use connect::Hdfs;
pub use entries::{Entry, Grant};
pub use error::{HdfsError, Kind};
pub use file_systems::{FileSystems, job_file_systems, token_system, token_systems, url_path};
pub use layout::{JobLayout, StagingLayout};
pub use reader::Reader;
pub use settings::{config, pairs};
pub(crate) use small_files::random;
pub use tokens::{AgentTokens, EXPIRY_MARGIN, TOKEN_KIND, short_name, token_owner};
pub use upload::{UploadBuffer, UploadTotals};
pub use writer::Writer;
