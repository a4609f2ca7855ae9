//! Reads one stream of one attempt.

use super::Stream;
use crate::{
    logs::{LogReader, StreamChunk},
    terminal::LinePrefixer,
};
use std::path::Path;

/// Bytes read from one stream in one pass, so that one task does not delay the output of the others.
const READ_BYTES_MAX: usize = 1 << 20;
/// Bytes of a copied stream whose disk space is freed at once.
const FREE_BYTES_MIN: u64 = 1 << 20;
/// Bytes of a stream searched for its last lines.
const TAIL_BYTES_MAX: u64 = 64 << 20;

/// Reader of one stream.
#[derive(Debug)]
pub(super) struct StreamTail {
    pub(super) reader: Option<LogReader>,
    pub(super) offset: u64,
    pub(super) lines: Option<LinePrefixer>,
    /// The attempt has ended: its output is complete.
    pub(super) ended: bool,
    /// Offset up to which disk space was freed, if the stream is a copy; `None` if it is the only one.
    pub(super) freed: Option<u64>,
}

impl StreamTail {
    /// Reads the available output, up to [`READ_BYTES_MAX`]. Returns true if there may be more.
    pub(super) fn read(&mut self, dir: &Path, stream: Stream, out: &mut Vec<u8>) -> bool {
        let offset = self.offset;
        let reader = self.reader.get_or_insert_with(|| LogReader::new(dir, stream.name(), offset));
        let mut full = true;
        while out.len() < READ_BYTES_MAX {
            match reader.read_some() {
                Ok(StreamChunk::Data { bytes, .. }) => match &mut self.lines {
                    Some(lines) => lines.push(&bytes, out),
                    None => out.extend_from_slice(&bytes),
                },
                Ok(StreamChunk::Gap { bytes, .. }) => {
                    let note = format!("[{bytes} bytes were discarded]\n");
                    match &mut self.lines {
                        Some(lines) => {
                            lines.finish(out);
                            lines.push(note.as_bytes(), out);
                        }
                        None => out.extend_from_slice(note.as_bytes()),
                    }
                }
                // Read errors may be temporary: the stream is read again at the end.
                Ok(StreamChunk::End) | Err(_) => {
                    full = false;
                    break;
                }
            }
        }
        self.offset = reader.offset();
        if let Some(freed) = &mut self.freed
            && self.offset - *freed >= FREE_BYTES_MIN
        {
            // Not all file systems can free a part of a file.
            let _ = reader.free_read(*freed);
            *freed = self.offset;
        }
        full
    }
}

/// Seeks to the start of the last `wanted` lines.
pub(super) fn seek_to_lines(reader: &mut LogReader, wanted: usize) {
    let mut span: u64 = 64 << 10;
    loop {
        if reader.seek_to_last(span).is_err() {
            return;
        }
        let start = reader.offset();
        let mut ends = Vec::new();
        let mut last = start;
        while let Ok(StreamChunk::Data { offset, bytes }) = reader.read_some() {
            let newlines = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
            ends.extend(newlines.map(|(n, _)| offset + n as u64 + 1));
            last = offset + bytes.len() as u64;
        }
        // The last line may be incomplete.
        let lines = ends.len() + usize::from(ends.last().is_none_or(|end| *end != last));
        let enough = lines > wanted;
        if enough || start == 0 || span >= TAIL_BYTES_MAX {
            let skip = lines.saturating_sub(wanted);
            let from = if skip == 0 { start } else { ends.get(skip - 1).copied().unwrap_or(last) };
            let back = reader.end().unwrap_or(last).saturating_sub(from);
            // After an error, reading continues at the current position.
            let _ = reader.seek_to_last(back);
            return;
        }
        span *= 8;
    }
}
