//! Reader of a stream that was written in segments, some of which were removed.
//!
//! `stdout.0` is the start and is always kept. All segments but the newest have the length of the first, so the offset
//! of a segment follows from its number, and no index is needed.

use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const CHUNK_BYTES: usize = 64 * 1024;
const SEGMENTS_PER_READ_MAX: usize = 64;

/// Result of one read of a stream on disk: across segments, and with gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamChunk {
    /// Bytes of the stream, from `offset`.
    Data { offset: u64, bytes: Vec<u8> },
    /// Number of bytes from `offset` that were rotated away before they were read.
    Gap { offset: u64, bytes: u64 },
    /// No more data for now. It is the end of the stream if the program has ended.
    End,
}

/// The files of one stream.
#[derive(Clone, Debug)]
pub struct LogSegments {
    dir: PathBuf,
    stream: String,
}

impl LogSegments {
    pub fn new(dir: impl Into<PathBuf>, stream: impl Into<String>) -> LogSegments {
        LogSegments { dir: dir.into(), stream: stream.into() }
    }

    pub fn path(&self, index: u64) -> PathBuf {
        self.dir.join(format!("{}.{index}", self.stream))
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the numbers of the existing segments, ascending. An absent directory has none.
    pub fn list(&self) -> io::Result<Vec<u64>> {
        let names = match std::fs::read_dir(&self.dir) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut found = Vec::new();
        for name in names {
            let name = name?.file_name();
            let index = name
                .to_str()
                .and_then(|name| name.strip_prefix(&self.stream)?.strip_prefix('.'))
                .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
            found.extend(index.and_then(|digits| digits.parse::<u64>().ok()));
        }
        found.sort_unstable();
        Ok(found)
    }
}

/// Reads one stream from an offset on, across segments and gaps.
#[derive(Debug)]
pub struct LogReader {
    segments: LogSegments,
    offset: u64,
    /// Segment being read. It stays open, so that it can be read to its end even if it is removed meanwhile.
    open: Option<(u64, File)>,
    /// Length of a segment, known once the first one is full.
    segment_bytes: Option<u64>,
}

impl LogReader {
    /// Creates a reader that starts at `offset`. The stream need not exist yet.
    pub fn new(dir: impl Into<PathBuf>, stream: impl Into<String>, offset: u64) -> LogReader {
        let segments = LogSegments::new(dir, stream);
        LogReader { segments, offset, open: None, segment_bytes: None }
    }

