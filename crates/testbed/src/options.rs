//! Options of a cluster.

use crate::{
    error::{Error, ErrorKind},
    site::File,
    version::Version,
};
use std::time::Duration;

/// Maximum number of NodeManagers; each is a JVM.
pub const NODES_MAX: usize = 32;

/// Configuration of a cluster: `Options { nodes: 3, ..Options::new(version) }`.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Hadoop version.
    pub version: Version,
    /// Number of NodeManagers: `nm1` on 127.0.0.11, `nm2` on 127.0.0.12, …
    pub nodes: usize,
    /// Memory of each NodeManager in MiB.
    pub node_memory_mib: u32,
    /// Virtual cores of each NodeManager.
    pub node_vcores: u32,
    /// Number of `yarn.io/gpu` devices per node, in order; 0 for nodes beyond the list. YARN only counts
    /// them: no GPU is needed.
    pub gpus: Vec<u32>,
    /// Node labels (partitions).
    pub labels: Vec<Label>,
    /// Node attributes: node (counted from 1), name, value. 3.x only.
    pub attributes: Vec<(usize, String, String)>,
    /// Queues below the root.
    pub queues: Vec<Queue>,
    /// Trigger of container allocation.
    pub scheduling: Scheduling,
    /// Enables preemption, with the time between the notice to a container and its kill.
    pub preemption: Option<Duration>,
    /// Handler of requests with placement constraints. 3.x only.
    pub placement: Placement,
    /// NameNodes and file systems.
    pub hdfs: Hdfs,
    /// Enables a second ResourceManager, with the failover mode.
    pub rm_ha: Option<Failover>,
    /// Keeps applications across a restart of the ResourceManager.
    pub rm_recovery: bool,
    /// Keeps containers running when their NodeManager stops; it reacquires them after a restart.
    pub nm_recovery: bool,
    /// Enables Kerberos, with the protection level of RPC.
    pub kerberos: Option<Protection>,
    /// Users with a home directory in HDFS (writable by all) and, with Kerberos, a principal.
    pub users: Vec<String>,
    /// Heartbeat interval of the NodeManagers. The default of one second makes tests slow.
    pub heartbeat: Duration,
    /// Heartbeat timeout of application masters and nodes.
    pub expiry: Duration,
    /// Interval at which the keys of AMRM, NM and container tokens are rolled, and the lifetime of
    /// delegation tokens without renewal (at most four times that with renewal). The heartbeat timeout
    /// becomes a quarter of it, because the ResourceManager requires that.
    pub token_interval: Option<Duration>,
    /// Aggregation of container logs.
    pub logs: Logs,
    /// Environment variables of all containers.
    pub variables: Vec<(String, String)>,
    /// Additional keys; override all others.
    pub extra: Vec<(File, String, String)>,
}

/// A node label.
#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    /// Its name in resource requests.
    pub name: String,
    /// Nodes that have it, counted from 1.
    pub nodes: Vec<usize>,
    /// Keeps requests without the label off these nodes.
    pub exclusive: bool,
}

/// A queue below the root.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    /// Its name without `root.`.
    pub name: String,
    /// Its share of the nodes without label, in percent; the shares of all queues add up to 100.
    pub percent: u32,
    /// Labels its applications may request. All queues may request a label that no queue lists.
    pub labels: Vec<String>,
}

impl Queue {
    /// Creates a queue that lists no labels.
    pub fn new(name: &str, percent: u32) -> Queue {
        Queue { name: name.to_owned(), percent, labels: Vec::new() }
    }
}

/// Trigger of container allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// The version's default: asynchronous since 3.5, node heartbeats before.
    VersionDefault,
    /// Heartbeats of the nodes.
    OnHeartbeat,
    /// Asynchronous scheduler threads.
    Continuous,
}

/// Handler of scheduling requests with placement constraints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The scheduler: requests that cannot be placed wait.
    Scheduler,
    /// The placement processor: requests that cannot be placed are rejected.
    Processor,
    /// Disabled, YARN's default: all such requests are rejected.
    Disabled,
}

/// NameNodes and file systems of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hdfs {
    /// No HDFS: the default file system is the local one. Saves two JVMs.
    None,
    /// One NameNode, `nn`, and one DataNode, `dn`.
    One,
    /// Two file systems with one NameNode each, `nn` and `nn2`, and a shared DataNode.
    Two,
    /// One file system, `hdfs://testbed`, with two NameNodes; `nn` starts as the active one.
    HighlyAvailable,
    /// `viewfs://root`, a mount table without fallback: `/user`, `/tmp` and `/app-logs` are in `hdfs://root` with two
    /// NameNodes, as above, and `/data` is in the file system of a third, `nn3`.
    ViewFs,
}

