//! A run of bytes in the file, inflated where it was compressed, a piece at a time.

use flate2::{Decompress, FlushDecompress, Status};

use super::source::{LogError, Source, read};

/// Bytes read at once, and the largest piece handed out.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// How runs of bytes are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    /// Hadoop's `gz`, which is a zlib stream.
    Zlib,
}

impl Compression {
    pub fn named(name: &str) -> Result<Self, LogError> {
        match name {
            "none" | "" => Ok(Self::None),
            "gz" => Ok(Self::Zlib),
            _ => Err(LogError::Compression { name: name.chars().take(40).collect() }),
        }
    }
}

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub offset: u64,
    /// Bytes in the file.
    pub stored: u64,
    /// Bytes when inflated; not one more is handed out.
    pub length: u64,
}

impl Run {
    /// The run, if it lies between the bytes that belong to the file itself.
    pub fn within(self, start: u64, end: u64) -> Result<Self, LogError> {
        let fits = self.offset >= start
            && self.offset.checked_add(self.stored).is_some_and(|last| last <= end);
        match fits {
            true => Ok(self),
            false => Err(LogError::Damaged {
                offset: start,
                why: "a part of it would lie outside of it",
            }),
        }
    }
}

/// Whether runs are together no longer than the file. In an honest file no two overlap, and in another one
/// the same bytes must not be read a million times.
pub(super) fn check_total(runs: impl Iterator<Item = Run>, length: u64) -> Result<(), LogError> {
    let mut total = 0u64;
    for run in runs {
        total = total.saturating_add(run.stored);
        if total > length {
            return Err(LogError::Damaged { offset: run.offset, why: "parts of it overlap" });
        }
    }
    Ok(())
}

/// Reads one run from its beginning.
pub(super) struct RunReader {
    start: u64,
    /// What has not been read yet.
    at: u64,
    stored_left: u64,
    /// What has not been handed out yet, of what the run should have.
    left: u64,
    inflate: Option<Box<Decompress>>,
    /// Read and not inflated yet.
    raw: Vec<u8>,
    raw_at: usize,
    /// Inflated and not handed out yet.
    ready: Vec<u8>,
    ready_at: usize,
}

impl RunReader {
    pub fn new(run: Run, compression: Compression) -> Self {
        Self {
            start: run.offset,
            at: run.offset,
            stored_left: run.stored,
            left: match compression {
                // What was not compressed cannot be longer than it is stored.
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

    pub fn damaged(&self, why: &'static str) -> LogError {
        LogError::Damaged { offset: self.start, why }
    }

    /// Bytes of the run that have not been handed out.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Up to `most` of the next bytes, at least one; none at the end of the run.
    pub async fn read_up_to(
        &mut self,
        source: &impl Source,
        most: u64,
    ) -> Result<Vec<u8>, LogError> {
        let most = most.min(self.left);
        if most == 0 {
            return Ok(Vec::new());
        }
        self.fill(source).await?;
        let there = (self.ready.len() - self.ready_at) as u64;
        let length = there.min(most) as usize;
        let bytes = self.ready[self.ready_at..self.ready_at + length].to_vec();
        self.ready_at += length;
        self.left -= length as u64;
        Ok(bytes)
    }

    /// Exactly so many bytes, which must be few.
    pub async fn read_exact(
        &mut self,
        source: &impl Source,
        length: usize,
    ) -> Result<Vec<u8>, LogError> {
        if length as u64 > self.left {
            return Err(self.damaged("it ends in the middle"));
        }
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let piece = self.read_up_to(source, (length - bytes.len()) as u64).await?;
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    /// Passes over so many bytes, without reading them where that is possible.
    pub async fn skip(&mut self, source: &impl Source, length: u64) -> Result<(), LogError> {
        if length > self.left {
            return Err(self.damaged("it ends in the middle"));
        }
        let mut length = length;
        while length > 0 {
            let there = (self.ready.len() - self.ready_at) as u64;
            if there == 0 && self.inflate.is_none() {
                self.at += length;
                self.stored_left = self.stored_left.saturating_sub(length);
                self.left -= length;
                return Ok(());
            }
            if there == 0 {
                self.fill(source).await?;
                continue;
            }
            let step = there.min(length);
            self.ready_at += step as usize;
            self.left -= step;
            length -= step;
        }
        Ok(())
    }

    /// Makes at least one byte ready; an error when there is none.
    async fn fill(&mut self, source: &impl Source) -> Result<(), LogError> {
        while self.ready_at == self.ready.len() {
            self.ready.clear();
            self.ready_at = 0;
            if self.raw_at == self.raw.len() {
                let length = self.stored_left.min(PIECE_BYTES as u64) as usize;
                if length == 0 {
                    return Err(self.damaged("it ends in the middle"));
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

    /// Moves some of `raw` to `ready`. Each turn takes or gives at least one byte, or it is an error.
    fn inflate(&mut self) -> Result<(), LogError> {
        let Some(inflate) = &mut self.inflate else {
            self.ready = std::mem::take(&mut self.raw);
            self.raw_at = 0;
            return Ok(());
        };
        let (taken, given) = (inflate.total_in(), inflate.total_out());
        self.ready.resize(PIECE_BYTES, 0);
        let input = &self.raw[self.raw_at..];
        let status = inflate.decompress(input, &mut self.ready, FlushDecompress::None);
        let taken = (inflate.total_in() - taken) as usize;
        let given = (inflate.total_out() - given) as usize;
        self.raw_at += taken;
        self.ready.truncate(given);
        match status {
            Err(_) => Err(self.damaged("its compression is broken")),
            Ok(Status::StreamEnd) if given == 0 => Err(self.damaged("it ends in the middle")),
            Ok(_) if taken == 0 && given == 0 => Err(self.damaged("its compression is broken")),
            Ok(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_not_compressed_is_no_longer_than_it_is_stored() {
        let run = Run { offset: 1, stored: 3, length: u64::MAX };
        let source = &b"abcdef"[..];
        let mut run = RunReader::new(run, Compression::None);
        let bytes = run.read_up_to(&source, u64::MAX).await;
        assert_eq!(bytes.expect("a piece"), b"bcd");
        assert_eq!(run.left(), 0);
    }
}
