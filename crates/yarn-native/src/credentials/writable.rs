//! Hadoop's Writable encoding for credentials.
//!
//! Numbers from −112 to 127 take one byte. For others the first byte encodes the number of
//! following bytes and the sign; negative numbers are stored as their complement.

use super::{Credentials, FormatError};
use crate::token::{Secret, Token};

/// Cursor over bytes. Every length is checked against the remaining bytes before allocating.
pub(super) struct WritableReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> WritableReader<'a> {
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], FormatError> {
        let end = self.at.checked_add(length);
        let bytes = end.and_then(|end| self.bytes.get(self.at..end));
        let bytes = bytes.ok_or(FormatError::Short(self.bytes.len()))?;
        self.at += length;
        Ok(bytes)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, FormatError> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn long(&mut self) -> Result<i64, FormatError> {
        let first = self.byte()? as i8;
        let (length, negative) = match first {
            -112..=127 => return Ok(i64::from(first)),
            -120..=-113 => (-(i32::from(first) + 112), false),
            _ => (-(i32::from(first) + 120), true),
        };
        let mut value = 0i64;
        for byte in self.take(length as usize)? {
            value = (value << 8) | i64::from(*byte);
        }
        Ok(if negative { !value } else { value })
    }

    /// Reads a non-negative number.
    pub(crate) fn length(&mut self) -> Result<usize, FormatError> {
        let at = self.at;
        usize::try_from(self.long()?).map_err(|_| FormatError::Number(at))
    }

    pub(crate) fn block(&mut self) -> Result<&'a [u8], FormatError> {
        let length = self.length()?;
        self.take(length)
    }

    pub(crate) fn text(&mut self) -> Result<String, FormatError> {
        let at = self.at;
        let bytes = self.block()?;
        let text = std::str::from_utf8(bytes).map_err(|_| FormatError::Text(at))?;
        Ok(text.to_owned())
    }
}

pub(super) fn parse(bytes: &[u8], at: usize) -> Result<Credentials, FormatError> {
    let mut reader = WritableReader::new(bytes, at);
    let mut credentials = Credentials::default();
    for _ in 0..reader.length()? {
        let alias = reader.text()?;
        let identifier = reader.block()?.to_vec();
        let password = Secret::new(reader.block()?.to_vec());
        let token = Token { identifier, password, kind: reader.text()?, service: reader.text()? };
        credentials.add(alias, token);
    }
    for _ in 0..reader.length()? {
        let alias = reader.text()?;
        let secret = Secret::new(reader.block()?.to_vec());
        credentials.set_secret(alias, secret);
    }
    Ok(credentials)
}

pub(super) fn write(credentials: &Credentials, out: &mut Vec<u8>) {
    put_long(credentials.tokens.len() as i64, out);
    for (alias, token) in &credentials.tokens {
        put_block(alias.as_bytes(), out);
        put_block(&token.identifier, out);
        put_block(token.password.expose(), out);
        put_block(token.kind.as_bytes(), out);
        put_block(token.service.as_bytes(), out);
    }
    put_long(credentials.secrets.len() as i64, out);
    for (alias, secret) in &credentials.secrets {
        put_block(alias.as_bytes(), out);
        put_block(secret.expose(), out);
    }
}

fn put_block(bytes: &[u8], out: &mut Vec<u8>) {
    put_long(bytes.len() as i64, out);
    out.extend_from_slice(bytes);
}

fn put_long(value: i64, out: &mut Vec<u8>) {
    if let -112..=127 = value {
        out.push(value as u8);
        return;
    }
    let (base, magnitude) = match value < 0 {
        true => (-120i32, !value),
        false => (-112, value),
    };
    let bytes = magnitude.to_be_bytes();
    let skipped = magnitude.leading_zeros() as usize / 8;
    let length = bytes.len() - skipped;
    out.push((base - length as i32) as u8);
    out.extend_from_slice(&bytes[skipped..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_encoded_as_in_hadoop() {
        for (value, bytes) in [
            (0, &[0][..]),
            (127, &[0x7f]),
            (128, &[0x8f, 0x80]),
            (255, &[0x8f, 0xff]),
            (256, &[0x8e, 1, 0]),
            (-112, &[0x90]),
            (-113, &[0x87, 0x70]),
        ] {
            let mut out = Vec::new();
            put_long(value, &mut out);
            assert_eq!(out, bytes, "{value}");
        }
    }

    #[test]
    fn numbers_round_trip() {
        let powers = (0..63).map(|bit| 1i64 << bit);
        let values = powers.flat_map(|power| [power - 1, power, -power, !power]);
        for value in values.chain([i64::MIN, i64::MAX]) {
            let mut out = Vec::new();
            put_long(value, &mut out);
            assert_eq!(WritableReader::new(&out, 0).long(), Ok(value));
        }
    }
}
