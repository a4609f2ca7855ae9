//! TFile: blocks of keys and values. A key is a container, its value the concatenation of the
//! container's files. The block index is located from the end of the file.

use super::run_reader::{Compression, PIECE_BYTES, Run, RunReader, check_total};
use super::source::{LogError, Source, read};

/// Magic number at both ends of a TFile.
pub(super) const MAGIC: [u8; 16] = [
    0xd1, 0x11, 0xd3, 0x68, 0x91, 0xb5, 0xd7, 0xb6, 0x39, 0xdf, 0x41, 0x40, 0x92, 0xba, 0xe1, 0x50,
];
/// Length of the trailer: offset of the meta index, version, magic.
const TAIL_BYTES: u64 = 8 + 4 + 16;
/// Maximum length of an index, which is read as a whole; that of a terabyte of logs has a few
/// megabytes.
const INDEX_BYTES_MAX: u64 = 16 << 20;
/// Maximum length of a key.
const KEY_BYTES_MAX: i64 = 64 << 10;
/// Maximum number of digits of a length.
const LENGTH_DIGITS_MAX: usize = 20;

/// Header of a container's log file; the file's bytes come next.
pub(super) struct TFileEntry {
    pub container: String,
    pub file: String,
    pub length: u64,
}

pub(super) struct TFile {
    compression: Compression,
    /// Data blocks not read yet, the next one last.
    blocks: Vec<Run>,
    block: Option<RunReader>,
    value: Option<ValueState>,
    owner: Option<String>,
}

/// State of the value being read.
struct ValueState {
    container: String,
    chunk_left: u64,
    /// True if another chunk follows.
    more: bool,
    /// Bytes of the current file not read yet.
    file_left: u64,
}

