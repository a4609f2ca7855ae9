//! One role of a job.

use super::{Completion, Environment, MemoryGrowth, Placement, Restart, Serve};
use crate::id::RoleName;
use alloc::{collections::BTreeMap, format, string::String, vec::Vec};
use core::fmt;
use serde::{Deserialize, Serialize};

/// A role: a group of equal tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleSpec {
    /// Name of the role.
    pub name: RoleName,
    /// Number of tasks at the start; `scale` changes it later.
    pub instances: u32,
    /// Number of processes that each task starts.
    #[serde(default = "one")]
    pub processes: u32,
    /// Range of its size, if it is elastic.
    #[serde(default)]
    pub elastic: Option<Range>,
    /// Size of each task's container.
    pub resources: Resources,
    /// Command of each task.
    pub command: Command,
    /// Environment of its programs, if it differs from the job's: an image of its own, or the node.
    #[serde(default)]
    pub environment: Option<Environment>,
    /// Environment variables of the role.
    pub env: BTreeMap<String, String>,
    /// Restart policy.
    pub restart: Restart,
    /// Effect of its end on the job.
    pub completion: Completion,
    /// Number of tasks that may fail permanently before the job fails.
    pub tolerate: u32,
    /// Memory growth after a container exceeded its limit.
    pub memory_growth: Option<MemoryGrowth>,
    /// Names of additional ports of the program.
    pub ports: Vec<String>,
    /// Placement on a cluster.
    pub placement: Placement,
    /// Roles whose tasks must all have run before this role asks for containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<RoleName>,
    /// Serving policy, if its tasks are replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serve: Option<Serve>,
}

/// Default number of processes of a task.
pub(crate) fn one() -> u32 {
    1
}

impl Default for RoleSpec {
    /// Returns a role of one task, without a name and a command.
    fn default() -> Self {
        RoleSpec {
            name: RoleName::from(""),
            instances: 1,
            processes: 1,
            elastic: None,
            resources: Resources { memory_mib: 1024, vcores: 1, ..Resources::default() },
            command: Command::default(),
            environment: None,
            env: BTreeMap::new(),
            restart: Restart::default(),
            completion: Completion::default(),
            tolerate: 0,
            memory_growth: None,
            ports: Vec::new(),
            placement: Placement::default(),
            depends_on: Vec::new(),
            serve: None,
        }
    }
}

impl RoleSpec {
    /// Value of `tolerate` that ignores all failures of a role.
    pub const ALL_MAY_FAIL: u32 = u32::MAX;

    /// Returns true if the role is a sidecar, unknown to its peers.
    pub fn is_sidecar(&self) -> bool {
        self.completion == Completion::Sidecar
    }

    /// Returns true for services and sidecars: by default they get no inputs and their files are no
    /// outputs.
    pub(crate) fn is_auxiliary(&self) -> bool {
        matches!(self.completion, Completion::Service | Completion::Sidecar)
    }

    /// Returns the minimum number of tasks.
    pub fn min_instances(&self) -> u32 {
        let range = self.elastic.or(self.serve.as_ref().map(|serve| serve.replicas));
        range.map_or(self.instances, |range| range.min)
    }

    /// Returns the maximum number of tasks without scaling.
    pub fn max_instances(&self) -> u32 {
        let range = self.elastic.or(self.serve.as_ref().map(|serve| serve.replicas));
        range.map_or(self.instances, |range| range.max.max(self.instances))
    }
}

/// Size range of an elastic role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// Minimum number of tasks to start and to continue.
    pub min: u32,
    /// Maximum number of tasks.
    pub max: u32,
}

/// Command of a program: an argument list, or a script for a shell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// A program and its arguments, run as they are.
    Program(Vec<String>),
    /// A script for `/bin/sh -c`.
    Shell(String),
}

impl Default for Command {
    /// Returns an empty command, which is invalid in a job.
    fn default() -> Self {
        Command::Program(Vec::new())
    }
}

impl Command {
    /// Returns the argument list to execute.
    pub fn argv(&self) -> Vec<String> {
        match self {
            Command::Program(words) => words.clone(),
            Command::Shell(script) => ["/bin/sh", "-c", script].map(String::from).to_vec(),
        }
    }
}

/// Size of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Resources {
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Virtual cores.
    pub vcores: u32,
    /// Graphics processors.
    pub gpus: u32,
    /// Any other countable resource, by its name on the cluster.
    pub other: BTreeMap<String, u64>,
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = format!("{}, {} vcore", Memory(self.memory_mib), self.vcores);
        if self.vcores != 1 {
            text.push('s');
        }
        if self.gpus > 0 {
            text += &format!(", {} GPU{}", self.gpus, if self.gpus == 1 { "" } else { "s" });
        }
        for (name, count) in &self.other {
            text += &format!(", {count} `{name}`");
        }
        f.pad(&text)
    }
}

/// A number of MiB, formatted with a suitable unit.
#[derive(Clone, Copy, Debug)]
pub struct Memory(pub u64);

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.0;
        if mib < 1024 {
            f.pad(&format!("{mib} MiB"))
        } else if mib.is_multiple_of(1024) {
            f.pad(&format!("{} GiB", mib / 1024))
        } else {
            f.pad(&format!("{}.{} GiB", mib / 1024, mib % 1024 * 10 / 1024))
        }
    }
}
