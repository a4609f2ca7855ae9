//! One role of a job.

use super::{Completion, Environment, MemoryGrowth, Placement, Restart};
use crate::id::RoleName;
use alloc::{collections::BTreeMap, format, string::String, vec::Vec};
use core::fmt;
use serde::{Deserialize, Serialize};

/// A role: tasks that are alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleSpec {
    /// Its name.
    pub name: RoleName,
    /// How many tasks it has at the start; `scale` changes that later.
    pub instances: u32,
    /// How many processes of its command each task starts.
    #[serde(default = "one")]
    pub processes: u32,
    /// Between which numbers it may change while the job runs, where the cluster gives and takes.
    #[serde(default)]
    pub elastic: Option<Range>,
    /// What each task's container holds.
    pub resources: Resources,
    /// What each task runs.
    pub command: Command,
    /// What its programs run in, if not in the job's: an image of its own, or the bare node.
    #[serde(default)]
    pub environment: Option<Environment>,
    /// Variables of this role alone.
    pub env: BTreeMap<String, String>,
    /// What happens when a task fails.
    pub restart: Restart,
    /// What this role's end means for the job.
    pub completion: Completion,
    /// So many tasks may fail for good before the job fails.
    pub tolerate: u32,
    /// Whether a task killed for its memory gets more the next time.
    pub memory_growth: Option<MemoryGrowth>,
    /// Names of ports the program wants beside its framework's own.
    pub ports: Vec<String>,
    /// Where its tasks go on a cluster.
    pub placement: Placement,
    /// Roles whose every task has run before this one's ask for containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<RoleName>,
}

/// A task is one process unless somebody says otherwise.
pub(crate) fn one() -> u32 {
    1
}

impl RoleSpec {
    /// The `tolerate` of a role whose failures are none of the job's.
    pub const ALL_MAY_FAIL: u32 = u32::MAX;

    /// Whether it is no part of the job, and its peers are told nothing of it.
    pub fn is_sidecar(&self) -> bool {
        self.completion == Completion::Sidecar
    }

    /// Whether it is there for others: what it leaves behind is rarely what is meant, and data is for those who train.
    pub fn is_auxiliary(&self) -> bool {
        matches!(self.completion, Completion::Service | Completion::Sidecar)
    }

    /// So many tasks it needs at once.
    pub fn min_instances(&self) -> u32 {
        self.elastic.map_or(self.instances, |range| range.min)
    }

    /// The most tasks it ever has unless somebody scales it.
    pub fn max_instances(&self) -> u32 {
        self.elastic.map_or(self.instances, |range| range.max.max(self.instances))
    }
}

/// The sizes of an elastic role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// So many tasks are enough to begin and to go on.
    pub min: u32,
    /// More than this it never has.
    pub max: u32,
}

/// What a program is: words, or a line for a shell when the user asked for one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// A program and its arguments, run as they are.
    Program(Vec<String>),
    /// A script for `/bin/sh -c`.
    Shell(String),
}

impl Command {
    /// The words to execute.
    pub fn argv(&self) -> Vec<String> {
        match self {
            Command::Program(words) => words.clone(),
            Command::Shell(script) => ["/bin/sh", "-c", script].map(String::from).to_vec(),
        }
    }
}

/// The size of a container.
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

/// A number of MiB that prints itself with the unit a person would choose.
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
