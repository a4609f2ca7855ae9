//! A real Hadoop on this machine, for tests and for people who want one to play with.
//!
//! ```no_run
//! use testbed::{Cluster, Options, Version};
//!
//! let cluster = Cluster::start(Options { nodes: 3, ..Options::new(Version::NEWEST) })?;
//! println!("HADOOP_CONF_DIR={}", cluster.configuration().display());
//! cluster.kill("nm2")?;
//! cluster.wait_node("nm2", "LOST")?;
//! # Ok::<(), testbed::Failure>(())
//! ```
//!
//! The jars come from Maven Central, once per version, into `~/.cache/ydl/hadoop`; Maven and Java 17
//! must be there. Every daemon is a process of its own and can be killed, stopped, paused and
//! started again by its name. Each NodeManager has its own loopback address, so that they are
//! different hosts to YARN. Any number of clusters can run beside each other.
//!
//! A test that disturbs nobody shares one cluster with the other tests of its binary
//! ([`Cluster::shared`]). Set `TESTBED_KEEP` to keep a cluster's directory, logs and all, after its
//! end.

#![warn(missing_docs)]

mod failure;
mod version;

mod cache;
mod fact;
mod packages;
mod scratch;
mod tool;

mod docker;
mod jars;
mod java;
mod kdc;
mod krb5;

mod config;
mod options;
mod ports;
mod site;

mod boot;
mod cluster;
mod daemon;
mod hadoop;
mod headstart;
mod shared;
mod steer;
mod waits;
mod watcher;

pub use cluster::{Cluster, NameNode, Node, ResourceManager};
pub use docker::Docker;
pub use fact::{field, get, is_open, try_wait_for, wait_for};
pub use failure::{Failure, Kind};
pub use kdc::Kerberos;
pub use options::{
    Failover, Hdfs, Label, Logs, NODES_MAX, Options, Placement, Protection, Queue, Scheduling,
};
pub use site::File;
pub use tool::{Said, run};
pub use version::Version;

/// Fetches what clusters of that version are made of, so that starting one later needs no network,
/// and prepares what makes them start sooner.
pub fn fetch(version: Version, progress: &mut dyn FnMut(&str)) -> Result<(), Failure> {
    headstart::Headstart::make(version, progress)
}
