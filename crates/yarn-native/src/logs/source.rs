//! Where the bytes of a file come from, and what can be wrong with them.

use std::future::{Future, ready};
use std::io;

/// A file that can be read in parts: in HDFS, on a disk, in memory.
pub trait Source: Send + Sync {
    /// Its length in bytes.
    fn length(&self) -> u64;

    /// Reads exactly `length` bytes at `offset`; both lie within the file. No more than a few hundred
    /// kilobytes are asked for at once, the index of an indexed file excepted.
    fn read(&self, offset: u64, length: usize) -> impl Future<Output = io::Result<Vec<u8>>> + Send;
}

impl Source for &[u8] {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, offset: u64, length: usize) -> impl Future<Output = io::Result<Vec<u8>>> + Send {
        let start = usize::try_from(offset).ok();
        let part = start.and_then(|start| self.get(start..start.checked_add(length)?));
        ready(part.map(<[u8]>::to_vec).ok_or_else(|| io::ErrorKind::UnexpectedEof.into()))
    }
}

/// Why an aggregated log cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The caller's source failed.
    #[error("cannot read at byte {offset}: {source}")]
    Source {
        /// Where.
        offset: u64,
        /// What it said.
        source: io::Error,
    },
    /// There is nothing in it: its NodeManager could not write it.
    #[error("the file is empty")]
    Empty,
    /// It begins as neither format does.
    #[error("not an aggregated log, neither TFile nor indexed")]
    Unknown,
    /// It is part of a Hadoop archive (`.har`), into which an administrator has packed the logs. Hadoop's own
    /// tools unpack it (`hadoop fs -cp har:///…`), and then the files in it can be read.
    #[error(
        "the logs have been packed into a Hadoop archive (`.har`), which has to be unpacked first"
    )]
    Archive,
    /// A compression that is not supported.
    #[error("the logs are compressed with `{name}`, and only `gz` and `none` can be read")]
    Compression {
        /// Its name.
        name: String,
    },
    /// The bytes make no sense: half-written, or damaged.
    #[error("the file is damaged at byte {offset}: {why}")]
    Damaged {
        /// Where, roughly: within the run of bytes that begins there.
        offset: u64,
        /// What is wrong.
        why: &'static str,
    },
}

/// Reads, and checks that what came is what was asked for.
pub(super) async fn read(
    source: &impl Source,
    offset: u64,
    length: usize,
) -> Result<Vec<u8>, LogError> {
    let bytes = source.read(offset, length).await;
    let bytes = bytes.map_err(|source| LogError::Source { offset, source })?;
    if bytes.len() != length {
        return Err(LogError::Source { offset, source: io::ErrorKind::UnexpectedEof.into() });
    }
    Ok(bytes)
}
