//! TFile: blocks of keys and values. A key is a container, its value the container's files one after the
//! other. The index of the blocks is found from the end of the file.

use super::run_reader::{Compression, PIECE_BYTES, Run, RunReader, check_total};
use super::source::{LogError, Source, read};

/// What a TFile begins and ends with.
pub(super) const MAGIC: [u8; 16] = [
    0xd1, 0x11, 0xd3, 0x68, 0x91, 0xb5, 0xd7, 0xb6, 0x39, 0xdf, 0x41, 0x40, 0x92, 0xba, 0xe1, 0x50,
];
/// The end of the file: offset of the meta index, version, magic.
const TAIL_BYTES: u64 = 8 + 4 + 16;
/// Indexes are read whole; one of a terabyte of logs has a few megabytes.
const INDEX_BYTES_MAX: u64 = 16 << 20;
/// A name longer than this names no container.
const KEY_BYTES_MAX: i64 = 64 << 10;
/// Digits of a length.
const LENGTH_DIGITS_MAX: usize = 20;

/// A file of a container whose bytes come next.
pub(super) struct TFileEntry {
    pub container: String,
    pub file: String,
    pub length: u64,
}

pub(super) struct TFile {
    compression: Compression,
    /// The data blocks not read yet, the next one last.
    blocks: Vec<Run>,
    block: Option<RunReader>,
    value: Option<ValueState>,
    owner: Option<String>,
}

/// The value being read.
struct ValueState {
    container: String,
    chunk_left: u64,
    /// Whether another chunk follows this one.
    more: bool,
    /// Bytes of the current file that have not been read.
    file_left: u64,
}

impl TFile {
    pub async fn open(source: &impl Source) -> Result<Self, LogError> {
        let length = source.length();
        let damaged = |why| LogError::Damaged { offset: length.saturating_sub(TAIL_BYTES), why };
        if length < MAGIC.len() as u64 + TAIL_BYTES {
            return Err(damaged("it ends in the middle"));
        }
        let end = length - TAIL_BYTES;
        let tail = read(source, end, TAIL_BYTES as usize).await?;
        if tail[12..] != MAGIC {
            return Err(damaged("its end is missing"));
        }
        let mut head = [0; 8];
        head.copy_from_slice(&tail[..8]);
        let offset = u64::from_be_bytes(head);
        let size = end.checked_sub(offset);
        let size = size.ok_or(damaged("its index would lie outside of it"))?;
        let index =
            read_whole(source, Run { offset, stored: size, length: size }, Compression::None)
                .await?;
        let start = MAGIC.len() as u64;
        let (name, run) = data_index(&mut Cursor::new(&index, offset))?;
        let run = run.within(start, end)?;
        let index = read_whole(source, run, Compression::named(&name)?).await?;

        let mut cursor = Cursor::new(&index, run.offset);
        let compression = Compression::named(&cursor.string()?)?;
        let mut blocks = Vec::new();
        for _ in 0..cursor.count()? {
            blocks.push(cursor.run()?.within(start, end)?);
        }
        check_total(blocks.iter().copied(), length)?;
        blocks.reverse();
        Ok(Self { compression, blocks, block: None, value: None, owner: None })
    }

    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// The next file, wherever reading stopped in the one before.
    pub async fn next(&mut self, source: &impl Source) -> Result<Option<TFileEntry>, LogError> {
        loop {
            if let Some(value) = &self.value {
                self.skip(source, value.file_left).await?;
                if self.at_end_of_value(source).await? {
                    self.value = None;
                    continue;
                }
                return self.file(source).await.map(Some);
            }
            if self.block.as_ref().is_some_and(|block| block.left() > 0) {
                self.record(source).await?;
                continue;
            }
            let Some(run) = self.blocks.pop() else {
                return Ok(None);
            };
            self.block = Some(RunReader::new(run, self.compression));
        }
    }

    /// A piece of the current file; empty at its end.
    pub async fn piece(&mut self, source: &impl Source) -> Result<Vec<u8>, LogError> {
        let Some(value) = &self.value else {
            return Ok(Vec::new());
        };
        let left = value.file_left;
        let piece = self.read_up_to(source, left.min(PIECE_BYTES as u64)).await?;
        if let Some(value) = &mut self.value {
            value.file_left -= piece.len() as u64;
        }
        Ok(piece)
    }

