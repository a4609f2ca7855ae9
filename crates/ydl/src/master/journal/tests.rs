use super::format::crc32c;
use super::*;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("journal")
    }

    /// Returns the bytes of a journal with these records.
    fn journal(&self, records: &[&[u8]]) -> Vec<u8> {
        let _ = std::fs::remove_file(self.path());
        let mut journal = Journal::create(&self.path(), Sync::Sometime).unwrap();
        for record in records {
            journal.append(record).unwrap();
        }
        journal.flush().unwrap();
        std::fs::read(self.path()).unwrap()
    }

    /// Checks that `bytes` as a file give a prefix of `records`; returns its length and the tail.
    fn read(&self, bytes: &[u8], records: &[&[u8]]) -> Result<(usize, Tail), JournalError> {
        std::fs::write(self.path(), bytes).unwrap();
        let (read, tail) = Journal::read(&self.path())?;
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
fn the_checksum_is_the_known_one() {
    assert_eq!(crc32c(&[b"123456789"]), 0xe306_9283);
    assert_eq!(crc32c(&[b"1234", b"", b"56789"]), 0xe306_9283);
}

#[test]
fn what_was_appended_is_read_in_order_and_goes_on_after_reopening() {
    let folder = Folder::new();
    folder.journal(&records());
    let mut seen = Vec::new();
    let each = |record: &[u8]| seen.push(record.to_vec());
    let (mut journal, tail) = Journal::open_append(&folder.path(), Sync::EachFlush, each).unwrap();
    assert_eq!((seen, tail), (records().map(<[u8]>::to_vec).to_vec(), Tail::Whole));
    journal.append(b"five").unwrap();
    assert_eq!(Journal::read(&folder.path()).unwrap().0.len(), 4, "nothing before the flush");
    journal.flush().unwrap();
    assert_eq!(journal.length(), folder.path().metadata().unwrap().len());
    let (read, tail) = Journal::read(&folder.path()).unwrap();
    assert_eq!((read.len(), &read[4][..], tail), (5, &b"five"[..], Tail::Whole));
}

#[test]
fn a_journal_cut_at_any_byte_gives_its_whole_records_and_can_go_on() {
    let folder = Folder::new();
    let bytes = folder.journal(&records());
    let mut ends = vec![HEADER_BYTES];
    for record in records() {
        ends.push(ends.last().unwrap() + FRAME_BYTES + record.len());
    }
    for cut in 0..bytes.len() {
        let whole = ends.iter().rposition(|end| *end <= cut);
        let torn = cut - whole.map_or(0, |whole| ends[whole]);
        let tail = match (whole, torn) {
            (Some(_), 0) => Tail::Whole,
            _ => Tail::Torn { bytes: torn as u64 },
        };
        let read = folder.read(&bytes[..cut], &records()).unwrap();
        assert_eq!(read, (whole.unwrap_or(0), tail), "cut at {cut}");

        let (mut journal, again) =
            Journal::open_append(&folder.path(), Sync::Sometime, |_| ()).unwrap();
        assert_eq!(again, tail);
        journal.append(b"after").unwrap();
        journal.flush().unwrap();
        let (read, tail) = Journal::read(&folder.path()).unwrap();
        assert_eq!((read.len(), tail), (whole.unwrap_or(0) + 1, Tail::Whole), "cut at {cut}");
        assert_eq!(read.last().unwrap(), b"after");
    }
}

#[test]
fn a_journal_with_any_byte_changed_never_gives_a_wrong_record() {
    let folder = Folder::new();
    let bytes = folder.journal(&records());
    let last = bytes.len() - FRAME_BYTES - 1;
    for place in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff, bytes[place], bytes[place] ^ 4] {
            let mut changed = bytes.clone();
            changed[place] ^= flip;
            if changed == bytes {
                continue;
            }
            match folder.read(&changed, &records()) {
                Ok(read) => {
                    let bytes = (bytes.len() - last) as u64;
                    assert!(place >= last, "byte {place}");
                    assert_eq!(read, (3, Tail::Torn { bytes }), "byte {place}");
                }
                Err(JournalError::NotAJournal { .. }) => assert!(place < 8, "byte {place}"),
                Err(JournalError::Damaged { offset, .. }) => {
                    assert!(offset <= place as u64 && place < last, "byte {place}");
                }
                Err(error) => panic!("byte {place}: {error}"),
            }
        }
    }
}

