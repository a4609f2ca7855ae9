//! Who waits for what. A link waits for one thing at a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::key_table::{ENTRY, Key};
use crate::{LinkId, Rejection};

/// For what.
enum WaitCondition {
    /// These keys have come. What came once counts, even if it was deleted since.
    AllKeys(BTreeSet<Key>),
    /// So many have come to a barrier.
    BarrierCount(Key, i64),
}

impl WaitCondition {
    fn keys(&self) -> Box<dyn Iterator<Item = &Key> + '_> {
        match self {
            WaitCondition::AllKeys(keys) => Box::new(keys.iter()),
            WaitCondition::BarrierCount(key, _) => Box::new(std::iter::once(key)),
        }
    }

    fn cost(&self) -> usize {
        self.keys().map(|key| 2 * ENTRY + key.len()).sum()
    }
}

struct Wait {
    until: WaitCondition,
    /// Its place among those who wait for the same.
    turn: u64,
    /// It began with a message that is kept; then what ends it is kept too, or a new master would answer to it.
    kept: bool,
}

/// All waits of a store.
pub(super) struct Waits {
    of: BTreeMap<LinkId, Wait>,
    /// Who waits for a key to come, first come first.
    keys: BTreeMap<Key, BTreeMap<u64, LinkId>>,
    /// Who waits at a barrier, first come first.
    barriers: BTreeMap<Key, BTreeMap<u64, LinkId>>,
    turns: u64,
    bytes: usize,
    bytes_max: usize,
}

impl Waits {
    pub(super) fn new(bytes_max: usize) -> Waits {
        Waits {
            of: BTreeMap::new(),
            keys: BTreeMap::new(),
            barriers: BTreeMap::new(),
            turns: 0,
            bytes: 0,
            bytes_max,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// A link that does not wait begins to, for keys that are not there.
    pub(super) fn for_keys<'k>(
        &mut self,
        link: LinkId,
        keys: impl Iterator<Item = &'k [u8]>,
        kept: bool,
    ) -> Result<(), Rejection> {
        self.begin(link, WaitCondition::AllKeys(keys.map(Key::from).collect()), kept)
    }

    /// A link that does not wait begins to, for others at a barrier. This is always kept.
    pub(super) fn at_barrier(
        &mut self,
        link: LinkId,
        key: &[u8],
        world: i64,
    ) -> Result<(), Rejection> {
        self.begin(link, WaitCondition::BarrierCount(key.into(), world), true)
    }

    fn begin(&mut self, link: LinkId, until: WaitCondition, kept: bool) -> Result<(), Rejection> {
        let cost = until.cost();
        if cost > self.bytes_max.saturating_sub(self.bytes) {
            return Err(Rejection::new(format!(
                "too many waits: `{}` bytes in use, `{cost}` requested, `{}` allowed",
                self.bytes, self.bytes_max
            )));
        }
        self.bytes += cost;
        self.turns += 1;
        let turn = self.turns;
        let index = match until {
            WaitCondition::AllKeys(_) => &mut self.keys,
            WaitCondition::BarrierCount(..) => &mut self.barriers,
        };
        for key in until.keys() {
            index.entry(key.clone()).or_default().insert(turn, link);
        }
        self.of.insert(link, Wait { until, turn, kept });
        Ok(())
    }

    /// A link waits no longer: whether that is to be kept.
    pub(super) fn end(&mut self, link: LinkId) -> bool {
        let Some(wait) = self.of.remove(&link) else {
            return false;
        };
        self.bytes -= wait.until.cost();
        let index = match wait.until {
            WaitCondition::AllKeys(_) => &mut self.keys,
            WaitCondition::BarrierCount(..) => &mut self.barriers,
        };
        for key in wait.until.keys() {
            leave(index, key, wait.turn);
        }
        wait.kept
    }

    /// A key has come: who need not wait any longer.
    pub(super) fn came(&mut self, key: &[u8]) -> Vec<LinkId> {
        let turns = self.keys.remove(key).unwrap_or_default();
        turns.into_values().filter(|link| self.met(*link, key)).collect()
    }

    /// Something for one of those who wait for that key: who need not wait any longer.
    pub(super) fn came_for_one(&mut self, key: &[u8]) -> Option<LinkId> {
        let (turn, link) = self.keys.get(key)?.first_key_value()?;
        let (turn, link) = (*turn, *link);
        leave(&mut self.keys, key, turn);
        self.met(link, key).then_some(link)
    }

    /// So many have come to a barrier: who need not wait any longer.
    pub(super) fn reached(&mut self, key: &[u8], count: i64) -> Vec<LinkId> {
        let Some(turns) = self.barriers.get(key) else {
            return Vec::new();
        };
        let through: Vec<LinkId> = turns
            .values()
            .copied()
            .filter(|link| {
                matches!(self.of.get(link), Some(Wait { until: WaitCondition::BarrierCount(_, world), .. }) if *world <= count)
            })
            .collect();
        for link in &through {
            self.end(*link);
        }
        through
    }

    /// One key less for a link, which is in nobody's queue for it any more: whether it was the last.
    fn met(&mut self, link: LinkId, key: &[u8]) -> bool {
        let Some(Wait { until: WaitCondition::AllKeys(keys), .. }) = self.of.get_mut(&link) else {
            return false;
        };
        if keys.remove(key) {
            self.bytes -= 2 * ENTRY + key.len();
        }
        if !keys.is_empty() {
            return false;
        }
        self.of.remove(&link);
        true
    }
}

fn leave(index: &mut BTreeMap<Key, BTreeMap<u64, LinkId>>, key: &[u8], turn: u64) {
    let Some(turns) = index.get_mut(key) else {
        return;
    };
    turns.remove(&turn);
    if turns.is_empty() {
        index.remove(key);
    }
}

impl fmt::Debug for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waits").field("links", &self.of.len()).field("bytes", &self.bytes).finish()
    }
}
