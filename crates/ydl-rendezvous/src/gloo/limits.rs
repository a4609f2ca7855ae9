//! What whoever has a store tells it: how much it may take, and what was decided about an elastic job.

use super::{notification::HostChange, world::World};

/// A larger world is given no more room than one of so many processes: what it says when it meets would not fit into
/// what a master may write down.
const PROCESSES_MAX: usize = 1024;

/// How much of a master's memory a store may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlooLimits {
    /// What is stored, keys and what holds them included, in a world of nobody.
    pub stored_bytes: usize,
    /// And for each pair of processes.
    pub pair_bytes: usize,
    /// Links on which somebody waits for the next world.
    pub asking: usize,
}

impl Default for GlooLimits {
    fn default() -> GlooLimits {
        GlooLimits {
            stored_bytes: 64 << 20,
            // Each says one address of 136 bytes for each other, once among all and once among those of its local rank,
            // which are all where a task has one process.
            pair_bytes: 320,
            asking: 16 << 10,
        }
    }
}

impl GlooLimits {
    /// What may be stored in a world of so many processes.
    pub fn stored(&self, processes: usize) -> usize {
        let processes = processes.min(PROCESSES_MAX);
        self.stored_bytes + self.pair_bytes * processes * processes
    }
}

/// What the store is told by whoever decides about an elastic job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorldEvent {
    /// Everybody of the world so far has asked or is gone: this is the next. The store is emptied, and those who ask are
    /// told their numbers.
    Started(World),
    /// The hosts will change: rank 0 is told, and tells the others. Times must grow.
    HostsChanged(HostChange, i32),
}
