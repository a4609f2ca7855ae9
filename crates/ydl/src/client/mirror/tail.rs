//! Copies the last lines of tasks' output without downloading whole logs.
//!
//! A copy has the length of the original, with a hole before the downloaded part, so that offsets are the same in both.

use super::{
    download::{LogWriter, copy_error},
    job::Mirror,
};
use std::{
    fs::OpenOptions,
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    time::Duration,
};
use tokio::time::Instant;
use ydl_storage::hdfs::{Entry, HdfsError};

/// Maximum time for one call.
const CALL_MAX: Duration = Duration::from_secs(30);
/// Maximum size of one read.
const PIECE_BYTES: u64 = 256 << 10;
/// Bytes of a stream searched for its last lines.
pub(super) const TAIL_BYTES_MAX: u64 = 64 << 20;

impl Mirror {
    /// Copies the end of a stream: its last `lines` lines and the newline before them. `segments` are in order.
    pub(super) async fn copy_tail(
        &self,
        segments: &[Entry],
        dir: &Path,
        lines: usize,
        writer: LogWriter,
    ) -> Result<(), String> {
        for segment in segments {
            extend_file(&dir.join(segment.name()), segment.bytes)
                .map_err(|error| copy_error(dir, &error))?;
        }
        let (mut newlines, mut fetched) = (0, 0);
        for segment in segments.iter().rev() {
            let path = dir.join(segment.name());
            let to_text = |error: HdfsError| error.to_string();
            let reader = self.open_log(segment, writer).await.map_err(to_text)?;
            // A segment that is still written may have grown.
            let mut until = reader.length();
            if until != segment.bytes {
                extend_file(&path, until).map_err(|error| copy_error(dir, &error))?;
            }
            while until > 0 {
                let from = until.saturating_sub(PIECE_BYTES);
                let length = (until - from) as usize;
                let read = reader.read_at(from, length, Instant::now() + CALL_MAX);
                let bytes = read.await.map_err(to_text)?;
                write_at(&path, &bytes, from).map_err(|error| copy_error(dir, &error))?;
                newlines += bytes.iter().filter(|byte| **byte == b'\n').count();
                fetched += bytes.len() as u64;
                if newlines > lines || fetched > TAIL_BYTES_MAX {
                    return Ok(());
                }
                until = from;
            }
        }
        Ok(())
    }
}

/// Sets the length of a file without allocating space for it.
pub(super) fn extend_file(path: &Path, bytes: u64) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600);
    options.open(path)?.set_len(bytes)
}

pub(super) fn write_at(path: &Path, bytes: &[u8], offset: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.write_all_at(bytes, offset)
}
