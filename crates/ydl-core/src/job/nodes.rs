//! Excluded nodes and the charges against nodes.

use super::{Job, TaskKey, timers::Timer};
use crate::{
    action::Action,
    ending::{Ending, ExclusionTrigger},
    history::{HistoryKind, counted},
    id::NodeName,
    time::Time,
};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    format,
    vec::Vec,
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Nodes {
    /// Number of usable nodes reported by the backend.
    count: u32,
    /// Number of failures on each node.
    failures: BTreeMap<NodeName, u32>,
    excluded: BTreeMap<NodeName, Time>,
    /// Nodes that some role requires; they are never excluded.
    required: BTreeSet<NodeName>,
}

/// A charge against a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeCharge {
    pub(super) node: NodeName,
    /// Time until which the node is excluded, if this charge triggered the exclusion.
    pub(super) until: Option<Time>,
}

impl Nodes {
    pub(super) fn is_excluded(&self, node: &NodeName) -> bool {
        self.excluded.contains_key(node)
    }

    pub(super) fn excluded(&self) -> Vec<NodeName> {
        self.excluded.keys().cloned().collect()
    }

    pub(super) fn next_readmission(&self) -> Option<Time> {
        self.excluded.values().min().copied()
    }

    /// Returns the nodes whose exclusion has expired.
    fn expired(&self, now: Time) -> Vec<NodeName> {
        let up = self.excluded.iter().filter(|(_, until)| **until <= now);
        up.map(|(node, _)| node.clone()).collect()
    }
}

impl Job {
    /// Readmits nodes if too few are left, in the order of their expiry.
    pub(super) fn on_nodes_counted(&mut self, nodes: u32, out: &mut Vec<Action>) {
        self.nodes.count = nodes;
        let limit = self.max_excluded();
        while self.nodes.excluded.len() > limit {
            let soonest = self.nodes.excluded.iter().min_by_key(|(_, until)| **until);
            let Some(node) = soonest.map(|(node, _)| node.clone()) else {
                break;
            };
            self.readmit(node, out);
        }
        self.timers.arm(Timer::Readmission, self.nodes.next_readmission());
    }

    /// Readmits nodes that a role requires.
    pub(super) fn on_nodes_required(&mut self, nodes: Vec<NodeName>, out: &mut Vec<Action>) {
        self.nodes.required = nodes.into_iter().collect();
        let required = self.nodes.required.iter();
        let excluded: Vec<_> = required.filter(|it| self.nodes.is_excluded(it)).cloned().collect();
        for node in excluded {
            self.readmit(node, out);
        }
        self.timers.arm(Timer::Readmission, self.nodes.next_readmission());
    }

    /// Readmits nodes whose exclusion has expired.
    pub(super) fn on_readmission_timer(&mut self, out: &mut Vec<Action>) {
        for node in self.nodes.expired(self.now) {
            self.readmit(node, out);
        }
        self.timers.arm(Timer::Readmission, self.nodes.next_readmission());
    }

    fn readmit(&mut self, node: NodeName, out: &mut Vec<Action>) {
        self.nodes.excluded.remove(&node);
        self.record(HistoryKind::NodeReadmitted { node }, out);
    }

    fn max_excluded(&self) -> usize {
        self.spec.node_exclusion.max_nodes.min(self.nodes.count / 2) as usize
    }

    /// Charges an ending to a node and excludes the node if due. The limits keep small clusters
    /// usable, and required nodes are never excluded.
    pub(super) fn charge_node(
        &mut self,
        node: &NodeName,
        key: TaskKey,
        ending: &Ending,
        out: &mut Vec<Action>,
    ) -> Option<NodeCharge> {
        let guilty = match ending.exclusion_trigger() {
            ExclusionTrigger::Never => return None,
            ExclusionTrigger::Immediate => Some(format!("{} {ending}", self.id(key))),
            ExclusionTrigger::AfterFailures => {
                let failures = self.nodes.failures.entry(node.clone()).or_default();
                *failures += 1;
                let failed = || format!("{} failed there", counted(*failures, "program"));
                (*failures >= self.spec.node_exclusion.failures).then(failed)
            }
        };
        let full = self.nodes.excluded.len() >= self.max_excluded();
        let spared = full || self.nodes.required.contains(node) || self.nodes.is_excluded(node);
        let Some(reason) = guilty.filter(|_| !spared) else {
            return Some(NodeCharge { node: node.clone(), until: None });
        };
        let until = self.now + self.spec.node_exclusion.timeout;
        self.nodes.failures.remove(node);
        self.nodes.excluded.insert(node.clone(), until);
        self.timers.arm(Timer::Readmission, self.nodes.next_readmission());
        let kind = HistoryKind::NodeExcluded { node: node.clone(), until, reason };
        self.record(kind, out);
        Some(NodeCharge { node: node.clone(), until: Some(until) })
    }

    /// Clears the charge for a failure that the node did not cause.
    pub(super) fn clear_charge(&mut self, charge: &NodeCharge, out: &mut Vec<Action>) {
        let node = &charge.node;
        if let Some(failures) = self.nodes.failures.get_mut(node) {
            *failures = failures.saturating_sub(1);
        } else if charge.until.is_some() && self.nodes.excluded.get(node).copied() == charge.until {
            let failures = self.spec.node_exclusion.failures.saturating_sub(1);
            self.nodes.failures.insert(node.clone(), failures);
            self.readmit(node.clone(), out);
            self.timers.arm(Timer::Readmission, self.nodes.next_readmission());
        }
    }
}
