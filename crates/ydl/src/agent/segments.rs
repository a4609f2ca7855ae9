//! Stream stored in segments, of which the first and the newest are retained.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use super::container_logs::{self, ContainerLogs};
use super::output::{OutputSpec, Rotation};
use crate::logs::LogSegments;
use ydl_os::reason;

/// Writes one stream into segments of equal length.
#[derive(Debug)]
pub(super) struct SegmentWriter {
    segments: LogSegments,
    stream: String,
    container_logs: Option<ContainerLogs>,
    rotation: Rotation,
    /// Index and length of the newest segment.
    index: u64,
    length: u64,
    file: Option<File>,
    /// Bytes dropped since the last write, and the reason.
    missing: Option<(u64, String)>,
}

impl SegmentWriter {
    pub(super) fn new(spec: &OutputSpec, stream: &str) -> SegmentWriter {
        let segments = LogSegments::new(&spec.dir, stream);
        let rotation = Rotation {
            segment_bytes: spec.rotation.segment_bytes.max(1),
            newest: spec.rotation.newest.max(1),
        };
        let mut writer = SegmentWriter {
            segments,
            stream: stream.to_owned(),
            container_logs: spec.container_logs.clone(),
            rotation,
            index: 0,
            length: 0,
            file: None,
            missing: None,
        };
        // An error repeats, and is reported, at the first write.
        for index in writer.segments.list().unwrap_or_default() {
            let _ = writer.remove(index);
        }
        let _ = writer.open();
        writer
    }

    /// On failure returns the number of lost bytes and the reason; the next write retries.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), (u64, String)> {
        if let Some((missing, why)) = &self.missing {
            let note = format!("\nydl: {missing} bytes of output are missing here: {why}\n");
            let why = why.clone();
            if self.put(note.as_bytes()).is_err() {
                return Err(self.drop_bytes(bytes.len(), why));
            }
            self.missing = None;
        }
        self.put(bytes).map_err(|(put, error)| self.drop_bytes(bytes.len() - put, reason(&error)))
    }

    /// Writes a note about lost bytes at the end. On a full disk it overwrites the last bytes.
    fn finish(&mut self) {
        let Some((missing, why)) = self.missing.take() else {
            return;
        };
        let note = |missing| format!("\nydl: {missing} bytes of output are missing here: {why}\n");
        if self.put(note(missing).as_bytes()).is_ok() {
            return;
        }
        let note = note(missing + note(missing).len() as u64);
        if let (Some(file), Some(at)) = (&self.file, self.length.checked_sub(note.len() as u64)) {
            // This error can no longer be reported.
            let _ = file.write_all_at(note.as_bytes(), at);
        }
    }

    fn drop_bytes(&mut self, bytes: usize, why: String) -> (u64, String) {
        let (missing, last_why) = self.missing.get_or_insert_default();
        *missing += bytes as u64;
        last_why.clone_from(&why);
        (bytes as u64, why)
    }

    /// On failure returns the number of bytes written before.
    fn put(&mut self, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
        let mut put = 0;
        while put < bytes.len() {
            match self.put_some(&bytes[put..]) {
                Ok(length) => put += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err((put, error)),
            }
        }
        Ok(())
    }

    fn put_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.length == self.rotation.segment_bytes {
            self.rotate()?;
        }
        let room = self.rotation.segment_bytes - self.length;
        let bytes = &bytes[..bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        let length = match self.file.as_mut() {
            Some(file) => file.write(bytes)?,
            None => self.open()?.write(bytes)?,
        };
        if length == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.length += length as u64;
        Ok(length)
    }

    fn rotate(&mut self) -> io::Result<()> {
        // Frees space first: the disk may be full.
        let next = self.index + 1;
        if let Some(oldest) = next.checked_sub(self.rotation.newest).filter(|oldest| *oldest > 0) {
            self.remove(oldest)?;
        }
        self.file = None;
        self.index = next;
        self.length = 0;
        self.open().map(drop)
    }

    fn remove(&self, index: u64) -> io::Result<()> {
        if let Some(logs) = &self.container_logs {
            // Without its link the segment is gone for readers. The disk of the log directory may have failed.
            let _ = logs.remove(&self.stream, index);
        }
        container_logs::remove(&self.segments.path(index))
    }

    fn open(&mut self) -> io::Result<&mut File> {
        if self.index == 0 {
            std::fs::create_dir_all(self.segments.dir())?;
        }
        let path = self.segments.path(self.index);
        let logs = self.container_logs.as_ref();
        let stored = logs.and_then(|logs| logs.create(&self.stream, self.index, &path).ok());
        let file = match stored {
            Some(file) => file,
            // The disk of the log directory may have failed. Output after an error in the middle of a segment is dropped
            // until that segment can be written again.
            None => {
                container_logs::remove(&path)?;
                container_logs::create(&path)?
            }
        };
        Ok(self.file.insert(file))
    }
}

/// Notes lost bytes for the reader however the capture ends.
impl Drop for SegmentWriter {
    fn drop(&mut self) {
        self.finish();
    }
}
