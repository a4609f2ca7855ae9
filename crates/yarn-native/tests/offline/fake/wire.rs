//! Independent implementation of Hadoop's wire format, so that the library's tests do not share its
//! errors.

use tokio::io::{AsyncRead, AsyncReadExt};

/// Encodes a protobuf varint.
pub fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 127 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

pub fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

pub fn bytes(field: u64, value: impl AsRef<[u8]>) -> Vec<u8> {
    [varint(field << 3 | 2), delimited(value)].concat()
}

pub fn delimited(value: impl AsRef<[u8]>) -> Vec<u8> {
    let value = value.as_ref();
    [varint(value.len() as u64), value.to_vec()].concat()
}

pub fn frame(payload: &[u8]) -> Vec<u8> {
    [&(payload.len() as u32).to_be_bytes()[..], payload].concat()
}

/// Decoded fields of a message.
#[derive(Clone, Debug, Default)]
pub struct Fields(Vec<(u64, u64, Vec<u8>)>);

impl Fields {
    pub fn parse(mut rest: &[u8]) -> Self {
        let mut fields = Vec::new();
        while !rest.is_empty() {
            let tag = take_varint(&mut rest);
            match tag & 7 {
                0 => fields.push((tag >> 3, take_varint(&mut rest), Vec::new())),
                2 => fields.push((tag >> 3, 0, take_delimited(&mut rest))),
                kind => panic!("unsupported wire type {kind}"),
            }
        }
        Self(fields)
    }

    pub fn number(&self, field: u64) -> Option<u64> {
        self.0.iter().rev().find(|(f, ..)| *f == field).map(|(_, number, _)| *number)
    }

    pub fn bytes(&self, field: u64) -> Option<&[u8]> {
        self.0.iter().rev().find(|(f, ..)| *f == field).map(|(_, _, bytes)| &bytes[..])
    }

    pub fn text(&self, field: u64) -> Option<String> {
        self.bytes(field).map(|bytes| String::from_utf8(bytes.to_vec()).expect("a text"))
    }

    /// Returns a zigzag-encoded number.
    pub fn signed(&self, field: u64) -> Option<i64> {
        self.number(field).map(|n| (n >> 1) as i64 ^ -((n & 1) as i64))
    }
}

pub fn take_varint(rest: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = rest[0];
        *rest = &rest[1..];
        value |= u64::from(byte & 127) << shift;
        shift += 7;
        if byte < 128 {
            return value;
        }
    }
}

pub fn take_delimited(rest: &mut &[u8]) -> Vec<u8> {
    let length = take_varint(rest) as usize;
    let (value, after) = rest.split_at(length);
    *rest = after;
    value.to_vec()
}

/// Reads the next frame; `None` if the client has disconnected.
pub async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let length = stream.read_u32().await.ok()?;
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload).await.ok()?;
    Some(payload)
}

/// Encodes a response header.
pub fn header(call: u32, status: u64) -> Vec<u8> {
    [number(1, call.into()), number(2, status)].concat()
}

pub fn success(call: u32, body: &[u8]) -> Vec<u8> {
    frame(&[delimited(header(call, 0)), delimited(body)].concat())
}

/// Encodes an exception: `status` 1 for the call, 2 for the whole connection.
pub fn exception(call: u32, status: u64, class: &str, message: &str) -> Vec<u8> {
    let header = [header(call, status), bytes(4, class), bytes(5, message)].concat();
    frame(&delimited(header))
}
