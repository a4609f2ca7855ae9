//! Files in HDFS, for client, master and agent alike.
//!
//! Everything goes through [`Hdfs`]: each call has a deadline, a panic in the library below stays in its call, and an
//! error says what failed, on which file, why, and what to do. Files are named by their whole URL, as
//! `hdfs://namenode:8020/user/alice/file`, or by their path alone.
//!
//! * `settings`: the cluster's configuration, carried along as pairs of key and value.
//! * `systems`: which file systems a job touches.
//! * `fresh`: tokens, whose they are, and which ones agents should have now.
//! * `ways`: the file systems that are used, connected to when they are needed.
//! * `connect`: from a configuration and an identity to a file system.
//! * `call`: one call, with its deadline and its panics.
//! * `error` and `reading`: what a caller can do about a failure, and how NameNodes are understood.
//! * `entries`: directories, names and permissions. `whole`: small files. `writer`, `reader`, `put`: larger ones.
//! * `close`: how a file ends.
//! * `layout`: which file lies where.

mod call;
mod close;
mod connect;
mod entries;
mod error;
mod fresh;
pub mod layout;
mod put;
mod reader;
mod reading;
mod settings;
mod systems;
mod ways;
mod whole;
mod writer;

pub use connect::Hdfs;
pub use entries::{Entry, Grant};
pub use error::{HdfsError, Kind};
pub use fresh::{Fresh, KIND, UNUSED, owner, short};
pub use layout::{JobPlace, Layout};
pub use put::{Pieces, Sent};
pub use reader::Reader;
pub use settings::{config, pairs};
pub use systems::file_systems;
pub use ways::{Ways, path_of};
pub use writer::Writer;
