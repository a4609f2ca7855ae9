//! The journal: what the master was told, in order, so that a new master can become the old one.
//!
//! A file that is only appended to: a header, then records of a length, a checksum and bytes. A
//! master that dies while it writes leaves a torn tail, which is cut off. Damage anywhere else is
//! never guessed around.
//!
//! ```text
//! header   "ydl-jrnl"  version u32  salt u64  checksum u32         little-endian throughout
//! record   length u32  checksum u32  payload
//! ```
//!
//! A record's checksum covers the salt, the record's place in the file, its length and its payload.
//! So neither a record of another journal nor one that a payload happens to quote is ever taken for
//! a record of this one.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::BufReader;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

mod error;
pub(super) mod format;

pub use error::JournalError;
use format::{FRAME_BYTES, HEADER_BYTES, header};

/// One record's payload. A key-value store's largest value fits, written as base64.
pub const RECORD_BYTES_MAX: usize = 4 << 20;

/// A journal of this size takes no more records.
pub const JOURNAL_BYTES_MAX: u64 = 4 << 30;

/// Records that wait in memory for [`Journal::flush`]; more are written without being asked.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// When the disk must have what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// When the system finds time: survives the death of the master, not of the machine.
    Sometime,
    /// Before [`Journal::flush`] returns.
    EachFlush,
}

/// How a journal ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    Whole,
    /// The last record was not written to its end; this many bytes are not used.
    Torn {
        bytes: u64,
    },
}

/// A journal open for appending. Only one process has it at a time.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    salt: u64,
    sync: Sync,
    /// Where the next batch goes. What lies beyond, after a write that failed half-way, is
    /// overwritten by the next attempt.
    length: u64,
    batch: Vec<u8>,
}

impl Journal {
    /// Starts a journal. The file must not exist, and only its owner will read it.
    pub fn create(path: &Path, sync: Sync) -> Result<Self, JournalError> {
        let failed = |source| JournalError::io("create", path, source);
        let file = OpenOptions::new()
            .write(true)
            .read(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        lock(&file, path)?;
        Self::begin(path, file, sync)
    }

    fn begin(path: &Path, file: File, sync: Sync) -> Result<Self, JournalError> {
        let failed = |source| JournalError::io("create", path, source);
        let salt = format::salt().map_err(failed)?;
        file.set_len(0).map_err(failed)?;
        file.write_all_at(&header(salt), 0).map_err(failed)?;
        if sync == Sync::EachFlush {
            file.sync_all().map_err(failed)?;
        }
        let (path, length) = (path.to_owned(), HEADER_BYTES as u64);
        Ok(Self { path, file, salt, sync, length, batch: Vec::new() })
    }

    /// Opens a journal to go on with it, giving each of its records to `each` first. A torn tail is
    /// cut off. On an error, what `each` was given must be forgotten.
    pub fn open_append(
        path: &Path,
        sync: Sync,
        each: impl FnMut(&[u8]),
    ) -> Result<(Self, Tail), JournalError> {
        let failed = |source| JournalError::io("open", path, source);
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
        lock(&file, path)?;
        let scan = scan(path, &file, each)?;
        let Some(salt) = scan.salt else {
            return Ok((Self::begin(path, file, sync)?, scan.tail));
        };
        file.set_len(scan.length).map_err(failed)?;
        let (path, length) = (path.to_owned(), scan.length);
        Ok((Self { path, file, salt, sync, length, batch: Vec::new() }, scan.tail))
    }

    /// Reads a journal without changing it, whoever has it open. On an error, what `each` was given
    /// must be forgotten.
    pub fn replay(path: &Path, each: impl FnMut(&[u8])) -> Result<Tail, JournalError> {
        let file = File::open(path).map_err(|source| JournalError::io("open", path, source))?;
        Ok(scan(path, &file, each)?.tail)
    }

    /// All records at once, for journals known to be small.
    pub fn read(path: &Path) -> Result<(Vec<Vec<u8>>, Tail), JournalError> {
        let mut records = Vec::new();
        let tail = Self::replay(path, |record| records.push(record.to_vec()))?;
        Ok((records, tail))
    }

    /// Adds a record to the batch that the next [`Journal::flush`] writes. After an error the record
    /// is not part of the journal.
    pub fn append(&mut self, payload: &[u8]) -> Result<(), JournalError> {
        if payload.is_empty() || payload.len() > RECORD_BYTES_MAX {
            let (path, length) = (self.path.clone(), payload.len());
            return Err(JournalError::Length { path, length });
        }
        if self.batch.len() >= BATCH_BYTES_MAX {
            self.flush()?;
        }
        let place = self.length + self.batch.len() as u64;
        if place + (FRAME_BYTES + payload.len()) as u64 > JOURNAL_BYTES_MAX {
            return Err(JournalError::Full { path: self.path.clone() });
        }
        format::add(&mut self.batch, self.salt, self.length, payload);
        Ok(())
    }

    /// Writes what was appended. After an error nothing is lost: the same batch is tried again by
    /// the next flush.
    pub fn flush(&mut self) -> Result<(), JournalError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let failed = |source| JournalError::io("write", &self.path, source);
        self.file.write_all_at(&self.batch, self.length).map_err(failed)?;
        if self.sync == Sync::EachFlush {
            self.file.sync_data().map_err(failed)?;
        }
        self.length += self.batch.len() as u64;
        self.batch.clear();
        // One large batch must not be held for the rest of the master's life.
        self.batch.shrink_to(64 << 10);
        Ok(())
    }

    /// How much the next flush will write.
    pub fn waiting_bytes(&self) -> usize {
        self.batch.len()
    }

    /// How long the file is, with what is still to be written.
    pub fn length(&self) -> u64 {
        self.length + self.batch.len() as u64
    }
}

fn scan(path: &Path, file: &File, each: impl FnMut(&[u8])) -> Result<format::Scan, JournalError> {
    format::scan(path, BufReader::with_capacity(64 << 10, file), each)
}

fn lock(file: &File, path: &Path) -> Result<(), JournalError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(JournalError::Held { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(JournalError::io("lock", path, source)),
    }
}

#[cfg(test)]
mod tests;