impl TFile {
    pub(crate) async fn open(source: &impl Source) -> Result<Self, LogError> {
        let length = source.length();
        let corrupt = |why| LogError::Corrupt { offset: length.saturating_sub(TAIL_BYTES), why };
        if length < MAGIC.len() as u64 + TAIL_BYTES {
            return Err(corrupt("truncated"));
        }
        let end = length - TAIL_BYTES;
        let tail = read(source, end, TAIL_BYTES as usize).await?;
        if tail[12..] != MAGIC {
            return Err(corrupt("missing trailer"));
        }
        let mut head = [0; 8];
        head.copy_from_slice(&tail[..8]);
        let offset = u64::from_be_bytes(head);
        let size = end.checked_sub(offset);
        let size = size.ok_or(corrupt("index outside of the file"))?;
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

    pub(crate) fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// Advances to the next file, whatever is left of the current one.
    pub(crate) async fn next(
        &mut self,
        source: &impl Source,
    ) -> Result<Option<TFileEntry>, LogError> {
        loop {
            if let Some(value) = &self.value {
                self.skip(source, value.file_left).await?;
                if self.at_end_of_value(source).await? {
                    self.value = None;
                    continue;
                }
                return self.read_file_header(source).await.map(Some);
            }
            if self.block.as_ref().is_some_and(|block| block.left() > 0) {
                self.begin_record(source).await?;
                continue;
            }
            let Some(run) = self.blocks.pop() else {
                return Ok(None);
            };
            self.block = Some(RunReader::new(run, self.compression));
        }
    }

    /// Returns a piece of the current file; empty at its end.
    pub(crate) async fn piece(&mut self, source: &impl Source) -> Result<Vec<u8>, LogError> {
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

    /// Skips bytes of the current file, up to its end.
    pub(crate) async fn skip(&mut self, source: &impl Source, length: u64) -> Result<(), LogError> {
        let mut length = length.min(self.value.as_ref().map_or(0, |value| value.file_left));
        while length > 0 {
            if self.at_end_of_value(source).await? {
                return Err(self.corrupt("truncated log"));
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
    async fn begin_record(&mut self, source: &impl Source) -> Result<(), LogError> {
        let length = self.number(source).await?;
        if !(2..=KEY_BYTES_MAX).contains(&length) {
            return Err(self.corrupt("invalid key length"));
        }
        let Some(block) = &mut self.block else {
            return Ok(());
        };
        let key = block.read_exact(source, length as usize).await?;
        // The key is a text with a length prefix.
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
        // The rest of such a value is not needed.
        while !self.at_end_of_value(source).await? {
            self.read_up_to(source, PIECE_BYTES as u64).await?;
        }
        self.value = None;
        Ok(())
    }

    async fn read_file_header(&mut self, source: &impl Source) -> Result<TFileEntry, LogError> {
        let file = self.text(source).await?;
        let digits = self.text(source).await?;
        let length = Some(&digits).filter(|digits| digits.len() <= LENGTH_DIGITS_MAX);
        let length: Option<u64> = length.and_then(|digits| digits.parse().ok());
        let length = length.ok_or(self.corrupt("invalid file length"))?;
        let Some(value) = &mut self.value else {
            return Err(self.corrupt("file without a container"));
        };
        value.file_left = length;
        Ok(TFileEntry { container: value.container.clone(), file, length })
    }

    /// Returns true at the end of the value. Advances to the next chunk if there is one.
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

    /// Returns up to `most` bytes of the value, at least one; none only if `most` is zero.
    async fn read_up_to(&mut self, source: &impl Source, most: u64) -> Result<Vec<u8>, LogError> {
        if most == 0 {
            return Ok(Vec::new());
        }
        if self.at_end_of_value(source).await? {
            return Err(self.corrupt("truncated log"));
        }
        let (Some(block), Some(value)) = (&mut self.block, &mut self.value) else {
            return Ok(Vec::new());
        };
        let bytes = block.read_up_to(source, most.min(value.chunk_left)).await?;
        if bytes.is_empty() {
            return Err(block.corrupt("truncated"));
        }
        value.chunk_left -= bytes.len() as u64;
        Ok(bytes)
    }

    /// Reads a text in the value, prefixed by its length in two bytes.
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

    /// Reads a number in the block, outside of values.
    async fn number(&mut self, source: &impl Source) -> Result<i64, LogError> {
        let Some(block) = &mut self.block else {
            return Err(self.corrupt("missing number"));
        };
        let first = block.read_exact(source, 1).await?[0] as i8;
        let rest = block.read_exact(source, number_length(first)).await?;
        Ok(number(first, &rest))
    }

    fn corrupt(&self, why: &'static str) -> LogError {
        match &self.block {
            Some(block) => block.corrupt(why),
            None => LogError::Corrupt { offset: 0, why },
        }
    }
}

/// Returns the number of bytes after the first byte of a number. The encoding is neither Hadoop's
/// Writable nor protobuf's.
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
        // The longer forms are signed.
        length => {
            let unused = 64 - 8 * length as u32;
            (unsigned << unused) >> unused
        }
    }
}

/// Reads a whole run: an index.
async fn read_whole(
    source: &impl Source,
    run: Run,
    compression: Compression,
) -> Result<Vec<u8>, LogError> {
    let mut reader = RunReader::new(run, compression);
    if run.length > INDEX_BYTES_MAX || run.stored > INDEX_BYTES_MAX {
        return Err(reader.corrupt("index too large"));
    }
    let mut bytes = Vec::new();
    while reader.left() > 0 {
        bytes.extend(reader.read_up_to(source, PIECE_BYTES as u64).await?);
    }
    Ok(bytes)
}

/// Finds the compression and the run of the data block index in the meta index.
fn data_index(cursor: &mut Cursor) -> Result<(String, Run), LogError> {
    for _ in 0..cursor.count()? {
        let name = cursor.string()?;
        let compression = cursor.string()?;
        let run = cursor.run()?;
        if name == "data:BCFile.index" {
            return Ok((compression, run));
        }
    }
    Err(cursor.corrupt("missing block index"))
}

/// Reader of an index in memory.
struct Cursor<'a> {
    bytes: &'a [u8],
    start: u64,
}

impl<'a> Cursor<'a> {
    fn new(bytes: &'a [u8], start: u64) -> Self {
        Self { bytes, start }
    }

    fn corrupt(&self, why: &'static str) -> LogError {
        LogError::Corrupt { offset: self.start, why }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], LogError> {
        let Some((taken, rest)) = self.bytes.split_at_checked(length) else {
            return Err(self.corrupt("truncated index"));
        };
        self.bytes = rest;
        Ok(taken)
    }

    /// Reads a non-negative number.
    fn count(&mut self) -> Result<u64, LogError> {
        let first = self.take(1)?[0] as i8;
        let rest = self.take(number_length(first))?;
        u64::try_from(number(first, rest)).map_err(|_| self.corrupt("negative number in the index"))
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
    async fn an_index_with_an_excessive_length_is_rejected() {
        let run = Run { offset: 0, stored: 0, length: INDEX_BYTES_MAX + 1 };
        let read = read_whole(&&b""[..], run, Compression::Zlib).await;
        let error = read.expect_err("seventeen megabytes").to_string();
        assert!(error.ends_with("index too large"), "{error}");
    }

    #[test]
    fn numbers_are_decoded_like_hadoops() {
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
