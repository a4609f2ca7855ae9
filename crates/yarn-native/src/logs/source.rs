//! Sources of log files, and errors of reading them.

use std::future::{Future, ready};
use std::io;

/// Random-access file in HDFS, on disk or in memory.
pub trait Source: Send + Sync {
    /// Returns the length in bytes.
    fn length(&self) -> u64;

    /// Reads exactly `length` bytes at `offset`; both lie within the file. Reads are at most a few
    /// hundred kilobytes, except for the index of an indexed file.
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

/// Error of reading an aggregated log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The source failed.
    #[error("cannot read at byte {offset}: {source}")]
    Source {
        /// Offset of the read.
        offset: u64,
        /// Cause.
        source: io::Error,
    },
    /// The file is empty: its NodeManager failed to write it.
    #[error("the file is empty")]
    Empty,
    /// The file has neither format.
    #[error("not an aggregated log, neither TFile nor indexed")]
    Unknown,
    /// The file is part of a Hadoop archive (`.har`) of packed logs. Unpack it with Hadoop's own
    /// tools (`hadoop fs -cp har:///…`), then read the files in it.
    #[error("the logs are packed in a Hadoop archive (`.har`); unpack it first")]
    Archive,
    /// The compression is not supported.
    #[error("unsupported compression `{name}`: expected `gz` or `none`")]
    Compression {
        /// Name of the compression.
        name: String,
    },
    /// The file is truncated or corrupt.
    #[error("corrupt file at byte {offset}: {why}")]
    Corrupt {
        /// Offset of the run of bytes with the error.
        offset: u64,
        /// Description.
        why: &'static str,
    },
}

/// Reads, and checks the length of the result.
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