    /// Returns the offset of the next byte.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the current length of the stream, gaps included.
    pub fn end(&mut self) -> io::Result<u64> {
        let Some(last) = self.segments.list()?.last().copied() else {
            return Ok(0);
        };
        let start = if last == 0 { 0 } else { self.start_of(last)? };
        match std::fs::metadata(self.segments.path(last)) {
            Ok(metadata) => Ok(start.saturating_add(metadata.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(start),
            Err(error) => Err(error),
        }
    }

    /// Moves to the last `bytes` of the stream.
    pub(crate) fn seek_to_last(&mut self, bytes: u64) -> io::Result<()> {
        self.offset = self.end()?.saturating_sub(bytes);
        self.open = None;
        Ok(())
    }

    /// Reads the next chunk, at most 64 KiB. Never waits.
    pub fn read_some(&mut self) -> io::Result<StreamChunk> {
        // Each iteration advances by one segment, and rotation cannot outrun a reader for long.
        for _ in 0..SEGMENTS_PER_READ_MAX {
            if self.open.is_none()
                && let Some(chunk) = self.open_next()?
            {
                return Ok(chunk);
            }
            let Some((index, file)) = &self.open else {
                continue;
            };
            let index = *index;
            let bytes = self.read_at(file, index)?;
            if !bytes.is_empty() {
                return Ok(self.data(bytes));
            }
            let Some(next) = self.segments.list()?.into_iter().find(|found| *found > index) else {
                return Ok(StreamChunk::End);
            };
            // The writer may have filled this segment after the read above and before it created the next one. Now that
            // the next one exists, the length of this one is final.
            let bytes = self.read_at(file, index)?;
            if !bytes.is_empty() {
                return Ok(self.data(bytes));
            }
            self.open = None;
            if self.offset < self.start_of(index + 1)? {
                let start = self.start_of(next)?;
                return Ok(self.gap(start));
            }
        }
        Ok(StreamChunk::End)
    }

    /// Opens the segment that contains `offset`. Returns a gap or the end if there is none. `None` with `open` unset: the
    /// segment was just removed; call again.
    fn open_next(&mut self) -> io::Result<Option<StreamChunk>> {
        let list = self.segments.list()?;
        let Some(&last) = list.last() else {
            return Ok(Some(StreamChunk::End));
        };
        let wanted = if last == 0 { 0 } else { self.offset / self.segment_bytes()? };
        let Some(index) = list.into_iter().find(|found| *found >= wanted) else {
            // Beyond the end: the stream may still grow to there.
            return Ok(Some(StreamChunk::End));
        };
        if index > wanted {
            let start = self.start_of(index)?;
            return Ok(Some(self.gap(start)));
        }
        match File::open(self.segments.path(index)) {
            Ok(file) => self.open = Some((index, file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(None)
    }

    /// Frees the disk space of everything before the current offset, as far as it was read from `from` on. The lengths of
    /// files and all offsets stay the same. Fails if the file system cannot do this.
    pub(crate) fn free_read(&self, from: u64) -> io::Result<()> {
        let segment_bytes = self.segment_bytes.unwrap_or(u64::MAX);
        for index in from / segment_bytes..=self.offset / segment_bytes {
            let length = (self.offset - index * segment_bytes).min(segment_bytes);
            let file = match OpenOptions::new().write(true).open(self.segments.path(index)) {
                Ok(file) if length > 0 => file,
                Ok(_) => continue,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, length)?;
        }
        Ok(())
    }

    fn read_at(&self, file: &File, index: u64) -> io::Result<Vec<u8>> {
        let segment_bytes = self.segment_bytes.unwrap_or(i64::MAX as u64);
        let within = self.offset - index.saturating_mul(segment_bytes);
        let length = segment_bytes.saturating_sub(within).min(CHUNK_BYTES as u64);
        let mut bytes = vec![0; length as usize];
        if bytes.is_empty() {
            return Ok(bytes);
        }
        let length = loop {
            match file.read_at(&mut bytes, within) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        bytes.truncate(length);
        Ok(bytes)
    }

    fn data(&mut self, bytes: Vec<u8>) -> StreamChunk {
        let offset = self.offset;
        self.offset += bytes.len() as u64;
        StreamChunk::Data { offset, bytes }
    }

    fn gap(&mut self, to: u64) -> StreamChunk {
        let offset = std::mem::replace(&mut self.offset, to);
        StreamChunk::Gap { offset, bytes: to - offset }
    }

    fn start_of(&mut self, index: u64) -> io::Result<u64> {
        Ok(index.saturating_mul(self.segment_bytes()?))
    }

    /// Returns the length of a segment. Call it only if there is a second segment: then the first is full.
    fn segment_bytes(&mut self) -> io::Result<u64> {
        if let Some(bytes) = self.segment_bytes {
            return Ok(bytes);
        }
        let path = self.segments.path(0);
        let bytes = std::fs::metadata(&path)?.len();
        if bytes == 0 {
            let sentence = format!("`{}` is empty though others follow it", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, sentence));
        }
        self.segment_bytes = Some(bytes);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::write;

    fn read_all(reader: &mut LogReader) -> Vec<StreamChunk> {
        std::iter::from_fn(|| match reader.read_some().unwrap() {
            StreamChunk::End => None,
            chunk => Some(chunk),
        })
        .collect()
    }

    fn data(offset: u64, bytes: &[u8]) -> StreamChunk {
        StreamChunk::Data { offset, bytes: bytes.to_vec() }
    }

    #[test]
    fn an_absent_stream_has_no_data_and_may_grow_later() {
        let dir = tempfile::tempdir().unwrap();
        let logs = dir.path().join("later");
        let mut reader = LogReader::new(&logs, "stdout", 0);
        assert_eq!(reader.read_some().unwrap(), StreamChunk::End);
        std::fs::create_dir(&logs).unwrap();
        write(logs.join("stdout.0"), "one").unwrap();
        assert_eq!(read_all(&mut reader), [data(0, b"one")]);
        write(logs.join("stdout.0"), "onetwo").unwrap();
        assert_eq!(read_all(&mut reader), [data(3, b"two")]);
        write(logs.join("stdout.1"), "three").unwrap();
        assert_eq!(read_all(&mut reader), [data(6, b"three")]);
        assert_eq!(reader.end().unwrap(), 11);
    }

    #[test]
    fn removed_segments_are_a_gap_of_known_size() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("out.0", "aaaa"), ("out.7", "hhhh"), ("out.8", "ii")] {
            write(dir.path().join(name), text).unwrap();
        }
        write(dir.path().join("out.x"), "no segment").unwrap();
        let gap = |offset, bytes| StreamChunk::Gap { offset, bytes };
        let read = |offset| read_all(&mut LogReader::new(dir.path(), "out", offset));
        assert_eq!(read(2), [data(2, b"aa"), gap(4, 24), data(28, b"hhhh"), data(32, b"ii")]);
        assert_eq!(read(10), [gap(10, 18), data(28, b"hhhh"), data(32, b"ii")]);
        assert_eq!(read(30), [data(30, b"hh"), data(32, b"ii")]);
        assert_eq!(read(34), []);
        assert_eq!(read(u64::MAX), []);

        let mut reader = LogReader::new(dir.path(), "out", 0);
        reader.seek_to_last(3).unwrap();
        assert_eq!(read_all(&mut reader), [data(31, b"h"), data(32, b"ii")]);
    }

    #[test]
    fn an_offset_beyond_the_end_waits_for_the_stream_to_reach_it() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path().join("out.0"), "aaaa").unwrap();
        let mut reader = LogReader::new(dir.path(), "out", 6);
        assert_eq!(read_all(&mut reader), []);
        assert_eq!(read_all(&mut LogReader::new(dir.path(), "out", u64::MAX)), []);
        write(dir.path().join("out.1"), "bbcc").unwrap();
        assert_eq!(read_all(&mut reader), [data(6, b"cc")]);
    }

    #[test]
    fn an_open_segment_is_read_to_its_end_after_its_removal() {
        let dir = tempfile::tempdir().unwrap();
        let piece = vec![b'x'; CHUNK_BYTES + 1];
        for name in ["out.0", "out.1", "out.2"] {
            write(dir.path().join(name), &piece).unwrap();
        }
        let mut reader = LogReader::new(dir.path(), "out", piece.len() as u64);
        let StreamChunk::Data { bytes, .. } = reader.read_some().unwrap() else {
            panic!("no data")
        };
        assert_eq!(bytes.len(), CHUNK_BYTES);
        std::fs::remove_file(dir.path().join("out.1")).unwrap();
        let lengths: Vec<usize> = read_all(&mut reader)
            .into_iter()
            .map(|chunk| match chunk {
                StreamChunk::Data { bytes, .. } => bytes.len(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(lengths, [1, CHUNK_BYTES, 1]);
    }

    #[test]
    fn freed_output_uses_no_disk_space_and_keeps_its_length() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let piece = vec![b'x'; 1 << 20];
        let names = ["out.0", "out.1", "out.2"];
        for name in names {
            write(dir.path().join(name), &piece).unwrap();
        }
        let mut reader = LogReader::new(dir.path(), "out", 0);
        while reader.offset() < 5 << 19 {
            reader.read_some().unwrap();
        }
        reader.free_read(0).unwrap();
        let files = names.map(|name| std::fs::metadata(dir.path().join(name)).unwrap());
        assert_eq!(files.each_ref().map(|file| file.len()), [1 << 20; 3]);
        let [first, second, third] = files.map(|file| file.blocks() * 512);
        assert!(first < 64 << 10 && second < 64 << 10, "{first} {second}");
        assert!(third < 768 << 10, "{third}");
        // The next output continues after the freed one.
        let mut again = LogReader::new(dir.path(), "out", 5 << 19);
        assert_eq!(read_all(&mut again)[0], data(5 << 19, &piece[..CHUNK_BYTES]));
    }

    #[test]
    fn segments_of_wrong_length_neither_hang_nor_panic() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in
            [("out.0", "aaaa"), ("out.1", "b"), ("out.2", "cccccccc"), ("out.3", "d")]
        {
            write(dir.path().join(name), text).unwrap();
        }
        let mut reader = LogReader::new(dir.path(), "out", 0);
        let chunks = read_all(&mut reader);
        let gap = StreamChunk::Gap { offset: 5, bytes: 3 };
        assert_eq!(
            chunks,
            [data(0, b"aaaa"), data(4, b"b"), gap, data(8, b"cccc"), data(12, b"d")]
        );

        write(dir.path().join("out.0"), "").unwrap();
        assert!(LogReader::new(dir.path(), "out", 0).read_some().is_err());
    }
}
