//! Encoding of frames: a letter for the kind, then the fields. Integers are little-endian, byte strings
//! length-prefixed.
//!
//! Both ends are the same program, so there is no version. A frame that cannot be decoded is an error of the peer.

use std::fmt;

use super::frame::{ClientFrame, ConnId, ConnState, Seq, ServerFrame};

/// A value with a binary encoding.
pub trait Codec: Sized {
    /// Appends the encoding.
    fn encode(&self, to: &mut Vec<u8>);
    /// Decodes a value from the front of `from`.
    fn decode(from: &mut &[u8]) -> Result<Self, DecodeError>;
}

/// The bytes are not a valid encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError;

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malformed frame")
    }
}

impl std::error::Error for DecodeError {}

/// Decodes all frames.
pub fn decode_all<T: Codec>(mut from: &[u8]) -> Result<Vec<T>, DecodeError> {
    let mut all = Vec::new();
    while !from.is_empty() {
        all.push(T::decode(&mut from)?);
    }
    Ok(all)
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Codec for $type {
            fn encode(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }

            fn decode(from: &mut &[u8]) -> Result<Self, DecodeError> {
                let (bytes, rest) = from.split_first_chunk().ok_or(DecodeError)?;
                *from = rest;
                Ok(<$type>::from_le_bytes(*bytes))
            }
        }
    )*};
}

integers!(u8, u16, u32, u64);

impl Codec for Vec<u8> {
    fn encode(&self, to: &mut Vec<u8>) {
        (self.len() as u64).encode(to);
        to.extend_from_slice(self);
    }

    fn decode(from: &mut &[u8]) -> Result<Self, DecodeError> {
        let length = usize::try_from(u64::decode(from)?).map_err(|_| DecodeError)?;
        let (bytes, rest) = from.split_at_checked(length).ok_or(DecodeError)?;
        *from = rest;
        Ok(bytes.to_vec())
    }
}

impl Codec for ConnId {
    fn encode(&self, to: &mut Vec<u8>) {
        let (kind, number) = match self {
            ConnId::Inbound(number) => (b'i', number),
            ConnId::Outbound(number) => (b'o', number),
        };
        kind.encode(to);
        number.encode(to);
    }

    fn decode(from: &mut &[u8]) -> Result<Self, DecodeError> {
        match (u8::decode(from)?, u64::decode(from)?) {
            (b'i', number) => Ok(ConnId::Inbound(number)),
            (b'o', number) => Ok(ConnId::Outbound(number)),
            _ => Err(DecodeError),
        }
    }
}

impl Codec for Seq {
    fn encode(&self, to: &mut Vec<u8>) {
        self.consumed.encode(to);
        self.index.encode(to);
    }

    fn decode(from: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(Seq { consumed: u64::decode(from)?, index: u32::decode(from)? })
    }
}

impl Codec for ConnState {
    fn encode(&self, to: &mut Vec<u8>) {
        self.conn.encode(to);
        self.buffered_from.encode(to);
        self.acked.encode(to);
    }

    fn decode(from: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(ConnState {
            conn: ConnId::decode(from)?,
            buffered_from: u64::decode(from)?,
            acked: Seq::decode(from)?,
        })
    }
}

impl Codec for ClientFrame {
    fn encode(&self, to: &mut Vec<u8>) {
        match self {
            ClientFrame::Attach(all) => {
                b'a'.encode(to);
                (all.len() as u16).encode(to);
                all.iter().for_each(|one| one.encode(to));
            }
            ClientFrame::Open(conn) => {
                b'o'.encode(to);
                conn.encode(to);
            }
            ClientFrame::Data(conn, offset, bytes) => {
                b'b'.encode(to);
                conn.encode(to);
                offset.encode(to);
                bytes.encode(to);
            }
            ClientFrame::Ack(conn, seq) => {
                b's'.encode(to);
                conn.encode(to);
                seq.encode(to);
            }
            ClientFrame::Closed(conn, offset) => {
                b'c'.encode(to);
                conn.encode(to);
                offset.encode(to);
            }
        }
    }