    /// Passes over bytes of the current file, up to its end.
    pub async fn skip(&mut self, source: &impl Source, length: u64) -> Result<(), LogError> {
        let mut length = length.min(self.value.as_ref().map_or(0, |value| value.file_left));
        while length > 0 {
            if self.at_end_of_value(source).await? {
                return Err(self.damaged("a file ends in the middle"));
            }
            let (Some(block), Some(value)) = (&mut self.block, &mut self.value) else {
                return Ok(());
            };
            let step = length.min(value.chunk_left);
            block.skip(source, step).await?;
            value.chunk_left -= step;
            value.file_left -= step;
            length -= step;
        }
        Ok(())
    }

    /// Begins the next record: a key, and the first chunk of its value.
    async fn record(&mut self, source: &impl Source) -> Result<(), LogError> {
        let length = self.number(source).await?;
        if !(2..=KEY_BYTES_MAX).contains(&length) {
            return Err(self.damaged("a key has an impossible length"));
        }
        let Some(block) = &mut self.block else {
            return Ok(());
        };
        let key = block.read_exact(source, length as usize).await?;
        // The key is a text with its own length in front.
        let text = String::from_utf8_lossy(&key[2..]).into_owned();
        self.value =
            Some(ValueState { container: text.clone(), chunk_left: 0, more: true, file_left: 0 });
        match text.as_str() {
            "APPLICATION_OWNER" => {
                let owner = self.text(source).await?;
                self.owner = Some(owner);
            }
            "VERSION" | "APPLICATION_ACL" => {}
            _ => return Ok(()),
        }
        // Nothing else of such a value is of interest.
        while !self.at_end_of_value(source).await? {
            self.read_up_to(source, PIECE_BYTES as u64).await?;
        }
        self.value = None;
        Ok(())
    }

    async fn file(&mut self, source: &impl Source) -> Result<TFileEntry, LogError> {
        let file = self.text(source).await?;
        let digits = self.text(source).await?;
        let length = Some(&digits).filter(|digits| digits.len() <= LENGTH_DIGITS_MAX);
        let length: Option<u64> = length.and_then(|digits| digits.parse().ok());
        let length = length.ok_or(self.damaged("a file has an impossible length"))?;
        let Some(value) = &mut self.value else {
            return Err(self.damaged("a file belongs to no container"));
        };
        value.file_left = length;
        Ok(TFileEntry { container: value.container.clone(), file, length })
    }

    /// Whether the value is over. Moves on to the next chunk where there is one.
    async fn at_end_of_value(&mut self, source: &impl Source) -> Result<bool, LogError> {
        loop {
            match &self.value {
                None => return Ok(true),
                Some(value) if value.chunk_left > 0 => return Ok(false),
                Some(value) if !value.more => return Ok(true),
                Some(_) => {}
            }
            let number = self.number(source).await?;
            if let Some(value) = &mut self.value {
                value.chunk_left = number.unsigned_abs();
                value.more = number < 0;
            }
        }
    }

    /// Up to `most` bytes of the value, at least one; none only when `most` is zero.
    async fn read_up_to(&mut self, source: &impl Source, most: u64) -> Result<Vec<u8>, LogError> {
        if most == 0 {
            return Ok(Vec::new());
        }
        if self.at_end_of_value(source).await? {
            return Err(self.damaged("a file ends in the middle"));
        }
        let (Some(block), Some(value)) = (&mut self.block, &mut self.value) else {
            return Ok(Vec::new());
        };
        let bytes = block.read_up_to(source, most.min(value.chunk_left)).await?;
        if bytes.is_empty() {
            return Err(block.damaged("it ends in the middle"));
        }
        value.chunk_left -= bytes.len() as u64;
        Ok(bytes)
    }

