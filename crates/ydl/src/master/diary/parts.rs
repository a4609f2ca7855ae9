//! Which files of a job's directory make up its diary, and what of each counts.
//!
//! Every master writes files of its own, `journal.<attempt>` and, after one that broke, `journal.<attempt>.<part>`. Each
//! begins with how many entries come before it. That decides what counts where two files have the same entry: a file
//! that begins with entry 7 means that only six were read by whoever began it, whatever an earlier one holds beyond.

use serde::{Deserialize, Serialize};

/// A file of a diary, in the order in which they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    pub(super) attempt: u32,
    pub(super) number: u32,
}

impl Part {
    /// The part of that name, if it is one.
    pub(super) fn parse(name: &str) -> Option<Part> {
        let rest = name.strip_prefix("journal.")?;
        let (attempt, number) = rest.split_once('.').unwrap_or((rest, "0"));
        Some(Part { attempt: attempt.parse().ok()?, number: number.parse().ok()? })
    }
}

/// The first record of a part.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Beginning {
    /// So many entries come before this part.
    pub(super) entries_before: u64,
}

/// How many entries of each part count, for parts that begin after so many entries. Those without a beginning have no
/// entries.
pub(super) fn counted(beginnings: &[Option<u64>]) -> Vec<u64> {
    let mut end = u64::MAX;
    let mut counted: Vec<u64> = beginnings
        .iter()
        .rev()
        .map(|before| match before {
            Some(before) => {
                let room = end.saturating_sub(*before);
                end = end.min(*before);
                room
            }
            None => 0,
        })
        .collect();
    counted.reverse();
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_in_the_order_in_which_they_were_begun() {
        let part = |attempt, number| Some(Part { attempt, number });
        assert_eq!(Part::parse("journal.3"), part(3, 0));
        assert_eq!(Part::parse("journal.3.12"), part(3, 12));
        for other in ["journal", "journal.", "journal.x", "journal.1.x", "result.json"] {
            assert_eq!(Part::parse(other), None, "{other}");
        }
        assert!(part(2, 9) < part(3, 0) && part(3, 9) < part(3, 10));
    }

    #[test]
    fn what_a_later_part_begins_again_does_not_count_before_it() {
        let all = u64::MAX;
        assert_eq!(counted(&[Some(0)]), [all]);
        assert_eq!(counted(&[Some(0), Some(5), Some(5)]), [5, 0, all - 5]);
        // A master that was replaced wrote on; the one after it had read five entries.
        assert_eq!(counted(&[Some(0), Some(7), Some(5)]), [5, 0, all - 5]);
        assert_eq!(counted(&[Some(0), None, Some(4), None]), [4, 0, all - 4, 0]);
        assert_eq!(counted(&[]), [0; 0]);
    }
}
