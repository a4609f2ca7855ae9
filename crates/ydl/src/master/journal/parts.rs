//! Files of a journal, and the records of each that count.
//!
//! Every master writes its own files: `journal.<attempt>` (of the application, not of a task) and, after a failed
//! write or at a size limit, `journal.<attempt>.<part>`. Each begins with the number of records before it. That
//! resolves overlaps: a file with `records_before: 6` means that its master read only six records, so further
//! records of earlier files do not count.

use serde::{Deserialize, Serialize};

/// File of a journal, ordered as it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct JournalPart {
    pub(super) attempt: u32,
    pub(super) number: u32,
}

impl JournalPart {
    /// Parses the name of a journal file.
    pub(super) fn parse(name: &str) -> Option<JournalPart> {
        let rest = name.strip_prefix("journal.")?;
        let (attempt, number) = rest.split_once('.').unwrap_or((rest, "0"));
        Some(JournalPart { attempt: attempt.parse().ok()?, number: number.parse().ok()? })
    }
}

/// First record of a part.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PartHeader {
    /// Number of records before this part.
    pub(super) records_before: u64,
}

/// Returns how many records of each part count, from the number of records before each part. A part without a
/// beginning has none.
pub(super) fn effective_records(beginnings: &[Option<u64>]) -> Vec<u64> {
    let mut end = u64::MAX;
    let mut effective_records: Vec<u64> = beginnings
        .iter()
        .rev()
        .map(|before| match before {
            Some(before) => {
                let count = end.saturating_sub(*before);
                end = end.min(*before);
                count
            }
            None => 0,
        })
        .collect();
    effective_records.reverse();
    effective_records
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_ordered_by_attempt_and_number() {
        let part = |attempt, number| Some(JournalPart { attempt, number });
        assert_eq!(JournalPart::parse("journal.3"), part(3, 0));
        assert_eq!(JournalPart::parse("journal.3.12"), part(3, 12));
        for other in ["journal", "journal.", "journal.x", "journal.1.x", "result.json"] {
            assert_eq!(JournalPart::parse(other), None, "{other}");
        }
        assert!(part(2, 9) < part(3, 0) && part(3, 9) < part(3, 10));
    }

    #[test]
    fn entries_repeated_by_a_later_part_are_ignored_before_it() {
        let all = u64::MAX;
        assert_eq!(effective_records(&[Some(0)]), [all]);
        assert_eq!(effective_records(&[Some(0), Some(5), Some(5)]), [5, 0, all - 5]);
        // A fenced master continued to write; its successor had read five records.
        assert_eq!(effective_records(&[Some(0), Some(7), Some(5)]), [5, 0, all - 5]);
        assert_eq!(effective_records(&[Some(0), None, Some(4), None]), [4, 0, all - 4, 0]);
        assert_eq!(effective_records(&[]), [0; 0]);
    }
}
