//! Resources and limits of a cluster, as plain values.

use std::{collections::BTreeMap, fmt};
use ydl_core::spec::{Memory, Resources};

/// The name under which YARN counts graphics processors.
pub const GPU: &str = "yarn.io/gpu";

/// A cluster, as far as its ResourceManager and the configuration tell.
#[derive(Clone, Debug, Default)]
pub struct ClusterInfo {
    /// The caller.
    pub user: String,
    /// Every queue.
    pub queues: Vec<Queue>,
    /// The nodes that can be given work, and those that may come back.
    pub nodes: Vec<Node>,
    /// The labels of nodes.
    pub labels: Vec<Label>,
    /// Resource types beside memory and cores; `None` where the cluster is too old to report them.
    pub kinds: Option<Vec<String>>,
    /// True if tasks can be placed by constraints.
    pub constraints: Constraints,
    /// The largest container the scheduler gives, where that is known.
    pub largest: Option<Amount>,
    /// Memory is given in multiples of this, if the configuration here is the ResourceManager's.
    pub step_mib: Option<u64>,
    /// Maximum number of master starts, if the configuration here is the ResourceManager's.
    pub attempts_max: Option<u32>,
    /// With what its nodes run containers, if the configuration here is theirs.
    pub runtimes: Option<Vec<String>>,
}

/// Support of placement constraints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Constraints {
    /// It does.
    Yes,
    /// Its configuration does not say.
    #[default]
    Unknown,
    /// They are switched off.
    Off,
    /// It is too old.
    TooOld,
}

/// A queue.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    /// With those above it: `root.research.vision`.
    pub path: String,
    /// True if it takes jobs, in YARN's word.
    pub state: String,
    /// True if it only holds other queues.
    pub has_children: bool,
    /// True if this user may submit to it, where that is known.
    pub open_to_user: Option<bool>,
    /// Labels it may use; `*` is all.
    pub labels: Vec<String>,
    /// The label of asks that name none.
    pub label: Option<String>,
    /// Its share of the nodes of each label; those without label under the empty name.
    pub shares: BTreeMap<String, Share>,
}

/// A queue's share of the nodes of one label, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// Guaranteed share.
    pub own: f64,
    /// Maximum share.
    pub most: f64,
}

/// A node.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Its host.
    pub host: String,
    /// Its rack.
    pub rack: String,
    /// Its label; empty for none.
    pub label: String,
    /// Its attributes.
    pub attributes: BTreeMap<String, String>,
    /// True if it is well now.
    pub running: bool,
    /// All it has.
    pub all: Amount,
    /// Free resources.
    pub free: Amount,
}

/// A label of nodes.
#[derive(Clone, Debug, Default)]
pub struct Label {
    /// Its name.
    pub name: String,
    /// True if asks without it stay off its nodes.
    pub exclusive: bool,
}

impl Queue {
    /// Its own name, without those above it.
    pub fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or(&self.path)
    }

    /// Returns whether it takes jobs by itself.
    pub fn is_leaf(&self) -> bool {
        !self.has_children
    }
}

/// So much of everything that is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Virtual cores.
    pub vcores: u64,
    /// Everything else, by name.
    pub others: BTreeMap<String, u64>,
}

impl Amount {
    /// Memory and cores.
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

    /// So much of a thing beside memory and cores.
    pub fn other(&self, name: &str) -> u64 {
        self.others.get(name).copied().unwrap_or(0)
    }

    /// Adds `count` times another.
    pub fn add(&mut self, other: &Amount, count: u64) {
        let more = |there: u64, each: u64| there.saturating_add(each.saturating_mul(count));
        self.memory_mib = more(self.memory_mib, other.memory_mib);
        self.vcores = more(self.vcores, other.vcores);
        for (name, each) in &other.others {
            let there = self.others.entry(name.clone()).or_default();
            *there = more(*there, *each);
        }
    }

    /// Takes another away; nothing goes below 0.
    pub fn take(&mut self, other: &Amount) {
        self.memory_mib = self.memory_mib.saturating_sub(other.memory_mib);
        self.vcores = self.vcores.saturating_sub(other.vcores);
        for (name, each) in &other.others {
            if let Some(there) = self.others.get_mut(name) {
                *there = there.saturating_sub(*each);
            }
        }
    }

    /// Counts how many of that size fit. Cores count where the scheduler counts them.
    pub fn holds(&self, each: &Amount, count_vcores: bool) -> u64 {
        let of = |there: u64, each: u64| there.checked_div(each).unwrap_or(u64::MAX);
        let mut most = of(self.memory_mib, each.memory_mib);
        if count_vcores {
            most = most.min(of(self.vcores, each.vcores));
        }
        for (name, each) in &each.others {
            most = most.min(of(self.other(name), *each));
        }
        most
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
