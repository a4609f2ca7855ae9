//! Answers in the order in which they were given, whatever they overtake on their way.

use std::collections::BTreeMap;

/// Answers that wait for one before them. More than two calls could ever bring are a master that cannot count.
const EARLY_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct Turns<T> {
    heard: u64,
    early: BTreeMap<u64, T>,
}

impl<T> Default for Turns<T> {
    fn default() -> Turns<T> {
        Turns { heard: 0, early: BTreeMap::new() }
    }
}

impl<T> Turns<T> {
    /// An answer of that number, from 1, has come: what can be heard now. Nothing more can be if it is `None`.
    pub(super) fn take(&mut self, number: u64, answer: T) -> Option<Vec<T>> {
        let known = number <= self.heard || self.early.insert(number, answer).is_some();
        if known || self.early.len() > EARLY_MAX {
            return None;
        }
        let mut now = Vec::new();
        while let Some(next) = self.early.remove(&(self.heard + 1)) {
            self.heard += 1;
            now.push(next);
        }
        Some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_overtakes_another_waits_for_it() {
        let mut turns = Turns::default();
        assert_eq!(turns.take(1, 'a'), Some(vec!['a']));
        assert_eq!(turns.take(3, 'c'), Some(vec![]));
        assert_eq!(turns.take(4, 'd'), Some(vec![]));
        assert_eq!(turns.take(2, 'b'), Some(vec!['b', 'c', 'd']));
        assert_eq!(turns.take(5, 'e'), Some(vec!['e']));
        assert_eq!(turns.take(5, 'e'), None, "no number is given twice");
        let mut endless = (2..).map_while(|number| turns.take(number + 5, 'x'));
        assert!(endless.by_ref().take(EARLY_MAX + 1).count() <= EARLY_MAX);
    }
}
