//! What is stored: values by scope and key.
//!
//! A scope in which the members of a world meet is emptied when the last of them has said that it is done with it: so
//! they can meet there once more. Of any other scope nobody knows who belongs to it, and its keys go one by one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::world::number;
use crate::Rejection;

/// What an entry takes beside its bytes, more or less.
const ENTRY: usize = 128;

#[derive(Default)]
struct Scope {
    values: BTreeMap<String, Vec<u8>>,
    /// Members who are done with it.
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
    2 * ENTRY + scope.len() + key.len() + value
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

    /// Somebody is done with a scope in which so many meet, or with a key of another one: whether that changed anything.
    pub(super) fn done(&mut self, name: &str, key: &str, meeting: usize) -> bool {
        let Some(scope) = self.scopes.get_mut(name) else {
            return false;
        };
        let changed = match number(key) {
            Some(member) if (member as usize) < meeting => scope.done.insert(member),
            _ if meeting > 0 => false,
            _ => match scope.values.remove(key) {
                Some(value) => {
                    self.bytes -= cost(name, key, value.len());
                    true
                }
                None => false,
            },
        };
        if meeting > 0 && scope.done.len() == meeting {
            let values = std::mem::take(scope).values.into_iter();
            self.bytes -= values.map(|(key, value)| cost(name, &key, value.len())).sum::<usize>();
        }
        if scope.is_empty() {
            self.scopes.remove(name);
        }
        changed
    }
}

/// Counts only: what is stored is not for logs.
impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scopes")
            .field("scopes", &self.scopes.len())
            .field("bytes", &self.bytes)
            .finish()
    }
}
