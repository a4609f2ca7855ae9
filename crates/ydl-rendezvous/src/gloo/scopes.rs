//! Storage of values by scope and key.
//!
//! A scope of the world (`World::participants`) is emptied when its last participant has deleted its key, so that the
//! scope can be used again. The participants of any other scope are unknown, so its keys are deleted one at a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::world::parse_rank;
use crate::Rejection;

/// Approximate overhead of an entry.
const ENTRY_OVERHEAD: usize = 128;

#[derive(Default)]
struct Scope {
    values: BTreeMap<String, Vec<u8>>,
    /// Participants that are done.
    done: BTreeSet<u32>,
}

impl Scope {
    fn is_empty(&self) -> bool {
        self.values.is_empty() && self.done.is_empty()
    }
}

pub(super) struct Scopes {
    scopes: BTreeMap<String, Scope>,
    bytes: usize,
    bytes_max: usize,
}

fn cost(scope: &str, key: &str, value: usize) -> usize {
    2 * ENTRY_OVERHEAD + scope.len() + key.len() + value
}

impl Scopes {
    pub(super) fn new(bytes_max: usize) -> Scopes {
        Scopes { scopes: BTreeMap::new(), bytes: 0, bytes_max }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.scopes.keys().map(String::as_str)
    }

    pub(super) fn value(&self, scope: &str, key: &str) -> Option<&[u8]> {
        self.scopes.get(scope)?.values.get(key).map(Vec::as_slice)
    }

    pub(super) fn put(&mut self, scope: &str, key: &str, value: &[u8]) -> Result<(), Rejection> {
        let before = self.value(scope, key).map(<[u8]>::len);
        let before = before.map_or(0, |before| cost(scope, key, before));
        let after = cost(scope, key, value.len());
        if (self.bytes - before).saturating_add(after) > self.bytes_max {
            return Err(Rejection::new(format!(
                "store is full: `{}` bytes stored, `{}` allowed",
                self.bytes, self.bytes_max
            )));
        }
        self.bytes = self.bytes - before + after;
        let scope = self.scopes.entry(scope.to_owned()).or_default();
        scope.values.insert(key.to_owned(), value.to_vec());
        Ok(())
    }

    /// Handles the deletion of a key. In a scope with participants it marks one as done; in another scope it removes
    /// the key. Returns true if anything changed.
    pub(super) fn delete(&mut self, name: &str, key: &str, participants: usize) -> bool {
        let Some(scope) = self.scopes.get_mut(name) else {
            return false;
        };
        let changed = match parse_rank(key) {
            Some(member) if (member as usize) < participants => scope.done.insert(member),
            _ if participants > 0 => false,
            _ => match scope.values.remove(key) {
                Some(value) => {
                    self.bytes -= cost(name, key, value.len());
                    true
                }
                None => false,
            },
        };
        if participants > 0 && scope.done.len() == participants {
            let values = std::mem::take(scope).values.into_iter();
            self.bytes -= values.map(|(key, value)| cost(name, &key, value.len())).sum::<usize>();
        }
        if scope.is_empty() {
            self.scopes.remove(name);
        }
        changed
    }
}

/// Shows counts only: values may be secret.
impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scopes")
            .field("scopes", &self.scopes.len())
            .field("bytes", &self.bytes)
            .finish()
    }
}
