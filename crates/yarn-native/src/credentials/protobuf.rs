//! Protocol buffers decoding and encoding for credentials and token identifiers.
//!
//! Fields are read in place instead of through generated messages, which would copy passwords into
//! buffers that are not erased.

use super::{Credentials, FormatError};
use crate::token::{Secret, Token};

/// Value of a message field.
#[derive(Clone, Copy, Debug)]
pub(super) enum FieldValue<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Fixed-size number; unused by these messages.
    Fixed,
}

/// Iterates over the fields of a message. Nested messages are returned as bytes.
pub(super) struct FieldReader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Offset of the message in the input, for errors.
    base: usize,
}

impl<'a> FieldReader<'a> {
    pub(crate) fn new(bytes: &'a [u8], base: usize) -> Self {
        Self { bytes, at: 0, base }
    }

    /// Returns the next field, or `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, FieldValue<'a>)>, FormatError> {
        if self.at == self.bytes.len() {
            return Ok(None);
        }
        let start = self.base + self.at;
        let tag = self.number()?;
        let field = u32::try_from(tag >> 3).map_err(|_| FormatError::Number(start))?;
        let value = match tag & 7 {
            0 => FieldValue::Number(self.number()?),
            1 => self.take(8).map(|_| FieldValue::Fixed)?,
            2 => {
                let length = self.number()?;
                let length = usize::try_from(length).map_err(|_| FormatError::Number(start))?;
                FieldValue::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| FieldValue::Fixed)?,
            _ => return Err(FormatError::Number(start)),
        };
        Ok(Some((field, value)))
    }

    /// Returns the offset of the next field.
    pub(crate) fn position(&self) -> usize {
        self.base + self.at
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], FormatError> {
        let end = self.at.checked_add(length);
        let bytes = end.and_then(|end| self.bytes.get(self.at..end));
        let bytes = bytes.ok_or(FormatError::Short(self.base + self.bytes.len()))?;
        self.at += length;
        Ok(bytes)
    }

    fn number(&mut self) -> Result<u64, FormatError> {
        let start = self.base + self.at;
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(FormatError::Number(start))
    }
}

/// Decodes the text of a field.
pub(super) fn text(bytes: &[u8], at: usize) -> Result<String, FormatError> {
    let text = std::str::from_utf8(bytes).map_err(|_| FormatError::Text(at))?;
    Ok(text.to_owned())
}

/// An alias with its token or secret; any field may be missing.
#[derive(Default)]
struct Item<'a> {
    alias: String,
    token: Option<Token>,
    secret: Option<&'a [u8]>,
}

pub(super) fn parse(bytes: &[u8], at: usize) -> Result<Credentials, FormatError> {
    let mut outer = FieldReader::new(&bytes[at..], at);
    let length = outer.number()?;
    let start = outer.position();
    let length = usize::try_from(length).map_err(|_| FormatError::Number(at))?;
    let body = outer.take(length)?;

    let mut credentials = Credentials::default();
    let mut fields = FieldReader::new(body, start);
    while let Some((field, value)) = fields.next()? {
        let FieldValue::Bytes(inner) = value else { continue };
        let at = fields.position() - inner.len();
        match field {
            1 => {
                let item = item(inner, at)?;
                if let Some(token) = item.token {
                    credentials.add(item.alias, token);
                }
            }
            2 => {
                let item = item(inner, at)?;
                let secret = item.secret.unwrap_or_default().to_vec();
                credentials.set_secret(item.alias, secret);
            }
            _ => {}
        }
    }
    Ok(credentials)
}

fn item(bytes: &[u8], at: usize) -> Result<Item<'_>, FormatError> {
    let mut item = Item::default();
    let mut fields = FieldReader::new(bytes, at);
    while let Some((field, value)) = fields.next()? {
        let FieldValue::Bytes(inner) = value else { continue };
        let at = fields.position() - inner.len();
        match field {
            1 => item.alias = text(inner, at)?,
            2 => item.token = Some(token(inner, at)?),
            3 => item.secret = Some(inner),
            _ => {}
        }
    }
    Ok(item)
}

fn token(bytes: &[u8], at: usize) -> Result<Token, FormatError> {
    let mut token = Token {
        identifier: Vec::new(),
        password: Secret::default(),
        kind: String::new(),
        service: String::new(),
    };
    let mut fields = FieldReader::new(bytes, at);
    while let Some((field, value)) = fields.next()? {
        let FieldValue::Bytes(inner) = value else { continue };
        let at = fields.position() - inner.len();
        match field {
            1 => token.identifier = inner.to_vec(),
            2 => token.password = Secret::new(inner.to_vec()),
            3 => token.kind = text(inner, at)?,
            4 => token.service = text(inner, at)?,
            _ => {}
        }
    }
    Ok(token)
}

/// Writes into the buffer without intermediate copies, lengths first.
pub(super) fn write(credentials: &Credentials, out: &mut Vec<u8>) {
    let tokens = credentials.tokens.iter();
    let secrets = credentials.secrets.iter();
    let lengths = tokens.clone().map(|(alias, token)| token_item_length(alias, token));
    let tokens_length: usize = lengths.map(field_length).sum();
    let lengths = secrets.clone().map(|(alias, secret)| secret_item_length(alias, secret));
    let secrets_length: usize = lengths.map(field_length).sum();
    put_number((tokens_length + secrets_length) as u64, out);
    for (alias, token) in tokens {
        put_head(1, token_item_length(alias, token), out);
        put_field(1, alias.as_bytes(), out);
        put_head(2, token_length(token), out);
        put_field(1, &token.identifier, out);
        put_field(2, token.password.expose(), out);
        put_field(3, token.kind.as_bytes(), out);
        put_field(4, token.service.as_bytes(), out);
    }
    for (alias, secret) in secrets {
        put_head(2, secret_item_length(alias, secret), out);
        put_field(1, alias.as_bytes(), out);
        put_field(3, secret.expose(), out);
    }
}

fn token_length(token: &Token) -> usize {
    field_length(token.identifier.len())
        + field_length(token.password.expose().len())
        + field_length(token.kind.len())
        + field_length(token.service.len())
}

fn token_item_length(alias: &str, token: &Token) -> usize {
    field_length(alias.len()) + field_length(token_length(token))
}

fn secret_item_length(alias: &str, secret: &Secret) -> usize {
    field_length(alias.len()) + field_length(secret.expose().len())
}

/// Returns the encoded size of a field of `length` bytes, with tag and length prefix. All tags here
/// are one byte long.
fn field_length(length: usize) -> usize {
    let digits = usize::BITS - length.leading_zeros();
    1 + (digits.max(1)).div_ceil(7) as usize + length
}

fn put_field(field: u8, bytes: &[u8], out: &mut Vec<u8>) {
    put_head(field, bytes.len(), out);
    out.extend_from_slice(bytes);
}

fn put_head(field: u8, length: usize, out: &mut Vec<u8>) {
    out.push(field << 3 | 2);
    put_number(length as u64, out);
}

fn put_number(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