    fn decode(from: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(match u8::decode(from)? {
            b'a' => {
                let count = u16::decode(from)?;
                let all: Result<_, _> = (0..count).map(|_| ConnState::decode(from)).collect();
                ClientFrame::Attach(all?)
            }
            b'o' => ClientFrame::Open(ConnId::decode(from)?),
            b'b' => {
                ClientFrame::Data(ConnId::decode(from)?, u64::decode(from)?, Vec::decode(from)?)
            }
            b's' => ClientFrame::Ack(ConnId::decode(from)?, Seq::decode(from)?),
            b'c' => ClientFrame::Closed(ConnId::decode(from)?, u64::decode(from)?),
            _ => return Err(DecodeError),
        })
    }
}

impl Codec for ServerFrame {
    fn encode(&self, to: &mut Vec<u8>) {
        match self {
            ServerFrame::Data(conn, seq, bytes) => {
                (if seq.is_some() { b'b' } else { b'f' }).encode(to);
                conn.encode(to);
                if let Some(seq) = seq {
                    seq.encode(to);
                }
                bytes.encode(to);
            }
            ServerFrame::Close(conn, seq) => {
                b'c'.encode(to);
                conn.encode(to);
                seq.encode(to);
            }
            ServerFrame::Dial(conn, port) => {
                b'd'.encode(to);
                conn.encode(to);
                port.encode(to);
            }
            ServerFrame::Ack(conn, offset) => {
                b't'.encode(to);
                conn.encode(to);
                offset.encode(to);
            }
            ServerFrame::Release(conn) => {
                b'g'.encode(to);
                conn.encode(to);
            }
        }
    }

    fn decode(from: &mut &[u8]) -> Result<Self, DecodeError> {
        let kind = u8::decode(from)?;
        let conn = ConnId::decode(from)?;
        Ok(match kind {
            b'b' => ServerFrame::Data(conn, Some(Seq::decode(from)?), Vec::decode(from)?),
            b'f' => ServerFrame::Data(conn, None, Vec::decode(from)?),
            b'c' => ServerFrame::Close(conn, Seq::decode(from)?),
            b'd' => ServerFrame::Dial(conn, u16::decode(from)?),
            b't' => ServerFrame::Ack(conn, u64::decode(from)?),
            b'g' => ServerFrame::Release(conn),
            _ => return Err(DecodeError),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Codec + PartialEq + fmt::Debug>(all: &[T]) {
        let mut bytes = Vec::new();
        all.iter().for_each(|one| one.encode(&mut bytes));
        assert_eq!(decode_all::<T>(&bytes).as_deref(), Ok(all));
        // A prefix decodes to fewer frames, never to a different one.
        for end in 0..bytes.len() {
            if let Ok(fewer) = decode_all::<T>(&bytes[..end]) {
                assert_eq!(fewer[..], all[..fewer.len()]);
            }
        }
    }

    #[test]
    fn frames_survive_a_round_trip_and_prefixes_decode_to_fewer_frames() {
        let (conn, outbound) = (ConnId::Inbound(7), ConnId::Outbound(u64::MAX));
        let seq = Seq { consumed: 1 << 40, index: 3 };
        let state = ConnState { conn, buffered_from: 12, acked: seq };
        check(&[
            ClientFrame::Attach(vec![]),
            ClientFrame::Attach(vec![state, ConnState { conn: outbound, ..state }]),
            ClientFrame::Open(conn),
            ClientFrame::Data(conn, 9, vec![]),
            ClientFrame::Data(outbound, 9, vec![0, 1, 255]),
            ClientFrame::Ack(outbound, seq),
            ClientFrame::Closed(conn, 4),
        ]);
        check(&[
            ServerFrame::Data(conn, None, vec![1]),
            ServerFrame::Data(outbound, Some(seq), vec![]),
            ServerFrame::Close(conn, seq),
            ServerFrame::Dial(outbound, 65_535),
            ServerFrame::Ack(conn, 5),
            ServerFrame::Release(outbound),
        ]);
    }

    #[test]
    fn an_oversized_length_is_an_error() {
        let mut bytes = vec![b'b', b'i'];
        bytes.extend([0; 16]);
        bytes.extend([0xff; 8]);
        assert_eq!(decode_all::<ClientFrame>(&bytes), Err(DecodeError));
        assert_eq!(decode_all::<ServerFrame>(b"zzzzzzzzzzzzzzz"), Err(DecodeError));
    }
}
