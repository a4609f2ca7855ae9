//! Names and lengths of a zip archive, from its central directory.

use super::{ArchiveScan, invalid};
use std::{
    fs,
    io::{self, Read, Seek, SeekFrom},
    path::PathBuf,
};

/// Maximum size of a central directory.
const TABLE_BYTES_MAX: u64 = 512 << 20;
/// Sizes of the end record, which precedes a comment of at most 64 KiB, and of the zip64 locator before it.
const ENDING_BYTES: usize = 22;
const LOCATOR_BYTES: usize = 20;
const ENDING_BYTES_MAX: u64 = 65_535 + (ENDING_BYTES + LOCATOR_BYTES) as u64;
/// Marker of a value in the zip64 field.
const ELSEWHERE: u64 = u32::MAX as u64;

impl ArchiveScan {
    pub(super) fn zip(&mut self, mut file: fs::File) -> io::Result<()> {
        let (table, bytes) = table(&mut file)?;
        if bytes > TABLE_BYTES_MAX {
            return Err(invalid(format!("its directory is larger than {TABLE_BYTES_MAX} bytes")));
        }
        file.seek(SeekFrom::Start(table))?;
        let mut all = Vec::new();
        file.take(bytes).read_to_end(&mut all)?;
        let mut rest = all.as_slice();
        while rest.starts_with(b"PK\x01\x02") {
            let (name, extra) = (short(rest, 28), short(rest, 30));
            let next = 46 + name + extra + short(rest, 32);
            let entry = rest.get(..next).ok_or_else(format_error)?;
            let path = String::from_utf8_lossy(&entry[46..46 + name]).into_owned();
            let length = match word(entry, 24) {
                ELSEWHERE => long_length(&entry[46 + name..46 + name + extra])?,
                length => length,
            };
            // The upper half of the external attributes is the mode if written on Unix.
            let link = word(entry, 38) >> 16 & 0o170_000 == 0o120_000;
            self.add(&PathBuf::from(path), length, link)?;
            rest = &rest[next..];
        }
        // Data outside the directory is not visible to readers.
        match rest.is_empty() && self.entries > 0 {
            true => Ok(()),
            false => Err(format_error()),
        }
    }
}

/// Returns offset and length of the central directory.
fn table(file: &mut fs::File) -> io::Result<(u64, u64)> {
    let length = file.metadata()?.len();
    let from = length.saturating_sub(ENDING_BYTES_MAX);
    file.seek(SeekFrom::Start(from))?;
    let mut ending = Vec::new();
    file.by_ref().take(ENDING_BYTES_MAX).read_to_end(&mut ending)?;
    let mut starts = (0..(ending.len() + 1).saturating_sub(ENDING_BYTES)).rev();
    let at = starts.find(|at| ending[*at..].starts_with(b"PK\x05\x06"));
    let at = at.ok_or_else(format_error)?;
    let (bytes, table) = (word(&ending, at + 12), word(&ending, at + 16));
    if bytes != ELSEWHERE && table != ELSEWHERE {
        return Ok((table, bytes));
    }
    let locator = at.checked_sub(LOCATOR_BYTES).map(|from| &ending[from..at]);
    let locator = locator.filter(|bytes| bytes.starts_with(b"PK\x06\x07"));
    let offset = long(locator.ok_or_else(format_error)?, 8).ok_or_else(format_error)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut record = Vec::new();
    file.by_ref().take(56).read_to_end(&mut record)?;
    if !record.starts_with(b"PK\x06\x06") {
        return Err(format_error());
    }
    let (bytes, table) = (long(&record, 40), long(&record, 48));
    Ok((table.ok_or_else(format_error)?, bytes.ok_or_else(format_error)?))
}

/// Returns the length of a file from its zip64 field.
fn long_length(extra: &[u8]) -> io::Result<u64> {
    let mut rest = extra;
    while rest.len() >= 4 {
        let (id, length) = (short(rest, 0), short(rest, 2));
        if id == 1 {
            return long(rest, 4).ok_or_else(format_error);
        }
        rest = rest.get(4 + length..).unwrap_or_default();
    }
    Err(format_error())
}

fn format_error() -> io::Error {
    invalid("not a zip file, or truncated")
}

fn short(bytes: &[u8], at: usize) -> usize {
    let part = bytes.get(at..at + 2).unwrap_or(&[0, 0]);
    usize::from(u16::from_le_bytes([part[0], part[1]]))
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let part = bytes.get(at..at + 4).unwrap_or(&[0; 4]);
    u64::from(u32::from_le_bytes([part[0], part[1], part[2], part[3]]))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let part = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(part.try_into().ok()?))
}
