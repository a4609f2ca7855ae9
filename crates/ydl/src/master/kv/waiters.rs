//! Waiters, indexed by the operations that wake them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{KvError, WAITERS_MAX};

/// Identifier chosen by the caller, which knows how to notify the waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

impl fmt::Display for WaiterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "waiter:{}", self.0)
    }
}

/// Condition to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The key exists.
    Key { key: String },
    /// A key below the prefix changes after the revision.
    Changes { prefix: String, after: u64 },
    /// An event after the sequence number exists, of any name or of one.
    Events { after: u64, name: Option<String> },
}

type Index<K> = BTreeMap<K, BTreeSet<WaiterId>>;

/// Every waiter is in `waits` and in exactly one of the indexes.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    waits: BTreeMap<WaiterId, Wait>,
    keys: Index<String>,
    prefixes: Index<String>,
    names: Index<Option<String>>,
}

impl Waiters {
    pub(super) fn add(&mut self, waiter: WaiterId, wait: Wait) -> Result<(), KvError> {
        self.remove(waiter);
        if self.waits.len() >= WAITERS_MAX {
            return Err(KvError::TooManyWaiters);
        }
        let found = match &wait {
            Wait::Key { key } => self.keys.entry(key.clone()).or_default(),
            Wait::Changes { prefix, .. } => self.prefixes.entry(prefix.clone()).or_default(),
            Wait::Events { name, .. } => self.names.entry(name.clone()).or_default(),
        };
        found.insert(waiter);
        self.waits.insert(waiter, wait);
        Ok(())
    }

    pub(super) fn remove(&mut self, waiter: WaiterId) {
        match self.waits.remove(&waiter) {
            Some(Wait::Key { key }) => take(&mut self.keys, &key, waiter),
            Some(Wait::Changes { prefix, .. }) => take(&mut self.prefixes, &prefix, waiter),
            Some(Wait::Events { name, .. }) => take(&mut self.names, &name, waiter),
            None => {}
        }
    }

    pub(super) fn wait(&self, waiter: WaiterId) -> Option<&Wait> {
        self.waits.get(&waiter)
    }

    pub(super) fn on_put(&self, key: &str, affected: &mut BTreeSet<WaiterId>) {
        affected.extend(self.keys.get(key).into_iter().flatten());
    }

    pub(super) fn on_changed(&self, key: &str, affected: &mut BTreeSet<WaiterId>) {
        if self.prefixes.is_empty() {
            return;
        }
        // A key has few prefixes, but there may be thousands of waiters.
        let ends = key.char_indices().map(|(end, _)| end).chain([key.len()]);
        for end in ends {
            affected.extend(self.prefixes.get(&key[..end]).into_iter().flatten());
        }
    }

    pub(super) fn on_emitted(&self, name: &str, affected: &mut BTreeSet<WaiterId>) {
        for name in [None, Some(name.to_owned())] {
            affected.extend(self.names.get(&name).into_iter().flatten());
        }
    }
}

fn take<K: Ord>(index: &mut Index<K>, key: &K, waiter: WaiterId) {
    if let Some(waiters) = index.get_mut(key) {
        waiters.remove(&waiter);
        if waiters.is_empty() {
            index.remove(key);
        }
    }
}
