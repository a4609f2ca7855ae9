//! What whoever has a store tells it: how much it may take, and what was decided about an elastic job.

use serde::{Deserialize, Serialize};

use super::{notice::Change, world::World};

/// How much of a master's memory a store may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// What is stored, keys and what holds them included.
    pub stored_bytes: usize,
    /// Links on which somebody waits for the next world.
    pub asking: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            stored_bytes: 64 << 20,
            asking: 16 << 10,
        }
    }
}

/// What the store is told by whoever decides about an elastic job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum News {
    /// Everybody of the world so far has asked or is gone: this is the next. The store is emptied, and those who ask are
    /// told their numbers.
    World(World),
    /// The hosts will change: rank 0 is told, and tells the others. Times must grow.
    Changed(Change, i32),
}
