//! The subset of protocol buffers that ps-lite's messages use.

use crate::Rejection;

/// Value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProtoValue<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// A fixed-size number. No known field has one.
    Fixed,
}

impl ProtoValue<'_> {
    /// Returns an int32, which proto2 encodes as 64 bits.
    pub(crate) fn int32(self) -> Result<i32, Rejection> {
        match self {
            ProtoValue::Number(number) => Ok(number as i32),
            _ => Err(malformed()),
        }
    }

    pub(crate) fn flag(self) -> Result<bool, Rejection> {
        match self {
            ProtoValue::Number(number) => Ok(number != 0),
            _ => Err(malformed()),
        }
    }
}

impl<'a> ProtoValue<'a> {
    pub(crate) fn bytes(self) -> Result<&'a [u8], Rejection> {
        match self {
            ProtoValue::Bytes(bytes) => Ok(bytes),
            _ => Err(malformed()),
        }
    }
}

pub(super) fn malformed() -> Rejection {
    Rejection::new("malformed ps-lite message")
}

/// Reads the fields of a message in order, including unknown ones.
#[derive(Clone, Debug)]
pub(super) struct ProtoReader<'a>(pub &'a [u8]);

impl<'a> ProtoReader<'a> {
    fn number(&mut self) -> Result<u64, Rejection> {
        let mut number = 0;
        for at in 0..10 {
            let (&byte, rest) = self.0.split_first().ok_or_else(malformed)?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f).wrapping_shl(7 * at);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(malformed())
    }

    fn bytes(&mut self, length: u64) -> Result<&'a [u8], Rejection> {
        let length = usize::try_from(length).map_err(|_| malformed())?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or_else(malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(crate) fn next(&mut self) -> Result<Option<(u64, ProtoValue<'a>)>, Rejection> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.number()?;
        let value = match tag & 7 {
            0 => ProtoValue::Number(self.number()?),
            1 => self.bytes(8).map(|_| ProtoValue::Fixed)?,
            2 => {
                let length = self.number()?;
                ProtoValue::Bytes(self.bytes(length)?)
            }
            5 => self.bytes(4).map(|_| ProtoValue::Fixed)?,
            _ => return Err(malformed()),
        };
        Ok(Some((tag >> 3, value)))
    }
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(super) fn put_int32(out: &mut Vec<u8>, field: u64, number: i32) {
    varint(out, field << 3);
    varint(out, i64::from(number) as u64);
}

pub(super) fn put_flag(out: &mut Vec<u8>, field: u64, flag: bool) {
    put_int32(out, field, flag.into());
}

pub(super) fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_numbers_take_ten_bytes_and_survive_a_round_trip() {
        let mut out = Vec::new();
        put_int32(&mut out, 1, -1);
        assert_eq!(out.len(), 11);
        let (field, value) = ProtoReader(&out).next().unwrap().unwrap();
        assert_eq!((field, value.int32()), (1, Ok(-1)));
    }

    #[test]
    fn truncated_and_overlong_fields_are_rejected() {
        for bytes in [
            &[0x0a, 5, 1][..],
            &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
            &[0x08, 0x80],
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
            &[0x0b],
            &[0x09, 1, 2],
        ] {
            assert!(ProtoReader(bytes).next().is_err(), "{bytes:?}");
        }
    }
}
