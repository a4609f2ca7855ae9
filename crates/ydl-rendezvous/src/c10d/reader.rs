//! Parsing of numbers, keys and lists, within limits.
//!
//! Numbers are little-endian. Keys, values and lists are prefixed with their length in eight bytes.

use crate::Rejection;

/// Maximum length of a key, as in torch.
pub const KEY_MAX: usize = 8 << 10;
/// Maximum length of a list, as in torch.
pub const LIST_MAX: usize = 128 << 10;
/// Maximum length of a message. torch allows values of 8 MiB and lists of 1 GiB. But messages that change the store are
/// written to the journal, and rendezvous needs a few hundred bytes per process.
pub const MESSAGE_MAX: usize = 1 << 20;

/// Size of an encoded length.
const LENGTH: usize = size_of::<u64>();

/// Reason why there is no complete message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum C10dParseError {
    /// More bytes are needed: at least this many in total.
    Incomplete(usize),
    /// The message is invalid.
    Invalid(Rejection),
}

/// A key and its value.
pub(super) type Pair<'a> = (&'a [u8], &'a [u8]);

pub(super) fn invalid(what: impl Into<String>) -> C10dParseError {
    C10dParseError::Invalid(Rejection::new(what))
}

/// Cursor over the bytes of a message.
#[derive(Debug)]
pub(super) struct C10dReader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Minimum length of what follows the item being read. It avoids parsing a long list again for every byte that
    /// arrives.
    remaining: usize,
}

impl<'a> C10dReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> C10dReader<'a> {
        C10dReader { bytes, at: 0, remaining: 0 }
    }

    /// Returns the number of bytes read.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Reads `length` bytes. The caller has checked the length, so the sum cannot overflow.
    fn bytes(&mut self, length: usize) -> Result<&'a [u8], C10dParseError> {
        let end = self.at + length;
        match self.bytes.get(self.at..end) {
            Some(bytes) => {
                self.at = end;
                Ok(bytes)
            }
            None => Err(C10dParseError::Incomplete(end + self.remaining)),
        }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], C10dParseError> {
        let bytes = self.bytes(N)?;
        Ok(bytes.try_into().expect("the slice has N bytes"))
    }

    pub(super) fn byte(&mut self) -> Result<u8, C10dParseError> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn number(&mut self) -> Result<i64, C10dParseError> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// Reads a length and checks its maximum.
    fn length(&mut self, of: &str, max: usize) -> Result<usize, C10dParseError> {
        let length = u64::from_le_bytes(self.array()?);
        match usize::try_from(length) {
            Ok(length) if length <= max => Ok(length),
            _ => Err(invalid(format!("{of} length `{length}` exceeds the maximum of `{max}`"))),
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

    /// Reads a list of items with at least `min_item` bytes each. Allocates nothing for items that have not arrived.
    fn list<T>(
        &mut self,
        min_item: usize,
        mut item: impl FnMut(&mut Self) -> Result<T, C10dParseError>,
    ) -> Result<Vec<T>, C10dParseError> {
        let count = self.length("list", LIST_MAX)?;
        let mut list = Vec::new();
        for left in (0..count).rev() {
            self.remaining = left * min_item;
            list.push(item(self)?);
        }
        Ok(list)
    }
}
