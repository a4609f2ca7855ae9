//! Watches: links notified of every change of a key. Used by torch 2.0 and earlier.

use std::{collections::BTreeMap, fmt};

use super::key_table::{ENTRY_OVERHEAD, Key};
use crate::{Effects, LinkId, Rejection};

/// Kind of a change, as encoded in a notification.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum KeyChange {
    Updated = 0,
    Created = 1,
    Deleted = 2,
}

/// All watches of a store.
pub(super) struct Watches {
    /// In order of registration: link ids differ after a failover.
    by_key: BTreeMap<Key, Vec<LinkId>>,
    bytes: usize,
    bytes_max: usize,
}

impl Watches {
    pub(super) fn new(bytes_max: usize) -> Watches {
        Watches { by_key: BTreeMap::new(), bytes: 0, bytes_max }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if the key is watched.
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.by_key.contains_key(key)
    }

    pub(super) fn begin(&mut self, link: LinkId, key: &[u8]) -> Result<(), Rejection> {
        let cost = ENTRY_OVERHEAD + key.len();
        if cost > self.bytes_max.saturating_sub(self.bytes) {
            return Err(Rejection::new(format!(
                "too many watches: `{}` bytes in use, `{}` allowed",
                self.bytes, self.bytes_max
            )));
        }
        let links = self.by_key.entry(key.into()).or_default();
        if !links.contains(&link) {
            links.push(link);
            self.bytes += cost;
        }
        Ok(())
    }

    /// Removes the watches of a link. Returns true if there were any.
    pub(super) fn end(&mut self, link: LinkId) -> bool {
        let before = self.bytes;
        let bytes = &mut self.bytes;
        self.by_key.retain(|key, links| {
            let watched = links.len();
            links.retain(|other| *other != link);
            *bytes -= (watched - links.len()) * (ENTRY_OVERHEAD + key.len());
            !links.is_empty()
        });
        self.bytes < before
    }

    /// Notifies the watchers of a changed key. Returns the links that were not notified because the notifications of
    /// one change would exceed `bytes_max`. The caller must close them.
    pub(super) fn notify(
        &self,
        key: &[u8],
        (before, after): (Option<&[u8]>, Option<&[u8]>),
        bytes_max: usize,
        effects: &mut Effects,
    ) -> Vec<LinkId> {
        let Some(links) = self.by_key.get(key) else {
            return Vec::new();
        };
        let change = match (before, after) {
            (_, None) => KeyChange::Deleted,
            (None, Some(_)) => KeyChange::Created,
            (Some(_), Some(_)) => KeyChange::Updated,
        };
        let mut message = vec![change as u8];
        for part in [key, before.unwrap_or_default(), after.unwrap_or_default()] {
            message.extend((part.len() as u64).to_le_bytes());
            message.extend(part);
        }
        let count = bytes_max / message.len();
        for link in links.iter().take(count) {
            effects.send(*link, message.clone());
        }
        links.iter().skip(count).copied().collect()
    }
}

impl fmt::Debug for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watches")
            .field("keys", &self.by_key.len())
            .field("bytes", &self.bytes)
            .finish()
    }
}
