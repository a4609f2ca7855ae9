//! Parsing of messages, and encoding of numbers and strings.

use crate::Rejection;

/// Maximum length of a task id. XGBoost's front ends put host names in it.
const TASK_MAX: usize = 4096;
const COMMAND_MAX: usize = 16;
/// Maximum length of a printed message.
pub(super) const PRINTED_MAX: usize = 64 << 10;

/// Command of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RabitCommand<'a> {
    Start,
    Recover,
    Shutdown,
    Print(&'a [u8]),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct RabitHeader<'a> {
    /// −1 if the worker has none yet.
    pub rank: i32,
    /// −1 if the worker does not know it.
    pub world: i32,
    pub command: RabitCommand<'a>,
}

/// Cursor over the bytes of a message. Methods return `None` if bytes are missing.
#[derive(Debug)]
pub(super) struct RabitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> RabitReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> RabitReader<'a> {
        RabitReader { bytes, at: 0 }
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn int(&mut self) -> Option<i32> {
        let int = self.bytes.get(self.at..)?.first_chunk()?;
        self.at += 4;
        Some(i32::from_le_bytes(*int))
    }

    /// Reads a string. Rejects an oversized length at once.
    fn text(&mut self, max: usize) -> Result<Option<&'a [u8]>, Rejection> {
        let Some(length) = self.int() else {
            return Ok(None);
        };
        let length = match usize::try_from(length) {
            Ok(length) if length <= max => length,
            _ => {
                return Err(Rejection::new(format!("invalid string length {length}")));
            }
        };
        let text = self.bytes.get(self.at..self.at + length);
        self.at += length;
        Ok(text)
    }

    /// Reads a header, including a printed message.
    pub(crate) fn header(&mut self) -> Result<Option<RabitHeader<'a>>, Rejection> {
        let (Some(rank), Some(world)) = (self.int(), self.int()) else {
            return Ok(None);
        };
        if self.text(TASK_MAX)?.is_none() {
            return Ok(None);
        }
        let command = match self.text(COMMAND_MAX)? {
            None => return Ok(None),
            Some(b"start") => RabitCommand::Start,
            Some(b"recover") => RabitCommand::Recover,
            Some(b"shutdown") => RabitCommand::Shutdown,
            Some(b"print") => match self.text(PRINTED_MAX)? {
                None => return Ok(None),
                Some(text) => RabitCommand::Print(text),
            },
            Some(_) => return Err(Rejection::new("unknown tracker command")),
        };
        Ok(Some(RabitHeader { rank, world, command }))
    }

    /// Reads a list of ranks below `workers`.
    pub(crate) fn ranks(&mut self, workers: u32) -> Result<Option<Vec<u32>>, Rejection> {
        let invalid = || Rejection::new("invalid list of ranks");
        let Some(count) = self.int() else {
            return Ok(None);
        };
        let count = u32::try_from(count).map_err(|_| invalid())?;
        if count > workers {
            return Err(invalid());
        }
        let mut ranks = Vec::new();
        for _ in 0..count {
            let Some(rank) = self.int() else {
                return Ok(None);
            };
            let known = u32::try_from(rank).ok().filter(|rank| *rank < workers);
            ranks.push(known.ok_or_else(invalid)?);
        }
        Ok(Some(ranks))
    }
}

pub(super) fn put_int(out: &mut Vec<u8>, number: i64) {
    out.extend((number as i32).to_le_bytes());
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_int(out, text.len() as i64);
    out.extend(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_parsed_once_it_is_complete() {
        let bytes = b"\xff\xff\xff\xff\xff\xff\xff\xff\x04\0\0\0NULL\x05\0\0\0startmore";
        let mut reader = RabitReader::new(bytes);
        let header = RabitHeader { rank: -1, world: -1, command: RabitCommand::Start };
        assert_eq!(reader.header(), Ok(Some(header)));
        assert_eq!(reader.position(), bytes.len() - 4);
        for cut in 0..bytes.len() - 4 {
            assert_eq!(RabitReader::new(&bytes[..cut]).header(), Ok(None), "{cut}");
        }
    }

    #[test]
    fn invalid_lengths_are_rejected_at_once() {
        for length in [-1, 1 << 20, i32::MAX, i32::MIN] {
            let mut bytes = vec![0; 8];
            put_int(&mut bytes, length.into());
            assert!(RabitReader::new(&bytes).header().is_err());
        }
        assert!(RabitReader::new(&[9, 0, 0, 0]).ranks(8).is_err());
        assert!(RabitReader::new(&[1, 0, 0, 0, 8, 0, 0, 0]).ranks(8).is_err());
        assert!(RabitReader::new(&[255; 4]).ranks(8).is_err());
        assert_eq!(RabitReader::new(&[1, 0, 0, 0, 7]).ranks(8), Ok(None));
    }
}
