use super::super::format::{FRAME_BYTES, JournalTail, crc32c, scan};
use super::*;

struct JournalDir(tempfile::TempDir);

impl JournalDir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("journal")
    }

    /// Returns the bytes of a journal with these records.
    fn journal(&self, records: &[&[u8]]) -> Vec<u8> {
        let _ = std::fs::remove_file(self.path());
        let mut journal = FileJournal::create(&self.path()).unwrap();
        for record in records {
            journal.append(record).unwrap();
        }
        journal.flush().unwrap();
        std::fs::read(self.path()).unwrap()
    }

    fn records(&self) -> Result<(Vec<Vec<u8>>, JournalTail), JournalError> {
        let mut records = Vec::new();
        let file = File::open(self.path()).unwrap();
        let tail = scan(&self.path(), file, |record| records.push(record.to_vec()))?;
        Ok((records, tail))
    }

    /// Checks that `bytes` as a file give a prefix of `records`; returns its length and the tail.
    fn read(&self, bytes: &[u8], records: &[&[u8]]) -> Result<(usize, JournalTail), JournalError> {
        std::fs::write(self.path(), bytes).unwrap();
        let (read, tail) = self.records()?;
        assert!(read.len() <= records.len());
        for (got, wanted) in read.iter().zip(records) {
            assert_eq!(got, wanted);
        }
        Ok((read.len(), tail))
    }
}

fn records() -> [&'static [u8]; 4] {
    [b"one", &[0; 40], b"three is longer", b"4"]
}

#[test]
fn the_checksum_matches_the_reference_value() {
    assert_eq!(crc32c(&[b"123456789"]), 0xe306_9283);
    assert_eq!(crc32c(&[b"1234", b"", b"56789"]), 0xe306_9283);
}

#[test]
fn records_are_read_in_order_once_they_are_flushed() {
    let dir = JournalDir::new();
    let mut journal = FileJournal::create(&dir.path()).unwrap();
    for record in records() {
        journal.append(record).unwrap();
    }
    assert_eq!(dir.records().unwrap().0.len(), 0, "a record before the flush");
    journal.flush().unwrap();
    assert_eq!(journal.length(), dir.path().metadata().unwrap().len());
    let read = dir.records().unwrap();
    assert_eq!(read, (records().map(<[u8]>::to_vec).to_vec(), JournalTail::Whole));
}

#[test]
fn a_journal_truncated_at_any_byte_keeps_its_whole_records() {
    let dir = JournalDir::new();
    let bytes = dir.journal(&records());
    let mut ends = vec![HEADER_BYTES];
    for record in records() {
        ends.push(ends.last().unwrap() + FRAME_BYTES + record.len());
    }
    for cut in 0..bytes.len() {
        let whole = ends.iter().rposition(|end| *end <= cut);
        let torn = cut - whole.map_or(0, |whole| ends[whole]);
        let tail = match (whole, torn) {
            (Some(_), 0) => JournalTail::Whole,
            _ => JournalTail::Torn { bytes: torn as u64 },
        };
        let read = dir.read(&bytes[..cut], &records()).unwrap();
        assert_eq!(read, (whole.unwrap_or(0), tail), "cut at {cut}");
    }
}

#[test]
fn a_journal_with_any_byte_changed_returns_no_wrong_record() {
    let dir = JournalDir::new();
    let bytes = dir.journal(&records());
    let last = bytes.len() - FRAME_BYTES - 1;
    for position in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff, bytes[position], bytes[position] ^ 4] {
            let mut changed = bytes.clone();
            changed[position] ^= flip;
            if changed == bytes {
                continue;
            }
            match dir.read(&changed, &records()) {
                Ok(read) => {
                    let bytes = (bytes.len() - last) as u64;
                    assert!(position >= last, "byte {position}");
                    assert_eq!(read, (3, JournalTail::Torn { bytes }), "byte {position}");
                }
                Err(JournalError::NotAJournal { .. }) => assert!(position < 8, "byte {position}"),
                Err(JournalError::Damaged { offset, .. }) => {
                    assert!(offset <= position as u64 && position < last, "byte {position}");
                }
                Err(error) => panic!("byte {position}: {error}"),
            }
        }
    }
}

