//! Frames: a byte of flags, a length of one or eight bytes, and the body.

use crate::Rejection;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// A frame, borrowed from its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZmtpFrame<'a> {
    /// Another frame of the same message follows.
    pub more: bool,
    /// A command of ZMTP itself, not part of a message.
    pub command: bool,
    pub body: &'a [u8],
    /// Length including flags and length field.
    pub length: usize,
}

impl ZmtpFrame<'_> {
    /// Parses the first frame in `bytes`. Returns `None` if it is incomplete. Rejects a body longer than `max` as soon
    /// as its length is known.
    pub fn parse(bytes: &[u8], max: usize) -> Result<Option<ZmtpFrame<'_>>, Rejection> {
        let Some((&flags, rest)) = bytes.split_first() else {
            return Ok(None);
        };
        if flags & !(MORE | LONG | COMMAND) != 0 || flags & COMMAND != 0 && flags & MORE != 0 {
            return Err(Rejection::new(format!("invalid ZMTP frame flags `{flags:#04x}`")));
        }
        let (size, head) = if flags & LONG == 0 {
            let Some(&size) = rest.first() else {
                return Ok(None);
            };
            (u64::from(size), 2)
        } else {
            let Some(size) = rest.first_chunk() else {
                return Ok(None);
            };
            (u64::from_be_bytes(*size), 9)
        };
        let size = match usize::try_from(size) {
            Ok(size) if size <= max => size,
            _ => {
                let what = format!("ZMTP frame of {size} bytes exceeds the maximum of {max}");
                return Err(Rejection::new(what));
            }
        };
        let Some(body) = bytes.get(head..head + size) else {
            return Ok(None);
        };
        Ok(Some(ZmtpFrame {
            more: flags & MORE != 0,
            command: flags & COMMAND != 0,
            body,
            length: head + size,
        }))
    }
}

fn write(out: &mut Vec<u8>, flags: u8, body: &[u8]) {
    match u8::try_from(body.len()) {
        Ok(short) => out.extend([flags, short]),
        Err(_) => {
            out.push(flags | LONG);
            out.extend((body.len() as u64).to_be_bytes());
        }
    }
    out.extend(body);
}

/// Encodes a message of one frame.
pub fn message(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 9);
    write(&mut out, 0, body);
    out
}

/// Appends a command frame.
pub(super) fn command(out: &mut Vec<u8>, body: &[u8]) {
    write(out, COMMAND, body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_every_length_survive_a_round_trip() {
        for size in [0, 1, 255, 256, 70_000] {
            let body = vec![7; size];
            let bytes = message(&body);
            let frame = ZmtpFrame::parse(&bytes, size).unwrap().unwrap();
            assert_eq!((frame.body, frame.length), (&body[..], bytes.len()));
            assert!(!frame.more && !frame.command);
            for cut in [0, 1, bytes.len() - 1] {
                assert_eq!(ZmtpFrame::parse(&bytes[..cut], size), Ok(None));
            }
        }
    }

    #[test]
    fn an_oversized_length_is_rejected_before_the_body_arrives() {
        let mut long = vec![LONG];
        long.extend(u64::MAX.to_be_bytes());
        assert!(ZmtpFrame::parse(&long, 4096).is_err());
        assert!(ZmtpFrame::parse(&[0, 9], 8).is_err());
        assert_eq!(ZmtpFrame::parse(&[0, 9], 9), Ok(None));
    }

    #[test]
    fn unknown_flags_are_rejected() {
        for flags in [8, 0x80, 0xff, COMMAND | MORE] {
            assert!(ZmtpFrame::parse(&[flags, 0], 10).is_err(), "{flags}");
        }
    }
}
