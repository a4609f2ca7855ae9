//! Memory limits of the store, and the events of an elastic job.

use super::{notification::HostChange, world::World};

/// Maximum number of processes that raises the limit. The messages of a larger world would not fit into a journal.
const PROCESSES_MAX: usize = 1024;

/// Memory limits of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlooLimits {
    /// Stored keys and values, including overhead, in an empty world.
    pub stored_bytes: usize,
    /// Additional bytes for each pair of processes.
    pub pair_bytes: usize,
    /// Pending rank requests.
    pub rank_requests: usize,
}

impl Default for GlooLimits {
    fn default() -> GlooLimits {
        GlooLimits {
            stored_bytes: 64 << 20,
            // Each process stores an address of 136 bytes for each other one: in the global scope, and in the scope of
            // its local rank. Both are the same size if each task has one process.
            pair_bytes: 320,
            rank_requests: 16 << 10,
        }
    }
}

impl GlooLimits {
    /// Returns the limit of stored bytes for a world of `processes`.
    pub fn stored_bytes_for(&self, processes: usize) -> usize {
        let processes = processes.min(PROCESSES_MAX);
        self.stored_bytes + self.pair_bytes * processes * processes
    }
}

/// An event of an elastic job, passed from the driver to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorldEvent {
    /// The next world starts: each member of the last one has requested its rank or is gone. Empties the store and
    /// responds to the rank requests.
    Started(World),
    /// The hosts will change. Rank 0 is notified and notifies the others. Timestamps must increase.
    HostsChanged(HostChange, i32),
}
