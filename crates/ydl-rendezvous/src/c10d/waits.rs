//! Links that wait. A link has at most one wait.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::key_table::{ENTRY_OVERHEAD, Key};
use crate::{LinkId, Rejection};

/// Condition that ends a wait.
enum WaitCondition {
    /// All keys have been set once. A key that was deleted since counts.
    AllKeys(BTreeSet<Key>),
    /// This many links have reached a barrier.
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
        self.keys().map(|key| 2 * ENTRY_OVERHEAD + key.len()).sum()
    }
}

struct Wait {
    until: WaitCondition,
    /// Position in the queue of a key.
    ticket: u64,
    /// The message that started the wait is persisted. Then its end is persisted too, or a new master would respond to
    /// it.
    persisted: bool,
}

/// All waits of a store.
pub(super) struct Waits {
    by_link: BTreeMap<LinkId, Wait>,
    /// Links that wait for a key, first come, first served.
    keys: BTreeMap<Key, BTreeMap<u64, LinkId>>,
    /// Links that wait at a barrier, first come, first served.
    barriers: BTreeMap<Key, BTreeMap<u64, LinkId>>,
    tickets: u64,
    bytes: usize,
    bytes_max: usize,
}

impl Waits {
    pub(super) fn new(bytes_max: usize) -> Waits {
        Waits {
            by_link: BTreeMap::new(),
            keys: BTreeMap::new(),
            barriers: BTreeMap::new(),
            tickets: 0,
            bytes: 0,
            bytes_max,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_link.is_empty()
    }

    /// Starts the wait of a link for missing keys. The link must not be waiting.
    pub(super) fn for_keys<'k>(
        &mut self,
        link: LinkId,
        keys: impl Iterator<Item = &'k [u8]>,
        persisted: bool,
    ) -> Result<(), Rejection> {
        self.begin(link, WaitCondition::AllKeys(keys.map(Key::from).collect()), persisted)
    }

    /// Starts the wait of a link at a barrier. Always persisted. The link must not be waiting.
    pub(super) fn at_barrier(
        &mut self,
        link: LinkId,
        key: &[u8],
        world: i64,
    ) -> Result<(), Rejection> {
        self.begin(link, WaitCondition::BarrierCount(key.into(), world), true)
    }

    fn begin(
        &mut self,
        link: LinkId,
        until: WaitCondition,
        persisted: bool,
    ) -> Result<(), Rejection> {
        let cost = until.cost();
        if cost > self.bytes_max.saturating_sub(self.bytes) {
            return Err(Rejection::new(format!(
                "too many waits: `{}` bytes in use, `{cost}` requested, `{}` allowed",
                self.bytes, self.bytes_max
            )));
        }
        self.bytes += cost;
        self.tickets += 1;
        let ticket = self.tickets;
        let index = match until {
            WaitCondition::AllKeys(_) => &mut self.keys,
            WaitCondition::BarrierCount(..) => &mut self.barriers,
        };
        for key in until.keys() {
            index.entry(key.clone()).or_default().insert(ticket, link);
        }
        self.by_link.insert(link, Wait { until, ticket, persisted });
        Ok(())
    }

    /// Ends the wait of a link. Returns true if the end must be persisted.
    pub(super) fn end(&mut self, link: LinkId) -> bool {
        let Some(wait) = self.by_link.remove(&link) else {
            return false;
        };
        self.bytes -= wait.until.cost();
        let index = match wait.until {
            WaitCondition::AllKeys(_) => &mut self.keys,
            WaitCondition::BarrierCount(..) => &mut self.barriers,
        };
        for key in wait.until.keys() {
            leave(index, key, wait.ticket);
        }
        wait.persisted
    }

    /// Handles a key that was set. Returns the links that need not wait any longer.
    pub(super) fn key_set(&mut self, key: &[u8]) -> Vec<LinkId> {
        let tickets = self.keys.remove(key).unwrap_or_default();
        tickets.into_values().filter(|link| self.satisfy(*link, key)).collect()
    }

    /// Handles an item pushed to a queue, for the first link that waits for it. Returns the link if its wait is over.
    pub(super) fn item_pushed(&mut self, key: &[u8]) -> Option<LinkId> {
        let (ticket, link) = self.keys.get(key)?.first_key_value()?;
        let (ticket, link) = (*ticket, *link);
        leave(&mut self.keys, key, ticket);
        self.satisfy(link, key).then_some(link)
    }

    /// Handles a new count of a barrier. Returns the links that need not wait any longer.
    pub(super) fn barrier_reached(&mut self, key: &[u8], count: i64) -> Vec<LinkId> {
        let Some(tickets) = self.barriers.get(key) else {
            return Vec::new();
        };
        let done: Vec<LinkId> = tickets
            .values()
            .copied()
            .filter(|link| {
                matches!(self.by_link.get(link), Some(Wait { until: WaitCondition::BarrierCount(_, world), .. }) if *world <= count)
            })
            .collect();
        for link in &done {
            self.end(*link);
        }
        done
    }

    /// Removes a key from the wait of a link, which has left the queue of the key. Returns true if it was the last.
    fn satisfy(&mut self, link: LinkId, key: &[u8]) -> bool {
        let Some(Wait { until: WaitCondition::AllKeys(keys), .. }) = self.by_link.get_mut(&link)
        else {
            return false;
        };
        if keys.remove(key) {
            self.bytes -= 2 * ENTRY_OVERHEAD + key.len();
        }
        if !keys.is_empty() {
            return false;
        }
        self.by_link.remove(&link);
        true
    }
}

fn leave(index: &mut BTreeMap<Key, BTreeMap<u64, LinkId>>, key: &[u8], ticket: u64) {
    let Some(tickets) = index.get_mut(key) else {
        return;
    };
    tickets.remove(&ticket);
    if tickets.is_empty() {
        index.remove(key);
    }
}

impl fmt::Debug for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waits")
            .field("links", &self.by_link.len())
            .field("bytes", &self.bytes)
            .finish()
    }
}
