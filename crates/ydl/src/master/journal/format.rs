//! Binary format of journal files: a header, then records with length, checksum and payload.
//!
//! ```text
//! header   "ydl-jrnl"  version u32  salt u64  checksum u32         little-endian throughout
//! record   length u32  checksum u32  payload
//! ```
//!
//! If a master dies while it writes, the end of the file is torn, and ignored. Damage anywhere else is an error. A
//! record's checksum covers the salt, its offset in the file, its length and its payload. So neither a record of another
//! journal nor one quoted in a payload is mistaken for a record of this one.

use std::io::{self, ErrorKind, Read};
use std::path::Path;

use ring::rand::{SecureRandom, SystemRandom};

use super::{JournalError, RECORD_BYTES_MAX};

const MAGIC: &[u8; 8] = b"ydl-jrnl";
pub(super) const VERSION: u32 = 1;
pub(in crate::master) const HEADER_BYTES: usize = 24;
pub(super) const FRAME_BYTES: usize = 8;

/// Maximum number of bytes to search for valid records after damage.
const SEARCH_BYTES_MAX: usize = 256 << 20;

pub(in crate::master) fn header(salt: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..20].copy_from_slice(&salt.to_le_bytes());
    let sum = crc32c(&[&header[..20]]);
    header[20..].copy_from_slice(&sum.to_le_bytes());
    header
}

/// End of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::master) enum JournalTail {
    Whole,
    /// The last record is incomplete; this many bytes are unused.
    Torn {
        bytes: u64,
    },
}

/// Reads a journal file and passes its records to `each`. The path is used in errors only. On an error, discard what
/// `each` received.
pub(in crate::master) fn scan(
    path: &Path,
    mut reader: impl Read,
    mut each: impl FnMut(&[u8]),
) -> Result<JournalTail, JournalError> {
    let failed = |source| JournalError::io("read", path, source);
    let mut head = Vec::with_capacity(HEADER_BYTES);
    reader.by_ref().take(HEADER_BYTES as u64).read_to_end(&mut head).map_err(failed)?;
    let Some(salt) = read_header(path, &head)? else {
        return Ok(JournalTail::Torn { bytes: head.len() as u64 });
    };

    let mut length = HEADER_BYTES as u64;
    let mut record = Vec::new();
    loop {
        match read_record(&mut reader, salt, length, &mut record).map_err(failed)? {
            RecordRead::Record => {
                each(&record[FRAME_BYTES..]);
                length += record.len() as u64;
            }
            RecordRead::End => {
                return Ok(JournalTail::Whole);
            }
            RecordRead::Damage => {
                let limit = SEARCH_BYTES_MAX as u64 + 1;
                reader.take(limit).read_to_end(&mut record).map_err(failed)?;
                if has_later_record(salt, length, &record) {
                    return Err(JournalError::Damaged { path: path.to_owned(), offset: length });
                }
                return Ok(JournalTail::Torn { bytes: record.len() as u64 });
            }
        }
    }
}

/// Returns the salt, or none if the file ends within its header.
fn read_header(path: &Path, head: &[u8]) -> Result<Option<u64>, JournalError> {
    if head.len() < HEADER_BYTES {
        // A file of another kind is an error, however short.
        return match MAGIC.starts_with(&head[..head.len().min(8)]) {
            true => Ok(None),
            false => Err(JournalError::NotAJournal { path: path.to_owned() }),
        };
    }
    if &head[..8] != MAGIC {
        return Err(JournalError::NotAJournal { path: path.to_owned() });
    }
    let u32_at =
        |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if crc32c(&[&head[..20]]) != u32_at(20) {
        return Err(JournalError::Damaged { path: path.to_owned(), offset: 0 });
    }
    if u32_at(8) != VERSION {
        return Err(JournalError::Version { path: path.to_owned(), version: u32_at(8) });
    }
    Ok(Some(u64::from(u32_at(12)) | u64::from(u32_at(16)) << 32))
}

enum RecordRead {
    Record,
    End,
    Damage,
}

/// Reads one record with its frame. After damage `record` holds what was read of it.
fn read_record(
    reader: &mut impl Read,
    salt: u64,
    offset: u64,
    record: &mut Vec<u8>,
) -> io::Result<RecordRead> {
    record.clear();
    record.resize(FRAME_BYTES, 0);
    let length_read = read_up_to(reader, record)?;
    record.truncate(length_read);
    match length_read {
        0 => return Ok(RecordRead::End),
        FRAME_BYTES => {}
        _ => return Ok(RecordRead::Damage),
    }
    let Some((length, sum)) = frame(record) else {
        return Ok(RecordRead::Damage);
    };
    record.resize(FRAME_BYTES + length, 0);
    let length_read = read_up_to(reader, &mut record[FRAME_BYTES..])?;
    record.truncate(FRAME_BYTES + length_read);
    let whole = length_read == length && checksum(salt, offset, &record[FRAME_BYTES..]) == sum;
    Ok(if whole { RecordRead::Record } else { RecordRead::Damage })
}

fn read_up_to(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length_read = 0;
    while length_read < buffer.len() {
        match reader.read(&mut buffer[length_read..]) {
            Ok(0) => break,
            Ok(more) => length_read += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length_read)
}

/// Returns length and checksum of a frame, if they are possible.
fn frame(bytes: &[u8]) -> Option<(usize, u32)> {
    let frame: [u8; FRAME_BYTES] = bytes.get(..FRAME_BYTES)?.try_into().ok()?;
    let [a, b, c, d, sum @ ..] = frame;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    let sum = u32::from_le_bytes(sum);
    (1..=RECORD_BYTES_MAX).contains(&length).then_some((length, sum))
}

/// Returns true if a valid record follows the damaged one that `rest` begins with. Assumes so if the file is
/// too long to search.
fn has_later_record(salt: u64, offset: u64, rest: &[u8]) -> bool {
    let mut budget = SEARCH_BYTES_MAX;
    for at in 1..rest.len() {
        let Some((length, sum)) = frame(&rest[at..]) else {
            continue;
        };
        let Some(payload) = rest[at + FRAME_BYTES..].get(..length) else {
            continue;
        };
        match budget.checked_sub(length) {
            Some(left) => budget = left,
            None => return true,
        }
        if checksum(salt, offset + at as u64, payload) == sum {
            return true;
        }
    }
    rest.len() > SEARCH_BYTES_MAX
}

/// Returns a random salt, which differs from those of other journals.
pub(in crate::master) fn salt() -> io::Result<u64> {
    let mut salt = [0; 8];
    SystemRandom::new()
        .fill(&mut salt)
        .map_err(|_| io::Error::other("the system gives no random bytes"))?;
    Ok(u64::from_le_bytes(salt))
}

/// Adds a record to a batch that will be written at `offset`.
pub(in crate::master) fn add(batch: &mut Vec<u8>, salt: u64, offset: u64, payload: &[u8]) {
    let checksum = checksum(salt, offset + batch.len() as u64, payload);
    batch.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    batch.extend_from_slice(&checksum.to_le_bytes());
    batch.extend_from_slice(payload);
}

fn checksum(salt: u64, offset: u64, payload: &[u8]) -> u32 {
    let length = (payload.len() as u32).to_le_bytes();
    crc32c(&[&salt.to_le_bytes(), &offset.to_le_bytes(), &length, payload])
}

/// Computes CRC-32C (Castagnoli), which detects every burst of up to 32 bits.
pub(super) fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut crc = !0_u32;
    for byte in parts.iter().copied().flatten() {
        crc = CRC_TABLE[usize::from(crc as u8 ^ byte)] ^ crc >> 8;
    }
    !crc
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};
