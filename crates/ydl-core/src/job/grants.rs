//! Log of granted containers, so that a repeated grant is never taken for a new one.

use super::phase::TaskKey;
use crate::id::ContainerId;
use alloc::collections::{BTreeMap, VecDeque};

/// Log size. Grants repeat within a few heartbeats, not after this many grants.
const MOST: usize = 100_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GrantLog {
    /// Assigned task of each container, if any.
    tasks: BTreeMap<ContainerId, Option<TaskKey>>,
    /// Containers in the order of their grants; the oldest are evicted first.
    order: VecDeque<ContainerId>,
}

impl GrantLog {
    pub(super) fn contains(&self, container: &ContainerId) -> bool {
        self.tasks.contains_key(container)
    }

    /// Returns the task a container was assigned to, which may have another container by now.
    pub(super) fn task(&self, container: &ContainerId) -> Option<TaskKey> {
        self.tasks.get(container).copied().flatten()
    }

    pub(super) fn add(&mut self, container: &ContainerId, task: Option<TaskKey>) {
        if self.tasks.insert(container.clone(), task).is_some() {
            return;
        }
        self.order.push_back(container.clone());
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.tasks.remove(&oldest);
        }
    }
}
