//! Numbers, keys and lists out of bytes, within limits.
//!
//! Numbers are little-endian; a key, a value and a list have their length before them, as eight bytes.

use crate::Rejection;

/// torch's own limit.
pub const KEY_MAX: usize = 8 << 10;
/// torch's own limit.
pub const LIST_MAX: usize = 128 << 10;
/// torch itself takes values of 8 MiB, and lists of a gigabyte. But what changes something is written down, and what
/// programs meet with has some hundred bytes for each of them.
pub const MESSAGE_MAX: usize = 1 << 20;

/// A length.
const LENGTH: usize = size_of::<u64>();

/// Why there is no whole message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum C10dParseError {
    /// It has at least so many bytes in all.
    Incomplete(usize),
    /// It never will be one.
    Invalid(Rejection),
}

/// A key and its value.
pub(super) type Pair<'a> = (&'a [u8], &'a [u8]);

pub(super) fn wrong(what: impl Into<String>) -> C10dParseError {
    C10dParseError::Invalid(Rejection::new(what))
}

/// Bytes, and how many of them were read.
#[derive(Debug)]
pub(super) struct C10dReader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The least that must follow what is being read: whoever has a long list that arrives byte by byte is asked again
    /// only when it can have become longer by a part of it, not for every byte.
    behind: usize,
}

impl<'a> C10dReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> C10dReader<'a> {
        C10dReader { bytes, at: 0, behind: 0 }
    }

    /// How many bytes were read.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// So many bytes. Lengths are checked before, so the sums below stay small.
    fn bytes(&mut self, length: usize) -> Result<&'a [u8], C10dParseError> {
        let end = self.at + length;
        match self.bytes.get(self.at..end) {
            Some(bytes) => {
                self.at = end;
                Ok(bytes)
            }
            None => Err(C10dParseError::Incomplete(end + self.behind)),
        }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], C10dParseError> {
        let bytes = self.bytes(N)?;
        Ok(bytes.try_into().expect("so many bytes were asked for"))
    }

    pub(super) fn byte(&mut self) -> Result<u8, C10dParseError> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn number(&mut self) -> Result<i64, C10dParseError> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// A length that is not above what such a thing may have.
    fn length(&mut self, of: &str, max: usize) -> Result<usize, C10dParseError> {
        let length = u64::from_le_bytes(self.array()?);
        match usize::try_from(length) {
            Ok(length) if length <= max => Ok(length),
            _ => Err(wrong(format!("{of} length `{length}` exceeds the maximum of `{max}`"))),
        }
    }

    pub(super) fn key(&mut self) -> Result<&'a [u8], C10dParseError> {
        let length = self.length("key", KEY_MAX)?;
        self.bytes(length)
    }

    pub(super) fn value(&mut self) -> Result<&'a [u8], C10dParseError> {
        let length = self.length("value", MESSAGE_MAX)?;
        self.bytes(length)
    }

    pub(super) fn keys(&mut self) -> Result<Vec<&'a [u8]>, C10dParseError> {
        self.list(LENGTH, C10dReader::key)
    }

    pub(super) fn pairs(&mut self) -> Result<Vec<Pair<'a>>, C10dParseError> {
        self.list(2 * LENGTH, |reader| Ok((reader.key()?, reader.value()?)))
    }

    /// A list whose items have at least so many bytes each. Nothing is set aside for what was only announced.
    fn list<T>(
        &mut self,
        least: usize,
        mut item: impl FnMut(&mut Self) -> Result<T, C10dParseError>,
    ) -> Result<Vec<T>, C10dParseError> {
        let count = self.length("list", LIST_MAX)?;
        let mut list = Vec::new();
        for left in (0..count).rev() {
            self.behind = left * least;
            list.push(item(self)?);
        }
        Ok(list)
    }
}
