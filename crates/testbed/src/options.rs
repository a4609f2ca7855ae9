//! What a cluster is to be.

use crate::{
    failure::{Failure, Kind},
    site::File,
    version::Version,
};
use std::time::Duration;

/// How many NodeManagers a cluster can have; each is a JVM.
pub const NODES_MAX: usize = 32;

/// `Options { nodes: 3, ..Options::new(version) }`: everything has a value that suits most tests.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Which Hadoop.
    pub version: Version,
    /// How many NodeManagers: `nm1` on 127.0.0.11, `nm2` on 127.0.0.12, …
    pub nodes: usize,
    /// What each NodeManager offers, in MiB.
    pub node_memory_mib: u32,
    /// What each NodeManager offers.
    pub node_vcores: u32,
    /// Devices of the type `yarn.io/gpu` on each node, in order; none where the list has ended. They
    /// are counted and no more: no GPU is needed.
    pub gpus: Vec<u32>,
    /// Node labels (partitions).
    pub labels: Vec<Label>,
    /// Attributes the nodes report: node (counted from 1), name, value. 3.x only.
    pub attributes: Vec<(usize, String, String)>,
    /// Queues below the root.
    pub queues: Vec<Queue>,
    /// When the scheduler hands out containers.
    pub scheduling: Scheduling,
    /// Whether a queue can take back its share, and how long a container has from notice to kill.
    pub preemption: Option<Duration>,
    /// Who places requests with constraints. 3.x only.
    pub placement: Placement,
    /// Which NameNodes there are.
    pub hdfs: Hdfs,
    /// A second ResourceManager, and who decides which one is active.
    pub rm_ha: Option<Failover>,
    /// Whether the ResourceManager remembers applications over a restart.
    pub rm_recovery: bool,
    /// Whether a NodeManager leaves containers running when it ends, and finds them again.
    pub nm_recovery: bool,
    /// Kerberos everywhere, and how calls are protected.
    pub kerberos: Option<Protection>,
    /// Users with a home directory in HDFS (writable by all) and, with Kerberos, a principal.
    pub users: Vec<String>,
    /// How often NodeManagers beat. The usual second makes tests slow.
    pub heartbeat: Duration,
    /// After how much silence a master or a node counts as lost.
    pub expiry: Duration,
    /// How often keys of AMRM, NM and container tokens change, and how long delegation tokens live
    /// without renewal (four times that at most). The silence after which a master or a node is lost
    /// becomes a quarter of it, because the ResourceManager insists on that.
    pub token_interval: Option<Duration>,
    /// What becomes of containers' logs.
    pub logs: Logs,
    /// Keys to set in the end, whatever was chosen above.
    pub extra: Vec<(File, String, String)>,
}

/// A node label.
#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    /// What asks name.
    pub name: String,
    /// Nodes that have it, counted from 1.
    pub nodes: Vec<usize>,
    /// Whether asks without the label stay off these nodes.
    pub exclusive: bool,
}

/// A queue below the root.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    /// Its name without `root.`.
    pub name: String,
    /// Its share of the nodes without label, in percent; those of all queues make 100.
    pub percent: u32,
    /// Labels its applications may ask for. Where no queue names a label, all queues may.
    pub labels: Vec<String>,
}

impl Queue {
    /// A queue that names no label.
    pub fn new(name: &str, percent: u32) -> Queue {
        Queue { name: name.to_owned(), percent, labels: Vec::new() }
    }
}

/// When the scheduler hands out containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// As the version does by default: at once from 3.5 on, with the nodes' beats before.
    AsShipped,
    /// When a node beats.
    OnHeartbeat,
    /// At once, by threads of the scheduler's own.
    Continuous,
}

/// Who places scheduling requests with constraints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The scheduler: what cannot be placed waits.
    Scheduler,
    /// A step before it: what cannot be placed is rejected.
    Processor,
    /// Nobody: such requests are refused, as clusters do by default.
    Disabled,
}

/// The file systems of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hdfs {
    /// No HDFS: the default file system is this machine's, and two JVMs less are started.
    None,
    /// One NameNode, `nn`, and one DataNode, `dn`.
    One,
    /// Two file systems with a NameNode each, `nn` and `nn2`, and a DataNode for both.
    Two,
    /// One file system, `hdfs://testbed`, with two NameNodes; `nn` is active at first.
    HighlyAvailable,
}

