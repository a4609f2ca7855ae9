//! Which nodes are avoided, and until when.

use super::{Job, timers::Timer};
use crate::{
    action::Action,
    ending::{Ending, NodeBlame},
    fact::What,
    id::NodeName,
    time::Time,
};
use alloc::{collections::BTreeMap, vec::Vec};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Nodes {
    /// How many there are, as far as the backend has said.
    count: u32,
    /// Failures of programs that may or may not be the node's fault.
    failures: BTreeMap<NodeName, u32>,
    avoided: BTreeMap<NodeName, Time>,
}

impl Nodes {
    pub(super) fn avoids(&self, node: &NodeName) -> bool {
        self.avoided.contains_key(node)
    }

    pub(super) fn avoided(&self) -> Vec<NodeName> {
        self.avoided.keys().cloned().collect()
    }

    pub(super) fn next_forgiven(&self) -> Option<Time> {
        self.avoided.values().min().copied()
    }

    pub(super) fn forgive(&mut self, now: Time) {
        self.avoided.retain(|_, until| *until > now);
    }
}

impl Job {
    /// Where there are fewer nodes than before, those to be forgiven soonest are forgiven now.
    pub(super) fn on_counted(&mut self, nodes: u32) {
        self.nodes.count = nodes;
        let most = self.most_avoided();
        while self.nodes.avoided.len() > most {
            let soonest = self.nodes.avoided.iter().min_by_key(|(_, until)| **until);
            let Some(node) = soonest.map(|(node, _)| node.clone()) else {
                break;
            };
            self.nodes.avoided.remove(&node);
        }
        self.timers.arm(Timer::Forgive, self.nodes.next_forgiven());
    }

    fn most_avoided(&self) -> usize {
        self.spec.blame.at_most.min(self.nodes.count / 2) as usize
    }

    /// Holds the node to account for an ending, within the limits: a small cluster must not be used up by blame,
    /// and the only node never is.
    pub(super) fn blame(&mut self, node: &NodeName, ending: &Ending, out: &mut Vec<Action>) {
        let guilty = match ending.blames() {
            NodeBlame::None => false,
            NodeBlame::AtOnce => true,
            NodeBlame::AfterSeveral => {
                let failures = self.nodes.failures.entry(node.clone()).or_default();
                *failures += 1;
                *failures >= self.spec.blame.failures
            }
        };
        let full = self.nodes.avoided.len() >= self.most_avoided();
        if !guilty || full || self.nodes.avoids(node) {
            return;
        }
        let until = self.now + self.spec.blame.forgive_after;
        self.nodes.failures.remove(node);
        self.nodes.avoided.insert(node.clone(), until);
        self.timers.arm(Timer::Forgive, self.nodes.next_forgiven());
        let what = What::NodeBlamed {
            node: node.clone(),
            until,
        };
        self.record(what, out);
    }
}