/// Failover mode of two ResourceManagers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failover {
    /// By [`Cluster::fail_over`](crate::Cluster::fail_over).
    Manual,
    /// By ZooKeeper, `zk`: the standby becomes active five seconds after the active one dies.
    Automatic,
}

/// Value of `hadoop.rpc.protection`, also applied to HDFS data transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Peers authenticate each other.
    Authentication,
    /// Adds checksums against modification.
    Integrity,
    /// Adds encryption.
    Privacy,
}

impl Protection {
    /// Returns Hadoop's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Protection::Authentication => "authentication",
            Protection::Integrity => "integrity",
            Protection::Privacy => "privacy",
        }
    }
}

/// Aggregation of container logs when the application finishes. With Kerberos or without HDFS, logs
/// are never aggregated: a secure NodeManager without Hadoop's native library shuts down at its first
/// aggregation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logs {
    /// Logs stay on their nodes.
    Local,
    /// Aggregated into `/app-logs` as TFiles, the default of all versions.
    TFile,
    /// Aggregated into `/app-logs` as indexed files. 3.x only.
    Indexed,
}

impl Options {
    /// Returns the defaults: one node, HDFS, one queue, no security.
    pub fn new(version: Version) -> Options {
        Options {
            version,
            nodes: 1,
            node_memory_mib: 8192,
            node_vcores: 8,
            gpus: Vec::new(),
            labels: Vec::new(),
            attributes: Vec::new(),
            queues: vec![Queue::new("default", 100)],
            scheduling: Scheduling::VersionDefault,
            preemption: None,
            placement: Placement::Scheduler,
            hdfs: Hdfs::One,
            rm_ha: None,
            rm_recovery: true,
            nm_recovery: true,
            kerberos: None,
            users: Vec::new(),
            heartbeat: Duration::from_millis(200),
            expiry: Duration::from_secs(60),
            token_interval: None,
            logs: Logs::TFile,
            variables: Vec::new(),
            extra: Vec::new(),
        }
    }

    /// Adds a configuration key.
    #[must_use]
    pub fn set(mut self, file: File, key: &str, value: &str) -> Options {
        self.extra.push((file, key.to_owned(), value.to_owned()));
        self
    }

    /// Rejects invalid combinations before any daemon starts.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        let invalid = |message: String| Err(Error::new(ErrorKind::InvalidRequest, message));
        if self.nodes > NODES_MAX {
            return invalid(format!(
                "invalid number of nodes {}: the maximum is {NODES_MAX}",
                self.nodes
            ));
        }
        let labelled = self.labels.iter().flat_map(|label| &label.nodes);
        let described = self.attributes.iter().map(|(node, _, _)| node);
        for node in labelled.chain(described) {
            if !(1..=self.nodes).contains(node) {
                return invalid(format!(
                    "no node `nm{node}`: the cluster has {} nodes",
                    self.nodes
                ));
            }
        }
        if self.gpus.len() > self.nodes {
            return invalid(format!(
                "gpus for {} nodes, but the cluster has {}",
                self.gpus.len(),
                self.nodes
            ));
        }
        let percents = self.queues.iter().map(|queue| u64::from(queue.percent));
        let total: u64 = percents.sum();
        if total != 100 {
            return invalid(format!("the shares of the queues add up to {total} percent, not 100"));
        }
        for label in self.queues.iter().flat_map(|queue| &queue.labels) {
            if !self.labels.iter().any(|known| known.name == *label) {
                return invalid(format!("a queue lists the label `{label}`, which does not exist"));
            }
        }
        let new = !self.attributes.is_empty() || self.logs == Logs::Indexed;
        if new && !self.version.has_placement_constraints() {
            let version = self.version;
            return invalid(format!("Hadoop {version} has no node attributes or indexed logs"));
        }
        if self.rm_ha.is_some() && !self.rm_recovery {
            return invalid("two ResourceManagers require `rm_recovery`".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validate_rejects_contradictory_options() {
        let new = || Options::new(Version::V2_10_2);
        new().validate().unwrap();
        let label = |node| Label { name: "gpu".to_owned(), nodes: vec![node], exclusive: true };
        let rejected = [
            Options { nodes: 99, ..new() },
            Options { labels: vec![label(2)], ..new() },
            Options { gpus: vec![1, 1], ..new() },
            Options { queues: vec![Queue::new("a", 60)], ..new() },
            Options { queues: vec![Queue::new("a", u32::MAX), Queue::new("b", 101)], ..new() },
            Options { logs: Logs::Indexed, ..new() },
            Options { rm_ha: Some(Failover::Manual), rm_recovery: false, ..new() },
        ];
        for options in rejected {
            assert_eq!(
                options.validate().unwrap_err().kind,
                ErrorKind::InvalidRequest,
                "{options:?}"
            );
        }
        Options { labels: vec![label(1)], ..new() }.validate().unwrap();
    }
}
