//! What is stored: values and queues, and how much memory they take.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
};

use crate::Rejection;

pub(super) type Key = Arc<[u8]>;

/// What an entry takes beside its bytes, more or less: nodes of the map, lengths, what the allocator adds.
pub(super) const ENTRY: usize = 128;

/// Values by key, and queues by theirs: a name can be both.
pub(super) struct KeyTable {
    values: BTreeMap<Key, Vec<u8>>,
    /// None is empty.
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

    /// Whether whoever waits for that key may go on.
    pub(super) fn holds(&self, key: &[u8]) -> bool {
        self.values.contains_key(key) || self.queues.contains_key(key)
    }

    /// How many values there are.
    pub(super) fn count(&self) -> usize {
        self.values.len()
    }

    pub(super) fn list(&self) -> impl Iterator<Item = &[u8]> {
        self.values.keys().map(AsRef::as_ref)
    }

    /// What one more value can take at most.
    pub(super) fn cost(key: &[u8], value: &[u8]) -> usize {
        ENTRY + key.len() + value.len()
    }

    /// Whether so much more has room.
    pub(super) fn room_for(&self, more: usize) -> Result<(), Rejection> {
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
            Some(before) => self.room_for(value.len().saturating_sub(before))?,
            None => self.room_for(KeyTable::cost(key, value))?,
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
        self.room_for(KeyTable::cost(key, more))?;
        match self.values.get_mut(key) {
            Some(value) => {
                self.bytes += more.len();
                value.extend_from_slice(more);
                Ok(())
            }
            None => self.set(key, more),
        }
    }

    /// Whether it was there.
    pub(super) fn delete(&mut self, key: &[u8]) -> bool {
        let Some(value) = self.values.remove(key) else {
            return false;
        };
        self.bytes -= KeyTable::cost(key, &value);
        true
    }

    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), Rejection> {
        self.room_for(KeyTable::cost(key, value))?;
        self.bytes += KeyTable::cost(key, value);
        match self.queues.get_mut(key) {
            Some(queue) => queue.push_back(value.to_vec()),
            None => {
                self.queues.insert(key.into(), VecDeque::from([value.to_vec()]));
            }
        }
        Ok(())
    }

    /// How many are in a queue.
    pub(super) fn length(&self, key: &[u8]) -> usize {
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

/// Counts only: values may be secrets, and are many.
impl fmt::Debug for KeyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyTable")
            .field("values", &self.values.len())
            .field("queues", &self.queues.len())
            .field("bytes", &self.bytes)
            .finish()
    }
}

/// Adds to a number that is kept as text, as C++'s `stoll` reads it: white space, a sign, digits, and whatever follows.
pub(super) fn sum(text: &[u8], delta: i64) -> Option<i64> {
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
        // Below zero there is one number more than above.
        number = number.checked_mul(10)?.checked_add(if minus { -digit } else { digit })?;
    }
    Some(number.wrapping_add(delta))
}
