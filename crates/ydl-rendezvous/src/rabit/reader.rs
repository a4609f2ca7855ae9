//! What a worker says, and how numbers are written.

use crate::Rejection;

/// Ids of tasks are a few letters; XGBoost's front ends put host names in them.
const TASK_MAX: usize = 4096;
const COMMAND_MAX: usize = 16;
/// What is printed through a tracker is a line or two.
pub(super) const PRINTED_MAX: usize = 64 << 10;

/// What a connection is for, after the magic number.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RabitCommand<'a> {
    Start,
    Recover,
    Shutdown,
    Print(&'a [u8]),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct RabitHeader<'a> {
    /// −1 where the worker has none yet.
    pub rank: i32,
    /// −1 where the worker does not know.
    pub world: i32,
    pub command: RabitCommand<'a>,
}

/// Reads from the front; `None` as soon as something is not there yet.
#[derive(Debug)]
pub(super) struct RabitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> RabitReader<'a> {
    pub fn of(bytes: &'a [u8]) -> RabitReader<'a> {
        RabitReader { bytes, at: 0 }
    }

    pub fn taken(&self) -> usize {
        self.at
    }

    pub fn int(&mut self) -> Option<i32> {
        let int = self.bytes.get(self.at..)?.first_chunk()?;
        self.at += 4;
        Some(i32::from_le_bytes(*int))
    }

    /// Refused as soon as its length is known to be too great.
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

    /// All of it, also what is printed.
    pub fn header(&mut self) -> Result<Option<RabitHeader<'a>>, Rejection> {
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

    /// Ranks with their number before them, none above `workers`.
    pub fn ranks(&mut self, workers: u32) -> Result<Option<Vec<u32>>, Rejection> {
        let wrong = || Rejection::new("invalid list of ranks");
        let Some(count) = self.int() else {
            return Ok(None);
        };
        let count = u32::try_from(count).map_err(|_| wrong())?;
        if count > workers {
            return Err(wrong());
        }
        let mut ranks = Vec::new();
        for _ in 0..count {
            let Some(rank) = self.int() else {
                return Ok(None);
            };
            let known = u32::try_from(rank).ok().filter(|rank| *rank < workers);
            ranks.push(known.ok_or_else(wrong)?);
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
    fn a_header_is_read_when_it_is_whole() {
        let bytes = b"\xff\xff\xff\xff\xff\xff\xff\xff\x04\0\0\0NULL\x05\0\0\0startmore";
        let mut words = RabitReader::of(bytes);
        let header = RabitHeader { rank: -1, world: -1, command: RabitCommand::Start };
        assert_eq!(words.header(), Ok(Some(header)));
        assert_eq!(words.taken(), bytes.len() - 4);
        for cut in 0..bytes.len() - 4 {
            assert_eq!(RabitReader::of(&bytes[..cut]).header(), Ok(None), "{cut}");
        }
    }

    #[test]
    fn lengths_that_cannot_be_are_refused_at_once() {
        for length in [-1, 1 << 20, i32::MAX, i32::MIN] {
            let mut bytes = vec![0; 8];
            put_int(&mut bytes, length.into());
            assert!(RabitReader::of(&bytes).header().is_err());
        }
        assert!(RabitReader::of(&[9, 0, 0, 0]).ranks(8).is_err());
        assert!(RabitReader::of(&[1, 0, 0, 0, 8, 0, 0, 0]).ranks(8).is_err());
        assert!(RabitReader::of(&[255; 4]).ranks(8).is_err());
        assert_eq!(RabitReader::of(&[1, 0, 0, 0, 7]).ranks(8), Ok(None));
    }
}
