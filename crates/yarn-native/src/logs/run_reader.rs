//! Reader of a run of bytes in a file, decompressed piece by piece.

use flate2::{Decompress, FlushDecompress, Status};

use super::source::{LogError, Source, read};

/// Size of a read, and maximum size of a returned piece.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// Compression of the runs in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    /// Hadoop's `gz`, a zlib stream.
    Zlib,
}

impl Compression {
    pub(crate) fn named(name: &str) -> Result<Self, LogError> {
        match name {
            "none" | "" => Ok(Self::None),
            "gz" => Ok(Self::Zlib),
            _ => Err(LogError::Compression { name: name.chars().take(40).collect() }),
        }
    }
}

/// Range of bytes in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub offset: u64,
    /// Length in the file.
    pub stored: u64,
    /// Length when decompressed; no more is returned.
    pub length: u64,
}

impl Run {
    /// Returns the run if it lies within the given range of the file.
    pub(crate) fn within(self, start: u64, end: u64) -> Result<Self, LogError> {
        let fits = self.offset >= start
            && self.offset.checked_add(self.stored).is_some_and(|last| last <= end);
        match fits {
            true => Ok(self),
            false => Err(LogError::Corrupt { offset: start, why: "part outside of the file" }),
        }
    }
}

/// Checks that the runs together are no longer than the file. In a valid file no two overlap;
/// otherwise the same bytes could be read a million times.
pub(super) fn check_total(runs: impl Iterator<Item = Run>, length: u64) -> Result<(), LogError> {
    let mut total = 0u64;
    for run in runs {
        total = total.saturating_add(run.stored);
        if total > length {
            return Err(LogError::Corrupt { offset: run.offset, why: "overlapping parts" });
        }
    }
    Ok(())
}

/// Reader of one run, from its beginning.
pub(super) struct RunReader {
    start: u64,
    /// Position of the next read.
    at: u64,
    stored_left: u64,
    /// Bytes not returned yet, by the declared length.
    left: u64,
    inflate: Option<Box<Decompress>>,
    /// Bytes read and not decompressed yet.
    raw: Vec<u8>,
    raw_at: usize,
    /// Bytes decompressed and not returned yet.
    ready: Vec<u8>,
    ready_at: usize,
}

impl RunReader {
    pub(crate) fn new(run: Run, compression: Compression) -> Self {
        Self {
            start: run.offset,
            at: run.offset,
            stored_left: run.stored,
            left: match compression {
                // Uncompressed data cannot be longer than it is stored.
                Compression::None => run.length.min(run.stored),
                Compression::Zlib => run.length,
            },
            inflate: match compression {
                Compression::None => None,
                Compression::Zlib => Some(Box::new(Decompress::new(true))),
            },
            raw: Vec::new(),
            raw_at: 0,
            ready: Vec::new(),
            ready_at: 0,
        }
    }

    pub(crate) fn corrupt(&self, why: &'static str) -> LogError {
        LogError::Corrupt { offset: self.start, why }
    }

    /// Returns the number of bytes not returned yet.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Returns up to `most` of the next bytes, at least one; none at the end of the run.
    pub(crate) async fn read_up_to(
        &mut self,
        source: &impl Source,
        most: u64,
    ) -> Result<Vec<u8>, LogError> {
        let most = most.min(self.left);
        if most == 0 {
            return Ok(Vec::new());
        }
        self.fill(source).await?;
        let available = (self.ready.len() - self.ready_at) as u64;
        let length = available.min(most) as usize;
        let bytes = self.ready[self.ready_at..self.ready_at + length].to_vec();
        self.ready_at += length;
        self.left -= length as u64;
        Ok(bytes)
    }

    /// Returns exactly `length` bytes, which must be few.
    pub(crate) async fn read_exact(
        &mut self,
        source: &impl Source,
        length: usize,
    ) -> Result<Vec<u8>, LogError> {
        if length as u64 > self.left {
            return Err(self.corrupt("truncated"));
        }
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let piece = self.read_up_to(source, (length - bytes.len()) as u64).await?;
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    /// Skips bytes, without reading them where possible.
    pub(crate) async fn skip(&mut self, source: &impl Source, length: u64) -> Result<(), LogError> {
        if length > self.left {
            return Err(self.corrupt("truncated"));
        }
        let mut length = length;
        while length > 0 {
            let available = (self.ready.len() - self.ready_at) as u64;
            if available == 0 && self.inflate.is_none() {
                self.at += length;
                self.stored_left = self.stored_left.saturating_sub(length);
                self.left -= length;
                return Ok(());
            }
            if available == 0 {
                self.fill(source).await?;
                continue;
            }
            let step = available.min(length);
            self.ready_at += step as usize;
            self.left -= step;
            length -= step;
        }
        Ok(())
    }

    /// Makes at least one byte ready, or fails if none are left.
    async fn fill(&mut self, source: &impl Source) -> Result<(), LogError> {
        while self.ready_at == self.ready.len() {
            self.ready.clear();
            self.ready_at = 0;
            if self.raw_at == self.raw.len() {
                let length = self.stored_left.min(PIECE_BYTES as u64) as usize;
                if length == 0 {
                    return Err(self.corrupt("truncated"));
                }
                self.raw = read(source, self.at, length).await?;
                self.raw_at = 0;
                self.at += length as u64;
                self.stored_left -= length as u64;
            }
            self.inflate()?;
        }
        Ok(())
    }

    /// Decompresses some of `raw` to `ready`. Each call consumes or produces at least one byte, or
    /// fails.
    fn inflate(&mut self) -> Result<(), LogError> {
        let Some(inflate) = &mut self.inflate else {
            self.ready = std::mem::take(&mut self.raw);
            self.raw_at = 0;
            return Ok(());
        };
        let (consumed_before, produced_before) = (inflate.total_in(), inflate.total_out());
        self.ready.resize(PIECE_BYTES, 0);
        let input = &self.raw[self.raw_at..];
        let status = inflate.decompress(input, &mut self.ready, FlushDecompress::None);
        let consumed = (inflate.total_in() - consumed_before) as usize;
        let produced = (inflate.total_out() - produced_before) as usize;
        self.raw_at += consumed;
        self.ready.truncate(produced);
        match status {
            Err(_) => Err(self.corrupt("invalid compressed data")),
            Ok(Status::StreamEnd) if produced == 0 => Err(self.corrupt("truncated")),
            Ok(_) if consumed == 0 && produced == 0 => Err(self.corrupt("invalid compressed data")),
            Ok(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn uncompressed_runs_end_at_their_stored_length() {
        let run = Run { offset: 1, stored: 3, length: u64::MAX };
        let source = &b"abcdef"[..];
        let mut run = RunReader::new(run, Compression::None);
        let bytes = run.read_up_to(&source, u64::MAX).await;
        assert_eq!(bytes.expect("a piece"), b"bcd");
        assert_eq!(run.left(), 0);
    }
}
