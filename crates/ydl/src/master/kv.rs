//! Key-value store and events of a job's own code.
//!
//! A pure data structure without clock or I/O: the master's event loop applies operations and learns which
//! waiters to wake. The same operations give the same store, so the journal can replay it.
//!
//! A watcher receives the latest change of each key, not every change. The store remembers the last change
//! of each key and the last few thousand deletions.

mod error;
mod events;
mod op;
mod transaction;
mod waiters;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use ydl_proto::kv::{Blob, Change, Changed, Changes, Entries, Entry, Events};

pub use error::KvError;
pub use op::{Applied, Done, OnlyIf, Op, WaitResult, Wakeup};
pub use waiters::{Wait, WaiterId};

use error::{check_key, check_name, check_prefix};
use events::EventLog;
use waiters::Waiters;

pub const KEY_BYTES_MAX: usize = 512;
pub const VALUE_BYTES_MAX: usize = 1 << 20;
pub(crate) const KEYS_MAX: usize = 10_000;
/// Maximum size of all keys and values.
pub(crate) const STORE_BYTES_MAX: usize = 64 << 20;
/// Maximum number of conditions and steps of a transaction.
pub(crate) const STEPS_MAX: usize = 1_000;
/// Maximum number of entries that the steps of a transaction read or delete: every key of the store once.
pub(crate) const TRANSACTION_ENTRIES_MAX: usize = KEYS_MAX;
/// Maximum size of the keys and values that a transaction returns.
pub(crate) const TRANSACTION_BYTES_MAX: usize = 16 << 20;
pub(crate) const WAITERS_MAX: usize = 10_000;
pub const NAME_BYTES_MAX: usize = 128;
pub(crate) const EVENT_BYTES_MAX: usize = 64 << 10;
pub(crate) const EVENTS_MAX: usize = 10_000;
/// Maximum size of the data of all events.
pub const HISTORY_BYTES_MAX: usize = 16 << 20;
/// Maximum number of tombstones: deletions that watchers can still receive.
pub(crate) const TOMBSTONES_MAX: usize = 4096;

/// Maximum number of entries, changes or events in one response.
pub(crate) const PAGE_MAX: usize = 1000;
/// A response ends after the item with which its values reach this size.
pub const PAGE_BYTES_MAX: usize = 4 << 20;

/// Key, shared between the maps below.
type Key = Arc<str>;

#[derive(Debug)]
struct StoredValue {
    value: Blob,
    revision: u64,
    owner: Option<String>,
}

#[derive(Debug, Default)]
pub struct KvStore {
    slots: BTreeMap<Key, StoredValue>,
    /// Size of all keys and values in `slots`.
    bytes: usize,
    owned: BTreeMap<String, BTreeSet<Key>>,
    /// Revision of the last change; each change has its own.
    revision: u64,
    /// Last change of every key in `slots` and `tombstones`.
    last: BTreeMap<u64, Key>,
    /// Deletion revisions of keys that are not in `slots`.
    tombstones: BTreeMap<Key, u64>,
    /// Revisions in `tombstones`, to find the oldest.
    tombstone_revisions: BTreeSet<u64>,
    /// Deletions up to this revision may have been dropped.
    dropped_until: u64,
    events: EventLog,
    waiters: Waiters,
}

impl KvStore {
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies `op` as a whole or not at all.
    pub fn apply(&mut self, op: Op) -> Result<Applied, KvError> {
        let mut affected = BTreeSet::new();
        let done = match op {
            Op::Put { key, value, owner, only_if } => {
                self.put(&key, value, owner, only_if)?;
                self.waiters.on_changed(&key, &mut affected);
                self.waiters.on_put(&key, &mut affected);
                Done::Changed(Changed { revision: self.revision, keys: 1 })
            }
            Op::Delete { key } => {
                check_key(&key)?;
                self.delete(vec![key.into()], &mut affected)
            }
            Op::DeletePrefix { prefix } => {
                check_prefix(&prefix)?;
                let keys = self.below(&prefix, None).map(|(key, _)| key.clone()).collect();
                self.delete(keys, &mut affected)
            }
            Op::Transact(transaction) => {
                Done::Transacted(self.transact(transaction, &mut affected)?)
            }
            Op::OwnerGone { container } => {
                let keys = self.owned.get(&container).into_iter().flatten().cloned().collect();
                self.delete(keys, &mut affected)
            }
            Op::Emit { name, data, by } => {
                check_name(&name)?;
                self.waiters.on_emitted(&name, &mut affected);
                Done::Emitted(self.events.push(name, data, by)?)
            }
        };
        Ok(Applied { done, wakeups: self.wake(affected) })
    }

