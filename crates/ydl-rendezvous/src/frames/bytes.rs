//! Frames as bytes: a letter for the kind, then its parts, integers little-endian, bytes with their length in front.
//!
//! Both ends are one program, so there is no version here; what cannot be read means a peer that lies.

use std::fmt;

use super::{Attached, Call, Down, Mark, Up};

/// Something that has bytes of its own.
pub trait Bytes: Sized {
    /// Adds them.
    fn write(&self, to: &mut Vec<u8>);
    /// Takes them from the front.
    fn read(from: &mut &[u8]) -> Result<Self, Malformed>;
}

/// What was to be read is something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("these bytes are no frames")
    }
}

impl std::error::Error for Malformed {}

/// All frames there are.
pub fn read_all<T: Bytes>(mut from: &[u8]) -> Result<Vec<T>, Malformed> {
    let mut all = Vec::new();
    while !from.is_empty() {
        all.push(T::read(&mut from)?);
    }
    Ok(all)
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Bytes for $type {
            fn write(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }

            fn read(from: &mut &[u8]) -> Result<Self, Malformed> {
                let (bytes, rest) = from.split_first_chunk().ok_or(Malformed)?;
                *from = rest;
                Ok(<$type>::from_le_bytes(*bytes))
            }
        }
    )*};
}

integers!(u8, u16, u32, u64);

impl Bytes for Vec<u8> {
    fn write(&self, to: &mut Vec<u8>) {
        (self.len() as u64).write(to);
        to.extend_from_slice(self);
    }

    fn read(from: &mut &[u8]) -> Result<Self, Malformed> {
        let length = usize::try_from(u64::read(from)?).map_err(|_| Malformed)?;
        let (bytes, rest) = from.split_at_checked(length).ok_or(Malformed)?;
        *from = rest;
        Ok(bytes.to_vec())
    }
}

impl Bytes for Call {
    fn write(&self, to: &mut Vec<u8>) {
        let (kind, number) = match self {
            Call::In(number) => (b'i', number),
            Call::Out(number) => (b'o', number),
        };
        kind.write(to);
        number.write(to);
    }

    fn read(from: &mut &[u8]) -> Result<Self, Malformed> {
        match (u8::read(from)?, u64::read(from)?) {
            (b'i', number) => Ok(Call::In(number)),
            (b'o', number) => Ok(Call::Out(number)),
            _ => Err(Malformed),
        }
    }
}

impl Bytes for Mark {
    fn write(&self, to: &mut Vec<u8>) {
        self.taken.write(to);
        self.index.write(to);
    }

    fn read(from: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(Mark { taken: u64::read(from)?, index: u32::read(from)? })
    }
}

impl Bytes for Attached {
    fn write(&self, to: &mut Vec<u8>) {
        self.call.write(to);
        self.floor.write(to);
        self.settled.write(to);
    }

    fn read(from: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(Attached {
            call: Call::read(from)?,
            floor: u64::read(from)?,
            settled: Mark::read(from)?,
        })
    }
}

impl Bytes for Up {
    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Up::Attach(all) => {
                b'a'.write(to);
                (all.len() as u16).write(to);
                all.iter().for_each(|one| one.write(to));
            }
            Up::Open(call) => {
                b'o'.write(to);
                call.write(to);
            }
            Up::Bytes(call, at, bytes) => {
                b'b'.write(to);
                call.write(to);
                at.write(to);
                bytes.write(to);
            }
            Up::Settled(call, mark) => {
                b's'.write(to);
                call.write(to);
                mark.write(to);
            }
            Up::Closed(call, at) => {
                b'c'.write(to);
                call.write(to);
                at.write(to);
            }
        }
    }

    fn read(from: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(match u8::read(from)? {
            b'a' => {
                let count = u16::read(from)?;
                let all: Result<_, _> = (0..count).map(|_| Attached::read(from)).collect();
                Up::Attach(all?)
            }
            b'o' => Up::Open(Call::read(from)?),
            b'b' => Up::Bytes(Call::read(from)?, u64::read(from)?, Vec::read(from)?),
            b's' => Up::Settled(Call::read(from)?, Mark::read(from)?),
            b'c' => Up::Closed(Call::read(from)?, u64::read(from)?),
            _ => return Err(Malformed),
        })
    }
}

impl Bytes for Down {
    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Down::Bytes(call, mark, bytes) => {
                (if mark.is_some() { b'b' } else { b'f' }).write(to);
                call.write(to);
                if let Some(mark) = mark {
                    mark.write(to);
                }
                bytes.write(to);
            }
            Down::Close(call, mark) => {
                b'c'.write(to);
                call.write(to);
                mark.write(to);
            }
            Down::Dial(call, port) => {
                b'd'.write(to);
                call.write(to);
                port.write(to);
            }
            Down::Taken(call, floor) => {
                b't'.write(to);
                call.write(to);
                floor.write(to);
            }
            Down::Gone(call) => {
                b'g'.write(to);
                call.write(to);
            }
        }
    }

    fn read(from: &mut &[u8]) -> Result<Self, Malformed> {
        let kind = u8::read(from)?;
        let call = Call::read(from)?;
        Ok(match kind {
            b'b' => Down::Bytes(call, Some(Mark::read(from)?), Vec::read(from)?),
            b'f' => Down::Bytes(call, None, Vec::read(from)?),
            b'c' => Down::Close(call, Mark::read(from)?),
            b'd' => Down::Dial(call, u16::read(from)?),
            b't' => Down::Taken(call, u64::read(from)?),
            b'g' => Down::Gone(call),
            _ => return Err(Malformed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Bytes + PartialEq + fmt::Debug>(all: &[T]) {
        let mut bytes = Vec::new();
        all.iter().for_each(|one| one.write(&mut bytes));
        assert_eq!(read_all::<T>(&bytes).as_deref(), Ok(all));
        // A frame less, or none at all, but never half of one.
        for end in 0..bytes.len() {
            if let Ok(fewer) = read_all::<T>(&bytes[..end]) {
                assert_eq!(fewer[..], all[..fewer.len()]);
            }
        }
    }

    #[test]
    fn frames_come_back_as_they_were_or_not_at_all() {
        let (call, back) = (Call::In(7), Call::Out(u64::MAX));
        let mark = Mark { taken: 1 << 40, index: 3 };
        let attached = Attached { call, floor: 12, settled: mark };
        check(&[
            Up::Attach(vec![]),
            Up::Attach(vec![attached, Attached { call: back, ..attached }]),
            Up::Open(call),
            Up::Bytes(call, 9, vec![]),
            Up::Bytes(back, 9, vec![0, 1, 255]),
            Up::Settled(back, mark),
            Up::Closed(call, 4),
        ]);
        check(&[
            Down::Bytes(call, None, vec![1]),
            Down::Bytes(back, Some(mark), vec![]),
            Down::Close(call, mark),
            Down::Dial(back, 65_535),
            Down::Taken(call, 5),
            Down::Gone(back),
        ]);
    }

    #[test]
    fn a_length_beyond_all_bounds_costs_nothing() {
        let mut bytes = vec![b'b', b'i'];
        bytes.extend([0; 16]);
        bytes.extend([0xff; 8]);
        assert_eq!(read_all::<Up>(&bytes), Err(Malformed));
        assert_eq!(read_all::<Down>(b"zzzzzzzzzzzzzzz"), Err(Malformed));
    }
}