/// Who decides which ResourceManager is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failover {
    /// The test, by [`Cluster::fail_over`](crate::Cluster::fail_over).
    Manual,
    /// ZooKeeper, `zk`: five seconds after the death of the active one the other takes over.
    Automatic,
}

/// `hadoop.rpc.protection`, and the same for HDFS's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Peers know each other.
    Authentication,
    /// And nobody can change what they say.
    Integrity,
    /// And nobody can read it.
    Privacy,
}

impl Protection {
    /// As Hadoop writes it.
    pub fn name(self) -> &'static str {
        match self {
            Protection::Authentication => "authentication",
            Protection::Integrity => "integrity",
            Protection::Privacy => "privacy",
        }
    }
}

/// What becomes of containers' logs when their application ends. With Kerberos, or without HDFS, they
/// always stay where they are: a secure NodeManager without Hadoop's native library shuts down at its
/// first aggregation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logs {
    /// They stay on their nodes.
    Local,
    /// Collected in `/app-logs` as TFiles, as all versions do by default.
    TFile,
    /// Collected in `/app-logs` as indexed files. 3.x only.
    Indexed,
}

impl Options {
    /// One node, HDFS, one queue, no security.
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
            scheduling: Scheduling::AsShipped,
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
            extra: Vec::new(),
        }
    }

    /// Sets one more key.
    #[must_use]
    pub fn set(mut self, file: File, key: &str, value: &str) -> Options {
        self.extra.push((file, key.to_owned(), value.to_owned()));
        self
    }

    /// What a daemon would explain in a stack trace minutes later.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let wrong = |what: String| Err(Failure::new(Kind::Wrong, what));
        if self.nodes > NODES_MAX {
            return wrong(format!("{} nodes are more than {NODES_MAX}", self.nodes));
        }
        let labelled = self.labels.iter().flat_map(|label| &label.nodes);
        let described = self.attributes.iter().map(|(node, _, _)| node);
        for node in labelled.chain(described) {
            if !(1..=self.nodes).contains(node) {
                return wrong(format!("there is no node `nm{node}`: nodes are {}", self.nodes));
            }
        }
        if self.gpus.len() > self.nodes {
            return wrong(format!("gpus for {} nodes, of {}", self.gpus.len(), self.nodes));
        }
        let percents = self.queues.iter().map(|queue| u64::from(queue.percent));
        let total: u64 = percents.sum();
        if total != 100 {
            return wrong(format!("the queues have {total} percent together, not 100"));
        }
        for label in self.queues.iter().flat_map(|queue| &queue.labels) {
            if !self.labels.iter().any(|known| known.name == *label) {
                return wrong(format!("a queue names the label `{label}`, which does not exist"));
            }
        }
        let new = !self.attributes.is_empty() || self.logs == Logs::Indexed;
        if new && !self.version.has_placement_constraints() {
            let version = self.version;
            return wrong(format!("Hadoop {version} has no node attributes or indexed logs"));
        }
        if self.rm_ha.is_some() && !self.rm_recovery {
            return wrong("two ResourceManagers need `rm_recovery`".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_that_contradict_each_other_are_refused_before_anything_starts() {
        let new = || Options::new(Version::V2_10_2);
        new().check().unwrap();
        let label = |node| Label { name: "gpu".to_owned(), nodes: vec![node], exclusive: true };
        let refused = [
            Options { nodes: 99, ..new() },
            Options { labels: vec![label(2)], ..new() },
            Options { gpus: vec![1, 1], ..new() },
            Options { queues: vec![Queue::new("a", 60)], ..new() },
            Options { queues: vec![Queue::new("a", u32::MAX), Queue::new("b", 101)], ..new() },
            Options { logs: Logs::Indexed, ..new() },
            Options { rm_ha: Some(Failover::Manual), rm_recovery: false, ..new() },
        ];
        for options in refused {
            assert_eq!(options.check().unwrap_err().kind, Kind::Wrong, "{options:?}");
        }
        Options { labels: vec![label(1)], ..new() }.check().unwrap();
    }
}
