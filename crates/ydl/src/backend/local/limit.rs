//! Memory limits in the style of a NodeManager: all processes of a container count against its size. The memory
//! of ydl's own agent and shim is not charged to the task.

use ydl_core::ContainerId;
use ydl_os::{proc_tree::Tree, process::Identity};

pub(super) struct Overrun {
    pub(super) container: ContainerId,
    pub(super) used_mib: u64,
    pub(super) limit_mib: u64,
}

/// Checks all containers in one pass over the processes of this machine.
pub(super) fn overruns(limits: impl Iterator<Item = (ContainerId, Identity, u64)>) -> Vec<Overrun> {
    let mut limits = limits.peekable();
    if limits.peek().is_none() {
        return Vec::new();
    }
    let tree = match Tree::read() {
        Ok(tree) => tree,
        Err(error) => {
            tracing::warn!("cannot read the memory usage of processes: {error}");
            return Vec::new();
        }
    };
    let over_limit = limits.filter_map(|(container, agent, limit_mib)| {
        // Another process may have the agent's pid by now.
        let is_same = tree.entry(agent.pid)?.identity() == agent;
        let used_mib = tree.sum_of_programs(agent.pid).rss_bytes >> 20;
        (is_same && used_mib > limit_mib).then_some(Overrun { container, used_mib, limit_mib })
    });
    over_limit.collect()
}
