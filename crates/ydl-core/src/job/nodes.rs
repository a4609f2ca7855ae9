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
    pub(super) count: u32,
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
        let most = self.spec.blame.at_most.min(self.nodes.count / 2) as usize;
        if !guilty || self.nodes.avoided.len() >= most || self.nodes.avoids(node) {
            return;
        }
        let until = self.now + self.spec.blame.forgive_after;
        self.nodes.failures.remove(node);
        self.nodes.avoided.insert(node.clone(), until);
        self.timers.arm(Timer::Forgive, self.nodes.next_forgiven());
        self.record(
            What::NodeBlamed {
                node: node.clone(),
                until,
            },
            out,
        );
    }
}
