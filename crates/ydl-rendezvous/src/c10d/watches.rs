//! Who is told of every change of a key: torch 2.0 and earlier could ask for that.

use std::{collections::BTreeMap, fmt};

use super::key_table::{ENTRY, Key};
use crate::{Effects, LinkId, Rejection};

/// A key's change, as watchers are told it.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum KeyChange {
    Updated = 0,
    Created = 1,
    Deleted = 2,
}

/// All watches of a store.
pub(super) struct Watches {
    /// First come first: the numbers of links are others after a master's death.
    of: BTreeMap<Key, Vec<LinkId>>,
    bytes: usize,
    bytes_max: usize,
}

impl Watches {
    pub(super) fn new(bytes_max: usize) -> Watches {
        Watches { of: BTreeMap::new(), bytes: 0, bytes_max }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether anybody is to be told.
    pub(super) fn any(&self, key: &[u8]) -> bool {
        self.of.contains_key(key)
    }

    pub(super) fn begin(&mut self, link: LinkId, key: &[u8]) -> Result<(), Rejection> {
        let cost = ENTRY + key.len();
        if cost > self.bytes_max.saturating_sub(self.bytes) {
            return Err(Rejection::new(format!(
                "too many watches: `{}` bytes in use, `{}` allowed",
                self.bytes, self.bytes_max
            )));
        }
        let links = self.of.entry(key.into()).or_default();
        if !links.contains(&link) {
            links.push(link);
            self.bytes += cost;
        }
        Ok(())
    }

    /// A link has ended: whether it watched anything.
    pub(super) fn end(&mut self, link: LinkId) -> bool {
        let before = self.bytes;
        let bytes = &mut self.bytes;
        self.of.retain(|key, links| {
            let watched = links.len();
            links.retain(|of| *of != link);
            *bytes -= (watched - links.len()) * (ENTRY + key.len());
            !links.is_empty()
        });
        self.bytes < before
    }

    /// A key has changed: from what, to what. Whoever could not be told, because all that is said of one change would be
    /// more than so many bytes, must not be left believing that nothing has.
    pub(super) fn tell(
        &self,
        key: &[u8],
        (before, after): (Option<&[u8]>, Option<&[u8]>),
        bytes_max: usize,
        effects: &mut Effects,
    ) -> Vec<LinkId> {
        let Some(links) = self.of.get(key) else {
            return Vec::new();
        };
        let change = match (before, after) {
            (_, None) => KeyChange::Deleted,
            (None, Some(_)) => KeyChange::Created,
            (Some(_), Some(_)) => KeyChange::Updated,
        };
        let mut told = vec![change as u8];
        for part in [key, before.unwrap_or_default(), after.unwrap_or_default()] {
            told.extend((part.len() as u64).to_le_bytes());
            told.extend(part);
        }
        let most = bytes_max / told.len();
        for link in links.iter().take(most) {
            effects.send(*link, told.clone());
        }
        links.iter().skip(most).copied().collect()
    }
}

impl fmt::Debug for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watches").field("keys", &self.of.len()).field("bytes", &self.bytes).finish()
    }
}
