//! Ships one growing stream, segment by segment, as the agent stores it on disk.
//!
//! Synced data survives this process. After a failed write the lease of the file is recovered, and the missing part is
//! read from disk again.

use crate::{
    agent::output::Rotation,
    logs::{LogReader, StreamChunk},
};
use std::{path::PathBuf, time::Duration};
use tokio::time::Instant;
use ydl_storage::hdfs::{Hdfs, HdfsError, Kind, Writer, layout};

/// Maximum bytes written between two syncs, plus one read. The HDFS client keeps written data in memory until the DataNodes
/// have acknowledged it, so this bounds the memory of a stream while HDFS is slow.
pub const UNSYNCED_BYTES_MAX: u64 = 4 << 20;
/// Segments retained in HDFS besides the first: together half a GiB of each stream of an attempt.
const NEWEST_SEGMENTS: u64 = 31;
/// A shipper in a hurry skips output that is further behind than this.
const BEHIND_MAX: u64 = 8 << 20;
/// Timeout of one step.
const STEP_MAX: Duration = Duration::from_secs(30);

/// A stream being shipped.
#[derive(Debug)]
pub(super) struct LogStream {
    dir: PathBuf,
    name: &'static str,
    /// Directory in HDFS.
    remote: String,
    rotation: Rotation,
    reader: LogReader,
    /// Segment being written.
    open: Option<(u64, Writer)>,
    /// Segment whose close failed.
    unclosed: Option<u64>,
    /// Set if data was written since the last sync.
    dirty: bool,
    /// End of the synced part of the stream.
    synced: u64,
}

impl LogStream {
    pub(super) fn new(
        dir: PathBuf,
        name: &'static str,
        remote: String,
        rotation: Rotation,
    ) -> LogStream {
        LogStream {
            reader: LogReader::new(&dir, name, 0),
            dir,
            name,
            remote,
            rotation,
            open: None,
            unclosed: None,
            dirty: false,
            synced: 0,
        }
    }

    /// Ships new output and syncs it. Returns true if nothing is left for now.
    pub(super) async fn ship(&mut self, hdfs: &Hdfs) -> Result<bool, HdfsError> {
        let shipped = self.ship_some(hdfs).await;
        if shipped.is_err() {
            // The length of the last piece is checked when the file is reopened.
            self.open = None;
            self.dirty = false;
            self.reader = LogReader::new(&self.dir, self.name, self.synced);
        }
        shipped
    }

    async fn ship_some(&mut self, hdfs: &Hdfs) -> Result<bool, HdfsError> {
        let mut shipped = 0;
        while shipped < UNSYNCED_BYTES_MAX {
            let chunk = self.reader.read_some().map_err(|error| self.unreadable(&error))?;
            match chunk {
                StreamChunk::Data { offset, bytes } => {
                    let segment = offset / self.rotation.segment_bytes;
                    if self.open.as_ref().is_none_or(|(open, _)| *open != segment)
                        && !self.open(hdfs, segment, offset).await?
                    {
                        continue;
                    }
                    shipped += bytes.len() as u64;
                    if let Some((_, writer)) = &mut self.open {
                        self.dirty = true;
                        writer.write(bytes, step_deadline()).await?;
                    }
                }
                StreamChunk::Gap { .. } => {}
                StreamChunk::End => {
                    self.sync().await?;
                    return Ok(true);
                }
            }
        }
        self.sync().await?;
        Ok(false)
    }

    async fn sync(&mut self) -> Result<(), HdfsError> {
        if self.dirty
            && let Some((_, writer)) = &mut self.open
        {
            writer.sync(step_deadline()).await?;
            self.dirty = false;
        }
        self.synced = self.reader.offset();
        Ok(())
    }

    /// Opens a segment for data at `offset`. Returns false if the file was longer than expected; the reader then
    /// continues at its end.
    async fn open(&mut self, hdfs: &Hdfs, segment: u64, offset: u64) -> Result<bool, HdfsError> {
        self.close(hdfs).await?;
        let path = self.path(segment);
        if let Some(oldest) = segment.checked_sub(NEWEST_SEGMENTS).filter(|oldest| *oldest > 0) {
            hdfs.delete(&self.path(oldest), step_deadline()).await?;
        }
        match hdfs.create(&path, layout::FILE, step_deadline()).await {
            Ok(writer) => {
                self.open = Some((segment, writer));
                return Ok(true);
            }
            Err(error) if error.kind == Kind::Exists => {}
            Err(error) => return Err(error),
        }
        // Created by this stream before an error.
        hdfs.recover(&path, step_deadline()).await?;
        let entry = hdfs.stat(&path, step_deadline()).await?;
        let end = segment * self.rotation.segment_bytes + entry.map_or(0, |entry| entry.bytes);
        let writer = hdfs.append(&path, step_deadline()).await?;
        self.open = Some((segment, writer));
        if end != offset {
            self.reader = LogReader::new(&self.dir, self.name, end);
        }
        Ok(end == offset)
    }

    /// Closes the open file.
    pub(super) async fn close(&mut self, hdfs: &Hdfs) -> Result<(), HdfsError> {
        if let Some((segment, writer)) = self.open.take() {
            self.dirty = false;
            self.unclosed = Some(segment);
            writer.close(step_deadline()).await?;
        } else if let Some(segment) = self.unclosed {
            // All data was synced; only the close failed.
            match hdfs.recover(&self.path(segment), step_deadline()).await {
                Err(error) if error.kind != Kind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.unclosed = None;
        Ok(())
    }

    /// Skips output that is too far behind: time may be short, and the end of a stream is the most useful part.
    pub(super) fn hurry(&mut self) {
        // A stream that cannot be measured is shipped in order.
        let Ok(end) = self.reader.end() else { return };
        let newest = end - end % self.rotation.segment_bytes;
        if end.saturating_sub(self.reader.offset()) > BEHIND_MAX && newest > self.reader.offset() {
            self.reader = LogReader::new(&self.dir, self.name, newest);
        }
    }

    fn path(&self, segment: u64) -> String {
        format!("{}/{}.{segment}", self.remote, self.name)
    }

    fn unreadable(&self, error: &std::io::Error) -> HdfsError {
        HdfsError {
            kind: Kind::Other,
            what: format!("cannot read `{}` in `{}`: {error}", self.name, self.dir.display()),
            hint: None,
        }
    }
}

fn step_deadline() -> Instant {
    Instant::now() + STEP_MAX
}
