//! Options that apply only on a cluster: queue, permissions, placement.

use alloc::{collections::BTreeMap, string::String, vec::Vec};
use serde::{Deserialize, Serialize};

/// Options of a job on a cluster. Ignored on one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterOptions {
    /// Queue of the job.
    pub queue: Option<String>,
    /// Node label; a role's own label takes precedence.
    pub node_label: Option<String>,
    /// Component that assigns GPUs to tasks.
    #[serde(default)]
    pub gpu_assignment: GpuAssignment,
    /// Tags of the job.
    pub tags: Vec<String>,
    /// Priority within the queue; the highest is served first.
    pub priority: Option<i32>,
    /// Additional viewers: `user1,user2 group1`, or `*`.
    pub viewers: Option<String>,
    /// Additional users who may modify and kill it.
    pub modifiers: Option<String>,
    /// Additional file systems of its programs, such as `hdfs://other`.
    pub file_systems: Vec<String>,
    /// Staging directory; a directory of the user by default.
    pub staging: Option<String>,
    /// Keytab with which the job outlives its initial tickets and tokens.
    pub keytab: Option<Keytab>,
    /// Network between tasks: an interface, or a range such as `10.1.0.0/16`.
    #[serde(default)]
    pub network: Option<String>,
    /// Checkpoint location: a path that all nodes share, or a location in HDFS. The job's own
    /// directory by default.
    #[serde(default)]
    pub checkpoint: Option<String>,
    /// MLflow tracking of the job.
    #[serde(default)]
    pub mlflow: Option<Mlflow>,
    /// Container of its master.
    pub master: MasterSpec,
}

/// MLflow tracking server, and the run of the job there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mlflow {
    /// Address of the server, `http://…` or `https://…`.
    pub uri: String,
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the run; the job's id by default.
    pub run_name: Option<String>,
    /// Tags of the run.
    pub tags: BTreeMap<String, String>,
    /// User of the password in the file; without a user the file contains a token.
    pub user: Option<String>,
    /// File with the credentials, on the submitting machine.
    pub token_file: Option<String>,
}

/// Component that assigns GPUs to tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GpuAssignment {
    /// The cluster schedules GPUs, and its nodes assign them.
    #[default]
    Cluster,
    /// The cluster does not schedule GPUs: the agents of a node agree on the assignment.
    Agent,
}

/// A Kerberos keytab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keytab {
    /// Principal, such as `alice@EXAMPLE.COM`.
    pub principal: String,
    /// Path on the submitting machine.
    pub path: String,
}

/// The container of the master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MasterSpec {
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Virtual cores.
    pub vcores: u32,
    /// Node label.
    pub node_label: Option<String>,
    /// Maximum number of starts; the cluster has a limit of its own.
    pub attempts: u32,
}

impl Default for MasterSpec {
    /// The master needs a tenth of this memory; clusters round up anyway.
    fn default() -> Self {
        MasterSpec { memory_mib: 256, vcores: 1, node_label: None, attempts: 4 }
    }
}

/// Placement of the tasks of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Node label.
    pub node_label: Option<String>,
    /// Maximum number of the role's tasks on one node.
    pub max_per_node: Option<u32>,
    /// Preferred nodes.
    pub nodes: Vec<String>,
    /// Preferred racks.
    pub racks: Vec<String>,
    /// True if only these nodes and racks are accepted.
    #[serde(default)]
    pub strict: bool,
    /// Required node attributes, by name.
    pub attributes: BTreeMap<String, String>,
}
