//! Memory limits, as a NodeManager keeps them: all processes of a container against what it asked for. But what ydl itself
//! needs beside the program, its agent and its keeper, is not charged to the task.

use ydl_core::ContainerId;
use ydl_os::{proc_tree::Tree, process::Identity};

pub(super) struct Overrun {
    pub(super) container: ContainerId,
    pub(super) used_mib: u64,
    pub(super) limit_mib: u64,
}

/// One pass over the processes of this machine for all containers together.
pub(super) fn overruns(limits: impl Iterator<Item = (ContainerId, Identity, u64)>) -> Vec<Overrun> {
    let mut limits = limits.peekable();
    if limits.peek().is_none() {
        return Vec::new();
    }
    let tree = match Tree::read() {
        Ok(tree) => tree,
        Err(error) => {
            tracing::warn!("cannot look at the memory of processes: {error}");
            return Vec::new();
        }
    };
    let over = limits.filter_map(|(container, agent, limit_mib)| {
        let there = tree.entry(agent.pid)?.identity() == agent;
        let used_mib = tree.sum_of_programs(agent.pid).rss_bytes >> 20;
        (there && used_mib > limit_mib).then_some(Overrun { container, used_mib, limit_mib })
    });
    over.collect()
}
