//! What only a cluster of many nodes understands: whose share a job runs on, and where its tasks go.

use alloc::{collections::BTreeMap, string::String, vec::Vec};
use serde::{Deserialize, Serialize};

/// How a job stands on a cluster. One machine has no use for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterOptions {
    /// Whose share it runs on.
    pub queue: Option<String>,
    /// The label of its nodes; a role's own wins.
    pub node_label: Option<String>,
    /// Who gives tasks their GPUs.
    #[serde(default)]
    pub gpu_assignment: GpuAssignment,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Among the jobs of a queue the highest goes first.
    pub priority: Option<i32>,
    /// Who may look at it beside its owner: `user1,user2 group1`, or `*`.
    pub viewers: Option<String>,
    /// Who may change and end it beside its owner.
    pub modifiers: Option<String>,
    /// Further file systems its programs use, as `hdfs://other`.
    pub file_systems: Vec<String>,
    /// Where files are kept for it; a directory of the user's own if not said.
    pub staging: Option<String>,
    /// With which it outlives the tickets and tokens of its beginning.
    pub keytab: Option<Keytab>,
    /// Through which of a node's networks tasks reach each other: an interface, or a range as `10.1.0.0/16`.
    #[serde(default)]
    pub network: Option<String>,
    /// Where its checkpoints are: a path that all nodes share, or a place in HDFS. The job's own directory if not said.
    #[serde(default)]
    pub checkpoint: Option<String>,
    /// Where MLflow is told of it.
    #[serde(default)]
    pub mlflow: Option<Mlflow>,
    /// Its master.
    pub master: MasterSpec,
}

/// A tracking server, and as what the job is known there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mlflow {
    /// Its address, `http://…` or `https://…`.
    pub uri: String,
    /// The experiment.
    pub experiment: String,
    /// What the run is called; as the job's id if not said.
    pub run_name: Option<String>,
    /// The run's tags.
    pub tags: BTreeMap<String, String>,
    /// Whose password is in the file; without a user it is a token.
    pub user: Option<String>,
    /// A file with what opens the server, on the machine of whoever submits.
    pub token_file: Option<String>,
}

/// Who decides which GPUs a task has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GpuAssignment {
    /// The cluster counts them, and its nodes hand them out.
    #[default]
    Cluster,
    /// The cluster knows nothing of them: agents on a node agree among each other.
    Agent,
}

/// A key with which new tickets are had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keytab {
    /// Whose it is, as `alice@EXAMPLE.COM`.
    pub principal: String,
    /// The file, on the machine of whoever submits.
    pub path: String,
}

/// The container of the master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MasterSpec {
    /// Its memory in MiB.
    pub memory_mib: u64,
    /// Its virtual cores.
    pub vcores: u32,
    /// The label of its node.
    pub node_label: Option<String>,
    /// How often it is started; a cluster has a limit of its own.
    pub attempts: u32,
}

impl Default for MasterSpec {
    /// It needs a tenth of this memory; clusters round up anyway.
    fn default() -> Self {
        MasterSpec { memory_mib: 256, vcores: 1, node_label: None, attempts: 4 }
    }
}

/// Where the tasks of a role go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The label of their nodes.
    pub node_label: Option<String>,
    /// At most so many of the role on one node.
    pub max_per_node: Option<u32>,
    /// Nodes they would best run on.
    pub nodes: Vec<String>,
    /// Racks they would best run in.
    pub racks: Vec<String>,
    /// Attributes their nodes must have, by name.
    pub attributes: BTreeMap<String, String>,
}