#[test]
fn damage_in_the_middle_is_reported_with_its_offset() {
    let dir = JournalDir::new();
    let mut bytes = dir.journal(&records());
    bytes[HEADER_BYTES + FRAME_BYTES] ^= 1;
    std::fs::write(dir.path(), &bytes).unwrap();
    let error = dir.records().unwrap_err();
    assert!(error.to_string().ends_with("is damaged at byte 24"), "{error}");
}

#[test]
fn zeroes_and_noise_after_the_last_record_are_a_torn_tail() {
    let dir = JournalDir::new();
    let bytes = dir.journal(&records());
    for tail in [vec![0; 5000], vec![0xff; 7], (0..5000_u32).map(|n| (n * n) as u8).collect()] {
        let read = dir.read(&[&bytes[..], &tail].concat(), &records()).unwrap();
        assert_eq!(read, (4, JournalTail::Torn { bytes: tail.len() as u64 }));
    }
}

#[test]
fn a_record_quoted_in_a_payload_is_not_read() {
    let dir = JournalDir::new();
    let quoted = dir.journal(&[b"evil"])[HEADER_BYTES..].to_vec();
    let record = quoted.repeat(3);
    let bytes = dir.journal(&[b"one", &record]);
    let read = dir.read(&bytes[..bytes.len() - 1], &[b"one", &record]).unwrap();
    assert_eq!(read.0, 1);
    assert!(matches!(read.1, JournalTail::Torn { .. }));
}

#[test]
fn a_record_of_another_journal_is_damage_or_a_torn_tail() {
    let dir = JournalDir::new();
    let other = dir.journal(&[b"one", b"two"]);
    let bytes = dir.journal(&[b"one"]);
    let mixed = [&bytes[..], &other[bytes.len()..]].concat();
    assert!(matches!(dir.read(&mixed, &[b"one"]).unwrap(), (1, JournalTail::Torn { .. })));
}

#[test]
fn a_file_of_another_kind_is_an_error_and_not_replaced() {
    let dir = JournalDir::new();
    for text in ["hello", "a file that is longer than a header is"] {
        std::fs::write(dir.path(), text).unwrap();
        let error = dir.records().unwrap_err();
        assert!(matches!(error, JournalError::NotAJournal { .. }), "{error}");
        let error = FileJournal::create(&dir.path()).unwrap_err();
        assert!(matches!(error, JournalError::Io { doing: "create", .. }), "{error}");
        assert_eq!(std::fs::read(dir.path()).unwrap(), text.as_bytes());
    }
}

#[test]
fn record_sizes_are_checked_and_large_batches_flush_on_their_own() {
    let dir = JournalDir::new();
    let mut journal = FileJournal::create(&dir.path()).unwrap();
    for length in [0, RECORD_BYTES_MAX + 1] {
        let error = journal.append(&vec![1; length]).unwrap_err();
        assert!(matches!(error, JournalError::Length { .. }), "{error}");
    }
    for _ in 0..3 {
        journal.append(&vec![1; BATCH_BYTES_MAX]).unwrap();
    }
    assert!(dir.path().metadata().unwrap().len() > 2 * BATCH_BYTES_MAX as u64);
    journal.flush().unwrap();
    assert_eq!(dir.records().unwrap().0.len(), 3);
}

#[test]
fn a_batch_that_failed_is_written_by_the_next_flush() {
    // The system's own full disk: every write to it fails with `no space left on device`.
    let dir = JournalDir::new();
    let mut journal = FileJournal::create(&dir.path()).unwrap();
    journal.append(b"one").unwrap();
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let good = std::mem::replace(&mut journal.file, full);
    let error = journal.flush().unwrap_err();
    assert!(matches!(error, JournalError::Io { doing: "write", .. }), "{error}");
    journal.append(b"two").unwrap();
    journal.file = good;
    journal.flush().unwrap();
    let (read, tail) = dir.records().unwrap();
    assert_eq!((read, tail), (vec![b"one".to_vec(), b"two".to_vec()], JournalTail::Whole));
}