    /// A text in the value: two bytes of length, then the text.
    async fn text(&mut self, source: &impl Source) -> Result<String, LogError> {
        let mut bytes = Vec::new();
        while bytes.len() < 2 {
            bytes.extend(self.read_up_to(source, 2 - bytes.len() as u64).await?);
        }
        let length = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
        let mut text = Vec::with_capacity(length);
        while text.len() < length {
            text.extend(self.read_up_to(source, (length - text.len()) as u64).await?);
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// A number in the block, outside of values.
    async fn number(&mut self, source: &impl Source) -> Result<i64, LogError> {
        let Some(block) = &mut self.block else {
            return Err(self.damaged("a number is missing"));
        };
        let first = block.read_exact(source, 1).await?[0] as i8;
        let rest = block.read_exact(source, number_length(first)).await?;
        Ok(number(first, &rest))
    }

    fn damaged(&self, why: &'static str) -> LogError {
        match &self.block {
            Some(block) => block.damaged(why),
            None => LogError::Damaged { offset: 0, why },
        }
    }
}

/// Bytes that follow the first one of a number. This is neither Hadoop's Writable encoding nor a protocol
/// buffer's.
fn number_length(first: i8) -> usize {
    match first {
        -32..=127 => 0,
        -72..=-33 => 1,
        -104..=-73 => 2,
        -120..=-105 => 3,
        _ => (i16::from(first) + 129) as usize,
    }
}

fn number(first: i8, rest: &[u8]) -> i64 {
    let first = i64::from(first);
    let unsigned = rest.iter().fold(0i64, |value, byte| (value << 8) | i64::from(*byte));
    match rest.len() {
        0 => first,
        1 if first >= -72 => ((first + 52) << 8) | unsigned,
        2 if first >= -104 => ((first + 88) << 16) | unsigned,
        3 if first >= -120 => ((first + 112) << 24) | unsigned,
        // The longer forms carry a sign of their own.
        length => {
            let unused = 64 - 8 * length as u32;
            (unsigned << unused) >> unused
        }
    }
}

/// Reads a run that must be held whole: an index.
async fn read_whole(
    source: &impl Source,
    run: Run,
    compression: Compression,
) -> Result<Vec<u8>, LogError> {
    let mut reader = RunReader::new(run, compression);
    if run.length > INDEX_BYTES_MAX || run.stored > INDEX_BYTES_MAX {
        return Err(reader.damaged("its index is too large"));
    }
    let mut bytes = Vec::new();
    while reader.left() > 0 {
        bytes.extend(reader.read_up_to(source, PIECE_BYTES as u64).await?);
    }
    Ok(bytes)
}

/// The compression and the place of the index of data blocks, from the index of meta blocks.
fn data_index(cursor: &mut Cursor) -> Result<(String, Run), LogError> {
    for _ in 0..cursor.count()? {
        let name = cursor.string()?;
        let compression = cursor.string()?;
        let run = cursor.run()?;
        if name == "data:BCFile.index" {
            return Ok((compression, run));
        }
    }
    Err(cursor.damaged("it has no index of its blocks"))
}

/// An index in memory.
struct Cursor<'a> {
    bytes: &'a [u8],
    start: u64,
}

impl<'a> Cursor<'a> {
    fn new(bytes: &'a [u8], start: u64) -> Self {
        Self { bytes, start }
    }

    fn damaged(&self, why: &'static str) -> LogError {
        LogError::Damaged { offset: self.start, why }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], LogError> {
        let Some((taken, rest)) = self.bytes.split_at_checked(length) else {
            return Err(self.damaged("its index ends in the middle"));
        };
        self.bytes = rest;
        Ok(taken)
    }

    /// A number that is not negative.
    fn count(&mut self) -> Result<u64, LogError> {
        let first = self.take(1)?[0] as i8;
        let rest = self.take(number_length(first))?;
        u64::try_from(number(first, rest))
            .map_err(|_| self.damaged("a number in its index is negative"))
    }

    fn string(&mut self) -> Result<String, LogError> {
        let length = usize::try_from(self.count()?).unwrap_or(usize::MAX);
        let bytes = self.take(length)?;
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    fn run(&mut self) -> Result<Run, LogError> {
        Ok(Run { offset: self.count()?, stored: self.count()?, length: self.count()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_index_that_promises_too_much_is_not_read() {
        let run = Run { offset: 0, stored: 0, length: INDEX_BYTES_MAX + 1 };
        let read = read_whole(&&b""[..], run, Compression::Zlib).await;
        let error = read.expect_err("seventeen megabytes").to_string();
        assert!(error.ends_with("its index is too large"), "{error}");
    }

    #[test]
    fn numbers_are_read_as_hadoop_writes_them() {
        for (bytes, value) in [
            (&[0x7f][..], 127),
            (&[0xe0], -32),
            (&[0xcc, 0x80], 128),
            (&[0xdf, 0xff], 5119),
            (&[0xa8, 0x4e, 0x20], 20000),
            (&[0x83, 0x00, 0x01, 0x23, 0x45], 74565),
            (&[0x80, 0xff], -1),
        ] {
            let first = bytes[0] as i8;
            assert_eq!(number_length(first), bytes.len() - 1, "{bytes:x?}");
            assert_eq!(number(first, &bytes[1..]), value, "{bytes:x?}");
        }
    }
}
