//! Storage of values and queues, and its memory accounting.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
};

use crate::Rejection;

pub(super) type Key = Arc<[u8]>;

/// Approximate overhead of an entry: map nodes, lengths and allocator overhead.
pub(super) const ENTRY_OVERHEAD: usize = 128;

/// Values and queues by key. Both can have the same key.
pub(super) struct KeyTable {
    values: BTreeMap<Key, Vec<u8>>,
    /// Never contains an empty queue.
    queues: BTreeMap<Key, VecDeque<Vec<u8>>>,
    bytes: usize,
    bytes_max: usize,
}

impl KeyTable {
    pub(super) fn new(bytes_max: usize) -> KeyTable {
        KeyTable { values: BTreeMap::new(), queues: BTreeMap::new(), bytes: 0, bytes_max }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn value(&self, key: &[u8]) -> Option<&[u8]> {
        self.values.get(key).map(Vec::as_slice)
    }

    /// Returns true if a wait for the key is satisfied.
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.values.contains_key(key) || self.queues.contains_key(key)
    }

    /// Returns the number of values.
    pub(super) fn count(&self) -> usize {
        self.values.len()
    }

    pub(super) fn list(&self) -> impl Iterator<Item = &[u8]> {
        self.values.keys().map(AsRef::as_ref)
    }

    /// Returns the maximum memory for one more value.
    pub(super) fn cost(key: &[u8], value: &[u8]) -> usize {
        ENTRY_OVERHEAD + key.len() + value.len()
    }

    /// Fails if there is no memory for `more` bytes.
    pub(super) fn reserve(&self, more: usize) -> Result<(), Rejection> {
        if more <= self.bytes_max.saturating_sub(self.bytes) {
            return Ok(());
        }
        Err(Rejection::new(format!(
            "store is full: `{}` bytes stored, `{more}` requested, `{}` allowed",
            self.bytes, self.bytes_max
        )))
    }

    pub(super) fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Rejection> {
        let before = self.values.get(key).map(Vec::len);
        match before {
            Some(before) => self.reserve(value.len().saturating_sub(before))?,
            None => self.reserve(KeyTable::cost(key, value))?,
        }
        match self.values.get_mut(key) {
            Some(stored) => {
                self.bytes = self.bytes + value.len() - stored.len();
                *stored = value.to_vec();
            }
            None => {
                self.bytes += KeyTable::cost(key, value);
                self.values.insert(key.into(), value.to_vec());
            }
        }
        Ok(())
    }

    pub(super) fn append(&mut self, key: &[u8], more: &[u8]) -> Result<(), Rejection> {
        self.reserve(KeyTable::cost(key, more))?;
        match self.values.get_mut(key) {
            Some(value) => {
                self.bytes += more.len();
                value.extend_from_slice(more);
                Ok(())
            }
            None => self.set(key, more),
        }
    }

    /// Returns true if the key existed.
    pub(super) fn delete(&mut self, key: &[u8]) -> bool {
        let Some(value) = self.values.remove(key) else {
            return false;
        };
        self.bytes -= KeyTable::cost(key, &value);
        true
    }

    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), Rejection> {
        self.reserve(KeyTable::cost(key, value))?;
        self.bytes += KeyTable::cost(key, value);
        match self.queues.get_mut(key) {
            Some(queue) => queue.push_back(value.to_vec()),
            None => {
                self.queues.insert(key.into(), VecDeque::from([value.to_vec()]));
            }
        }
        Ok(())
    }

    /// Returns the length of a queue.
    pub(super) fn queue_len(&self, key: &[u8]) -> usize {
        self.queues.get(key).map_or(0, VecDeque::len)
    }

    pub(super) fn pop(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let queue = self.queues.get_mut(key)?;
        let value = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(key);
        }
        self.bytes -= KeyTable::cost(key, &value);
        Some(value)
    }
}

/// Shows counts only: values may be secret, and there may be many.
impl fmt::Debug for KeyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyTable")
            .field("values", &self.values.len())
            .field("queues", &self.queues.len())
            .field("bytes", &self.bytes)
            .finish()
    }
}

/// Adds to a number stored as text. Parses it like C++'s `stoll`: white space, a sign, digits; ignores the rest.
pub(super) fn add(text: &[u8], delta: i64) -> Option<i64> {
    let text = text.trim_ascii_start();
    let (minus, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    let mut number: i64 = 0;
    for digit in digits.get(..end).filter(|digits| !digits.is_empty())? {
        let digit = i64::from(digit - b'0');
        // The negative range has one more number.
        number = number.checked_mul(10)?.checked_add(if minus { -digit } else { digit })?;
    }
    Some(number.wrapping_add(delta))
}
