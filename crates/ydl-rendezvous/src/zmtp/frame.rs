//! Frames: a byte of flags, a length of one byte or of eight, and that many bytes.

use crate::Rejection;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// One frame, where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZmtpFrame<'a> {
    /// Another frame of the same message follows.
    pub more: bool,
    /// It is for ZMTP itself, and not for who uses the socket.
    pub command: bool,
    pub body: &'a [u8],
    /// How many bytes it took with flags and length.
    pub length: usize,
}

impl ZmtpFrame<'_> {
    /// The frame at the beginning of these bytes, if all of it is there. One that is longer than `max` is refused as soon
    /// as it says so.
    pub fn take(bytes: &[u8], max: usize) -> Result<Option<ZmtpFrame<'_>>, Rejection> {
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

/// A message of one frame.
pub fn message(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 9);
    write(&mut out, 0, body);
    out
}

/// A command frame.
pub(super) fn command(out: &mut Vec<u8>, body: &[u8]) {
    write(out, COMMAND, body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_every_length_are_read_as_they_were_written() {
        for size in [0, 1, 255, 256, 70_000] {
            let body = vec![7; size];
            let bytes = message(&body);
            let frame = ZmtpFrame::take(&bytes, size).unwrap().unwrap();
            assert_eq!((frame.body, frame.length), (&body[..], bytes.len()));
            assert!(!frame.more && !frame.command);
            for cut in [0, 1, bytes.len() - 1] {
                assert_eq!(ZmtpFrame::take(&bytes[..cut], size), Ok(None));
            }
        }
    }

    #[test]
    fn a_length_that_is_too_great_is_refused_before_anything_of_it_comes() {
        let mut long = vec![LONG];
        long.extend(u64::MAX.to_be_bytes());
        assert!(ZmtpFrame::take(&long, 4096).is_err());
        assert!(ZmtpFrame::take(&[0, 9], 8).is_err());
        assert_eq!(ZmtpFrame::take(&[0, 9], 9), Ok(None));
    }

    #[test]
    fn flags_that_mean_nothing_are_refused() {
        for flags in [8, 0x80, 0xff, COMMAND | MORE] {
            assert!(ZmtpFrame::take(&[flags, 0], 10).is_err(), "{flags}");
        }
    }
}