    fn put(
        &mut self,
        key: &str,
        value: Blob,
        owner: Option<String>,
        only_if: Option<OnlyIf>,
    ) -> Result<(), KvError> {
        check_key(key)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(KvError::ValueTooLong { key: key.into(), length: value.len() });
        }
        let old = self.slots.get_key_value(key);
        let found = old.map(|(_, slot)| slot.revision);
        let holds = match only_if {
            None => true,
            Some(OnlyIf::Absent) => found.is_none(),
            Some(OnlyIf::Revision(wanted)) => found == Some(wanted),
        };
        if !holds {
            return Err(KvError::Changed { key: key.into(), found });
        }
        if found.is_none() && self.slots.len() >= KEYS_MAX {
            return Err(KvError::TooManyKeys);
        }
        let freed = old.map_or(0, |(key, slot)| key.len() + slot.value.len());
        let bytes = self.bytes - freed + key.len() + value.len();
        if bytes > STORE_BYTES_MAX {
            return Err(KvError::Full);
        }

        let key: Key = old.map_or_else(|| key.into(), |(key, _)| key.clone());
        self.unlink(&key);
        self.bytes = bytes;
        self.revision += 1;
        self.last.insert(self.revision, key.clone());
        if let Some(owner) = &owner {
            self.owned.entry(owner.clone()).or_default().insert(key.clone());
        }
        self.slots.insert(key, StoredValue { value, revision: self.revision, owner });
        Ok(())
    }

    fn delete(&mut self, keys: Vec<Key>, affected: &mut BTreeSet<WaiterId>) -> Done {
        let mut count = 0;
        for key in keys {
            let Some(slot) = self.slots.get(&key) else {
                continue;
            };
            self.bytes -= key.len() + slot.value.len();
            self.unlink(&key);
            self.slots.remove(&key);
            self.revision += 1;
            self.last.insert(self.revision, key.clone());
            self.waiters.on_changed(&key, affected);
            self.tombstones.insert(key, self.revision);
            self.tombstone_revisions.insert(self.revision);
            count += 1;
        }
        while self.tombstone_revisions.len() > TOMBSTONES_MAX {
            self.drop_oldest_tombstone();
        }
        Done::Changed(Changed { revision: self.revision, keys: count })
    }

    /// Removes the key's last change and owner from the indexes.
    fn unlink(&mut self, key: &Key) {
        if let Some(slot) = self.slots.get(key) {
            self.last.remove(&slot.revision);
            if let Some(owner) = &slot.owner
                && let Some(keys) = self.owned.get_mut(owner)
            {
                keys.remove(key);
                if keys.is_empty() {
                    self.owned.remove(owner);
                }
            }
        }
        if let Some(revision) = self.tombstones.remove(key) {
            self.last.remove(&revision);
            self.tombstone_revisions.remove(&revision);
        }
    }

    fn drop_oldest_tombstone(&mut self) {
        if let Some(revision) = self.tombstone_revisions.pop_first() {
            self.dropped_until = revision;
            if let Some(key) = self.last.remove(&revision) {
                self.tombstones.remove(&key);
            }
        }
    }

    /// Returns the current revision.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn entry(&self, key: &str) -> Option<Entry> {
        self.slots.get_key_value(key).map(|(key, slot)| entry(key, slot))
    }

    /// Returns the entries below `prefix` with keys after `after`.
    pub fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Entries {
        let mut page = Page::new(limit);
        let mut entries = Vec::new();
        let mut more = false;
        for (key, slot) in self.below(prefix, after) {
            more = page.is_full();
            if more {
                break;
            }
            page.add(slot.value.len());
            entries.push(entry(key, slot));
        }
        Entries { revision: self.revision, entries, more }
    }

    /// Returns the changes below `prefix` since the revision `after`.
    pub fn changes(&self, prefix: &str, after: u64, limit: usize) -> Changes {
        // A revision from the future belongs to a store that was lost.
        if after < self.dropped_until || after > self.revision {
            return Changes::Resync { revision: self.revision };
        }
        let mut page = Page::new(limit);
        let mut changes = Vec::new();
        let mut revision = after;
        let since = (Bound::Excluded(after), Bound::Unbounded);
        for (&at, key) in self.last.range(since).filter(|(_, key)| key.starts_with(prefix)) {
            if page.is_full() {
                return Changes::Current { revision, changes };
            }
            revision = at;
            match self.slots.get(key) {
                Some(slot) => {
                    page.add(slot.value.len());
                    changes.push(Change::Put(entry(key, slot)));
                }
                None => {
                    page.add(0);
                    changes.push(Change::Deleted { key: key.to_string(), revision: at });
                }
            }
        }
        Changes::Current { revision: self.revision, changes }
    }

    /// Returns the events after the sequence number `after`, optionally of one name.
    pub fn events(&self, after: u64, name: Option<&str>, limit: usize) -> Events {
        self.events.since(after, name, Page::new(limit))
    }

    /// Returns the result if it is available. Otherwise a later [`KvStore::apply`] wakes `waiter`. The caller
    /// ends a wait early with [`KvStore::forget`].
    pub fn wait(
        &mut self,
        waiter: WaiterId,
        mut wait: Wait,
    ) -> Result<Option<WaitResult>, KvError> {
        match &wait {
            Wait::Key { key } => check_key(key)?,
            Wait::Changes { prefix, .. } => check_prefix(prefix)?,
            Wait::Events { name, .. } => name.as_deref().map_or(Ok(()), check_name)?,
        }
        if let Some(found) = self.found(&wait) {
            return Ok(Some(found));
        }
        // Everything so far was checked, so a wakeup need not check it again.
        match &mut wait {
            Wait::Changes { after, .. } => *after = self.revision,
            Wait::Key { .. } | Wait::Events { .. } => {}
        }
        self.waiters.add(waiter, wait)?;
        Ok(None)
    }

    pub fn forget(&mut self, waiter: WaiterId) {
        self.waiters.remove(waiter);
    }

    fn found(&self, wait: &Wait) -> Option<WaitResult> {
        match wait {
            Wait::Key { key } => self.entry(key).map(WaitResult::Entry),
            Wait::Changes { prefix, after } => match self.changes(prefix, *after, PAGE_MAX) {
                Changes::Current { changes, .. } if changes.is_empty() => None,
                changes => Some(WaitResult::Changes(changes)),
            },
            Wait::Events { after, name } => {
                let events = self.events(*after, name.as_deref(), PAGE_MAX);
                (!events.events.is_empty()).then_some(WaitResult::Events(events))
            }
        }
    }

    fn wake(&mut self, affected: BTreeSet<WaiterId>) -> Vec<Wakeup> {
        let mut wakeups = Vec::new();
        for waiter in affected {
            let Some(found) = self.waiters.wait(waiter).and_then(|wait| self.found(wait)) else {
                continue;
            };
            self.waiters.remove(waiter);
            wakeups.push(Wakeup { waiter, result: found });
        }
        wakeups
    }

    fn below<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&'a Key, &'a StoredValue)> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        self.slots
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(prefix))
    }
}

fn entry(key: &Key, slot: &StoredValue) -> Entry {
    Entry {
        key: key.to_string(),
        value: slot.value.clone(),
        revision: slot.revision,
        owner: slot.owner.clone(),
    }
}

/// Remaining capacity of a response.
#[derive(Debug)]
struct Page {
    items: usize,
    bytes: usize,
}

impl Page {
    fn new(limit: usize) -> Self {
        Self { items: limit.clamp(1, PAGE_MAX), bytes: PAGE_BYTES_MAX }
    }

    fn is_full(&self) -> bool {
        self.items == 0 || self.bytes == 0
    }

    fn add(&mut self, bytes: usize) {
        self.items -= 1;
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests;
