//! Runs a real Hadoop cluster on this machine, for tests and for local experiments.
//!
//! ```no_run
//! use testbed::{Cluster, Options, Version};
//!
//! let cluster = Cluster::start(Options { nodes: 3, ..Options::new(Version::NEWEST) })?;
//! println!("HADOOP_CONF_DIR={}", cluster.configuration().display());
//! cluster.kill("nm2")?;
//! cluster.wait_node("nm2", "LOST")?;
//! # Ok::<(), testbed::Error>(())
//! ```
//!
//! The jars are downloaded from Maven Central into `~/.cache/ydl/hadoop`, once per version. Maven and
//! Java 17 are required. Every daemon is a separate process that can be killed, stopped, paused and
//! restarted by its name. Each NodeManager has its own loopback address, so that YARN sees different
//! hosts. Any number of clusters can run at the same time.
//!
//! Tests with equal options share one cluster per test program ([`Cluster::lease`]). Set
//! `TESTBED_KEEP` to keep a cluster's directory, including logs, after it stops.

#![warn(missing_docs)]

mod error;
mod version;

mod cache;
mod packages;
mod probe;
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
mod control;
mod daemon;
mod hadoop;
mod lease;
mod pool;
mod shared;
mod wait;
mod warm_start;
mod watcher;

pub use cluster::{Cluster, NameNode, Node, ResourceManager};
pub use docker::Docker;
pub use error::{Error, ErrorKind};
pub use kdc::Kerberos;
pub use lease::Lease;
pub use options::{
    Failover, Hdfs, Label, Logs, NODES_MAX, Options, Placement, Protection, Queue, Scheduling,
};
pub use probe::{field, get, is_open, try_wait_for, wait_for};
pub use site::File;
pub use tool::{ProcessOutput, run};
pub use version::Version;

/// Downloads Hadoop's jars and creates the start-up cache, so that starting a cluster later needs no
/// network.
pub fn fetch(version: Version, progress: &mut dyn FnMut(&str)) -> Result<(), Error> {
    warm_start::WarmStart::make(version, progress)
}