#[test]
fn damage_in_the_middle_names_its_place_and_changes_nothing() {
    let folder = Folder::new();
    let mut bytes = folder.journal(&records());
    bytes[HEADER_BYTES + FRAME_BYTES] ^= 1;
    std::fs::write(folder.path(), &bytes).unwrap();
    let error = Journal::open_append(&folder.path(), Sync::Sometime, |_| ()).unwrap_err();
    assert!(error.to_string().ends_with("is damaged at byte 24"), "{error}");
    assert_eq!(std::fs::read(folder.path()).unwrap(), bytes);
}

#[test]
fn zeroes_and_noise_after_the_last_record_are_a_torn_tail() {
    let folder = Folder::new();
    let bytes = folder.journal(&records());
    for tail in [vec![0; 5000], vec![0xff; 7], (0..5000_u32).map(|n| (n * n) as u8).collect()] {
        let read = folder.read(&[&bytes[..], &tail].concat(), &records()).unwrap();
        assert_eq!(read, (4, Tail::Torn { bytes: tail.len() as u64 }));
    }
}

#[test]
fn a_record_that_quotes_a_record_is_not_taken_for_one() {
    let folder = Folder::new();
    let quoted = folder.journal(&[b"evil"])[HEADER_BYTES..].to_vec();
    let record = quoted.repeat(3);
    let bytes = folder.journal(&[b"one", &record]);
    let read = folder.read(&bytes[..bytes.len() - 1], &[b"one", &record]).unwrap();
    assert_eq!(read.0, 1);
    assert!(matches!(read.1, Tail::Torn { .. }));
}

#[test]
fn another_journals_record_is_damage_or_a_torn_tail() {
    let folder = Folder::new();
    let other = folder.journal(&[b"one", b"two"]);
    let bytes = folder.journal(&[b"one"]);
    let mixed = [&bytes[..], &other[bytes.len()..]].concat();
    assert!(matches!(folder.read(&mixed, &[b"one"]).unwrap(), (1, Tail::Torn { .. })));
}

#[test]
fn a_file_that_is_no_journal_is_left_alone() {
    let folder = Folder::new();
    for text in ["hello", "a file that is longer than a header is"] {
        std::fs::write(folder.path(), text).unwrap();
        let error = Journal::open_append(&folder.path(), Sync::Sometime, |_| ()).unwrap_err();
        assert!(matches!(error, JournalError::NotAJournal { .. }), "{error}");
        assert_eq!(std::fs::read(folder.path()).unwrap(), text.as_bytes());
    }
    let error = Journal::create(&folder.path(), Sync::Sometime).unwrap_err();
    assert!(matches!(error, JournalError::Io { doing: "create", .. }), "{error}");
}

#[test]
fn a_journal_has_one_master_at_a_time() {
    let folder = Folder::new();
    let first = Journal::create(&folder.path(), Sync::Sometime).unwrap();
    let error = Journal::open_append(&folder.path(), Sync::Sometime, |_| ()).unwrap_err();
    assert!(matches!(error, JournalError::Held { .. }), "{error}");
    drop(first);
    Journal::open_append(&folder.path(), Sync::Sometime, |_| ()).unwrap();
}

#[test]
fn a_record_has_a_length_and_a_large_batch_is_written_without_being_asked() {
    let folder = Folder::new();
    let mut journal = Journal::create(&folder.path(), Sync::Sometime).unwrap();
    for length in [0, RECORD_BYTES_MAX + 1] {
        let error = journal.append(&vec![1; length]).unwrap_err();
        assert!(matches!(error, JournalError::Length { .. }), "{error}");
    }
    for _ in 0..3 {
        journal.append(&vec![1; BATCH_BYTES_MAX]).unwrap();
    }
    assert!(folder.path().metadata().unwrap().len() > 2 * BATCH_BYTES_MAX as u64);
    journal.flush().unwrap();
    assert_eq!(Journal::read(&folder.path()).unwrap().0.len(), 3);
}

#[test]
fn a_batch_that_could_not_be_written_is_written_later() {
    // The system's own full disk: every write to it fails with `no space left on device`.
    let folder = Folder::new();
    let mut journal = Journal::create(&folder.path(), Sync::Sometime).unwrap();
    journal.append(b"one").unwrap();
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let good = std::mem::replace(&mut journal.file, full);
    let error = journal.flush().unwrap_err();
    assert!(matches!(error, JournalError::Io { doing: "write", .. }), "{error}");
    journal.append(b"two").unwrap();
    journal.file = good;
    journal.flush().unwrap();
    let (read, tail) = Journal::read(&folder.path()).unwrap();
    assert_eq!((read, tail), (vec![b"one".to_vec(), b"two".to_vec()], Tail::Whole));
}
