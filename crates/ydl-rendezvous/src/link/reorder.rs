//! Restores the order of numbered items.

use std::collections::BTreeMap;

/// Maximum number of items buffered ahead of a missing one. Two concurrent calls cannot exceed it unless the sender
/// misnumbers its items.
const MAX_BUFFERED: usize = 1024;

/// Buffer that delivers items in the order of their numbers, starting at 1.
#[derive(Debug)]
pub struct ReorderBuffer<T> {
    delivered: u64,
    buffered: BTreeMap<u64, T>,
}

impl<T> Default for ReorderBuffer<T> {
    fn default() -> ReorderBuffer<T> {
        ReorderBuffer { delivered: 0, buffered: BTreeMap::new() }
    }
}

impl<T> ReorderBuffer<T> {
    /// Adds an item and returns the items that are now in order. Returns `None` for a duplicate number or a full
    /// buffer; the stream cannot continue then.
    pub fn insert(&mut self, number: u64, item: T) -> Option<Vec<T>> {
        let duplicate = number <= self.delivered || self.buffered.insert(number, item).is_some();
        if duplicate || self.buffered.len() > MAX_BUFFERED {
            return None;
        }
        let mut ready = Vec::new();
        while let Some(next) = self.buffered.remove(&(self.delivered + 1)) {
            self.delivered += 1;
            ready.push(next);
        }
        Some(ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_early_item_is_buffered_until_its_predecessors_arrive() {
        let mut buffer = ReorderBuffer::default();
        assert_eq!(buffer.insert(1, 'a'), Some(vec!['a']));
        assert_eq!(buffer.insert(3, 'c'), Some(vec![]));
        assert_eq!(buffer.insert(4, 'd'), Some(vec![]));
        assert_eq!(buffer.insert(2, 'b'), Some(vec!['b', 'c', 'd']));
        assert_eq!(buffer.insert(5, 'e'), Some(vec!['e']));
        assert_eq!(buffer.insert(5, 'e'), None, "a number is used once");
        let mut endless = (2..).map_while(|number| buffer.insert(number + 5, 'x'));
        assert!(endless.by_ref().take(MAX_BUFFERED + 1).count() <= MAX_BUFFERED);
    }
}
