//! Journal of a master on this machine: a file in the job's directory. Not synced, and not replayed: such a
//! master has no successor. It is a record of what the master decided, in the format of the journal in HDFS.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{JournalError, format};
use format::{FRAME_BYTES, HEADER_BYTES, header};

/// Maximum size of a record's payload. The largest value of the key-value store fits, as base64.
pub const RECORD_BYTES_MAX: usize = 4 << 20;

/// Maximum size of a journal.
pub const JOURNAL_BYTES_MAX: u64 = 4 << 30;

/// Size of buffered records after which [`FileJournal::append`] flushes on its own.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Journal open for appending.
#[derive(Debug)]
pub struct FileJournal {
    path: PathBuf,
    file: File,
    salt: u64,
    /// Offset of the next batch. A failed write may leave bytes beyond it, which the next attempt overwrites.
    length: u64,
    batch: Vec<u8>,
}

impl FileJournal {
    /// Creates a journal that only its owner can read. Fails if the file exists: another master has the job.
    pub fn create(path: &Path) -> Result<Self, JournalError> {
        let failed = |source| JournalError::io("create", path, source);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        let salt = format::salt().map_err(failed)?;
        file.write_all_at(&header(salt), 0).map_err(failed)?;
        let (path, length) = (path.to_owned(), HEADER_BYTES as u64);
        Ok(Self { path, file, salt, length, batch: Vec::new() })
    }

    /// Adds a record to the batch that the next [`FileJournal::flush`] writes. After an error the record is not
    /// part of the journal.
    pub fn append(&mut self, payload: &[u8]) -> Result<(), JournalError> {
        if payload.is_empty() || payload.len() > RECORD_BYTES_MAX {
            let (path, length) = (self.path.clone(), payload.len());
            return Err(JournalError::Length { path, length });
        }
        if self.batch.len() >= BATCH_BYTES_MAX {
            self.flush()?;
        }
        let offset = self.length + self.batch.len() as u64;
        if offset + (FRAME_BYTES + payload.len()) as u64 > JOURNAL_BYTES_MAX {
            return Err(JournalError::Full { path: self.path.clone() });
        }
        format::add(&mut self.batch, self.salt, self.length, payload);
        Ok(())
    }

    /// Writes the batch. After an error the next flush writes the same batch again.
    pub fn flush(&mut self) -> Result<(), JournalError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let failed = |source| JournalError::io("write", &self.path, source);
        self.file.write_all_at(&self.batch, self.length).map_err(failed)?;
        self.length += self.batch.len() as u64;
        self.batch.clear();
        // Release the memory of a large batch.
        self.batch.shrink_to(64 << 10);
        Ok(())
    }

    /// Returns the size of the next flush.
    pub fn pending_bytes(&self) -> usize {
        self.batch.len()
    }

    /// Returns the size of the file, including the batch.
    pub fn length(&self) -> u64 {
        self.length + self.batch.len() as u64
    }
}

#[cfg(test)]
mod tests;
