//! Resources and limits of a cluster, as plain values.

use std::{collections::BTreeMap, fmt};
use ydl_core::spec::{Memory, Resources};

/// Name of YARN's resource type for GPUs.
pub(crate) const GPU: &str = "yarn.io/gpu";

/// Resources and limits of a cluster, from its ResourceManager and the local configuration.
#[derive(Clone, Debug, Default)]
pub struct ClusterInfo {
    /// Name of the caller.
    pub user: String,
    /// All queues.
    pub queues: Vec<Queue>,
    /// Nodes that run, and those that may recover without an administrator.
    pub nodes: Vec<Node>,
    /// Node labels.
    pub labels: Vec<Label>,
    /// Resource types other than memory and cores; `None` if the cluster is too old to report them.
    pub kinds: Option<Vec<String>>,
    /// Support of placement constraints.
    pub constraints: Constraints,
    /// Largest container of the scheduler, if known.
    pub largest: Option<Amount>,
    /// Allocation step of memory, if the local configuration sets it.
    pub step_mib: Option<u64>,
    /// Maximum number of master attempts, if the local configuration sets it.
    pub attempts_max: Option<u32>,
    /// Container runtimes of the nodes, if the local configuration sets them.
    pub runtimes: Option<Vec<String>>,
}

/// Support of placement constraints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Constraints {
    /// Supported.
    Yes,
    /// Not set in the local configuration.
    #[default]
    Unknown,
    /// Disabled.
    Off,
    /// Not supported by this version of Hadoop.
    TooOld,
}

/// A queue.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    /// Full path: `root.research.vision`.
    pub path: String,
    /// State in YARN's terms: `RUNNING`, `STOPPED` or `DRAINING`.
    pub state: String,
    /// True for a parent queue, which accepts no jobs.
    pub has_children: bool,
    /// True if this user may submit to it; `None` if unknown.
    pub can_submit: Option<bool>,
    /// Labels that it may use; `*` means all.
    pub labels: Vec<String>,
    /// Default label of requests without one.
    pub label: Option<String>,
    /// Shares by label; the empty name stands for nodes without a label.
    pub shares: BTreeMap<String, Share>,
}

/// A queue's share of the nodes of one label, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// Guaranteed share.
    pub capacity: f64,
    /// Maximum share.
    pub max_capacity: f64,
}

/// A node.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Host name.
    pub host: String,
    /// Rack.
    pub rack: String,
    /// Label; empty for none.
    pub label: String,
    /// Attributes, by their full names.
    pub attributes: BTreeMap<String, String>,
    /// True in the state `RUNNING`.
    pub running: bool,
    /// Total resources.
    pub all: Amount,
    /// Free resources.
    pub free: Amount,
}

/// A label of nodes.
#[derive(Clone, Debug, Default)]
pub struct Label {
    /// Name.
    pub name: String,
    /// True if requests without the label cannot use its nodes.
    pub exclusive: bool,
}

impl Queue {
    /// Returns the last component of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or(&self.path)
    }

    /// Returns whether the queue accepts jobs itself.
    pub(crate) fn is_leaf(&self) -> bool {
        !self.has_children
    }
}

/// Amount of each resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Virtual cores.
    pub vcores: u64,
    /// Other resources, by type name.
    pub others: BTreeMap<String, u64>,
}

impl Amount {
    /// Creates an amount of memory and cores.
    pub fn new(memory_mib: u64, vcores: u64) -> Amount {
        Amount { memory_mib, vcores, others: BTreeMap::new() }
    }

    /// Returns a task's request.
    pub fn of(resources: &Resources) -> Amount {
        let mut others = resources.other.clone();
        if resources.gpus > 0 {
            *others.entry(GPU.to_owned()).or_default() += u64::from(resources.gpus);
        }
        others.retain(|_, count| *count > 0);
        Amount { memory_mib: resources.memory_mib, vcores: u64::from(resources.vcores), others }
    }

    /// Returns the amount of a resource other than memory and cores.
    pub fn other(&self, name: &str) -> u64 {
        self.others.get(name).copied().unwrap_or(0)
    }

    /// Adds `count` times another.
    pub fn add(&mut self, other: &Amount, count: u64) {
        let add = |sum: u64, each: u64| sum.saturating_add(each.saturating_mul(count));
        self.memory_mib = add(self.memory_mib, other.memory_mib);
        self.vcores = add(self.vcores, other.vcores);
        for (name, each) in &other.others {
            let sum = self.others.entry(name.clone()).or_default();
            *sum = add(*sum, *each);
        }
    }

    /// Subtracts another amount; no resource goes below 0.
    pub(crate) fn subtract(&mut self, other: &Amount) {
        self.memory_mib = self.memory_mib.saturating_sub(other.memory_mib);
        self.vcores = self.vcores.saturating_sub(other.vcores);
        for (name, each) in &other.others {
            if let Some(rest) = self.others.get_mut(name) {
                *rest = rest.saturating_sub(*each);
            }
        }
    }

    /// Returns how many containers of a size fit. Ignores cores unless the scheduler enforces them.
    pub fn count_of(&self, each: &Amount, count_vcores: bool) -> u64 {
        let divide = |total: u64, each: u64| total.checked_div(each).unwrap_or(u64::MAX);
        let mut count = divide(self.memory_mib, each.memory_mib);
        if count_vcores {
            count = count.min(divide(self.vcores, each.vcores));
        }
        for (name, each) in &each.others {
            count = count.min(divide(self.other(name), *each));
        }
        count
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.vcores == 1 { "" } else { "s" };
        write!(f, "{}, {} vcore{plural}", Memory(self.memory_mib), self.vcores)?;
        for (name, count) in &self.others {
            write!(f, ", {count} `{name}`")?;
        }
        Ok(())
    }
}
