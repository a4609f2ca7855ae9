//! One side of a link: greeting, READY, then messages.

use super::frame::{self, ZmtpFrame};
use crate::Rejection;

const GREETING: usize = 64;
const MECHANISM: [u8; 20] = *b"NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
/// Frames of one message; ps-lite sends one of meta and one of each array.
const FRAMES_MAX: usize = 64;

/// What kind of socket ends a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketType {
    Router,
    Dealer,
}

impl SocketType {
    fn name(self) -> &'static str {
        match self {
            SocketType::Router => "ROUTER",
            SocketType::Dealer => "DEALER",
        }
    }
}

/// Everything that is said before the first message, for a link on which we are `socket`.
pub fn opening(socket: SocketType, identity: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(GREETING + 48);
    out.extend([0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0]);
    out.extend(MECHANISM);
    out.resize(GREETING, 0);
    let mut ready = b"\x05READY".to_vec();
    for (name, value) in [("Socket-Type", socket.name().as_bytes()), ("Identity", identity)] {
        ready.push(name.len() as u8);
        ready.extend(name.as_bytes());
        ready.extend((value.len() as u32).to_be_bytes());
        ready.extend(value);
    }
    frame::command(&mut out, &ready);
    out
}

/// What the other side of a link says.
#[derive(Debug, PartialEq, Eq)]
pub enum ZmtpEvent<'a> {
    Greeting,
    /// From now on messages may be sent, and come. The identity is empty for somebody who has none yet.
    Ready {
        identity: &'a [u8],
    },
    /// The frames of a message.
    Message(Vec<&'a [u8]>),
    /// A command that asks for nothing.
    Command,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HandshakeState {
    Greeting,
    Ready,
    Messages,
}

/// How far the other side of a link has come.
#[derive(Debug)]
pub struct ZmtpSession {
    theirs: SocketType,
    stage: HandshakeState,
}

impl ZmtpSession {
    /// A link whose other end is that kind of socket.
    pub fn with(theirs: SocketType) -> ZmtpSession {
        ZmtpSession { theirs, stage: HandshakeState::Greeting }
    }

    /// The first whole thing of these bytes, and how long it was. Frames and whole messages are at most `max` long.
    pub fn receive<'a>(
        &mut self,
        bytes: &'a [u8],
        max: usize,
    ) -> Result<Option<(usize, ZmtpEvent<'a>)>, Rejection> {
        match self.stage {
            HandshakeState::Greeting => {
                check_greeting(bytes)?;
                if bytes.len() < GREETING {
                    return Ok(None);
                }
                self.stage = HandshakeState::Ready;
                Ok(Some((GREETING, ZmtpEvent::Greeting)))
            }
            HandshakeState::Ready => {
                let Some(frame) = ZmtpFrame::take(bytes, max)? else {
                    return Ok(None);
                };
                if !frame.command {
                    return Err(Rejection::new("ZMTP message before READY"));
                }
                let identity = ready(frame.body, self.theirs)?;
                self.stage = HandshakeState::Messages;
                Ok(Some((frame.length, ZmtpEvent::Ready { identity })))
            }
            HandshakeState::Messages => whole_message(bytes, max),
        }
    }
}

/// Whoever does not speak ZMTP is told so by his first byte, not by his sixty-fourth.
fn check_greeting(bytes: &[u8]) -> Result<(), Rejection> {
    let wrong = |what: &str| Err(Rejection::new(format!("ZMTP greeting with {what}")));
    let differs = |at: usize, expected: u8| bytes.get(at).is_some_and(|byte| *byte != expected);
    if differs(0, 0xff) || differs(9, 0x7f) {
        return wrong("an invalid signature");
    }
    if bytes.get(10).is_some_and(|major| *major < 3) {
        return wrong("an unsupported version");
    }
    let mechanism = bytes.get(12..).unwrap_or_default();
    if mechanism.iter().zip(MECHANISM).any(|(a, b)| *a != b) {
        return wrong("a mechanism other than NULL");
    }
    Ok(())
}

/// The identity in a READY command.
fn ready(body: &[u8], theirs: SocketType) -> Result<&[u8], Rejection> {
    let wrong = || Rejection::new("malformed ZMTP READY command");
    let mut rest = body
        .strip_prefix(b"\x05READY")
        .ok_or_else(|| Rejection::new("ZMTP command other than READY in the handshake"))?;
    let (mut identity, mut socket): (&[u8], &[u8]) = (&[], &[]);
    while let Some((&length, tail)) = rest.split_first() {
        let (name, tail) = tail.split_at_checked(length.into()).ok_or_else(wrong)?;
        let (size, tail) = tail.split_first_chunk::<4>().ok_or_else(wrong)?;
        let size = u32::from_be_bytes(*size) as usize;
        let (value, tail) = tail.split_at_checked(size).ok_or_else(wrong)?;
        if name.eq_ignore_ascii_case(b"Identity") {
            identity = value;
        } else if name.eq_ignore_ascii_case(b"Socket-Type") {
            socket = value;
        }
        rest = tail;
    }
    if socket != theirs.name().as_bytes() {
        let what = format!("ZMTP peer is not a {} socket", theirs.name());
        return Err(Rejection::new(what));
    }
    Ok(identity)
}

/// A message counts when its last frame is there: what is half there is looked at again, which `max` keeps short.
fn whole_message(bytes: &[u8], max: usize) -> Result<Option<(usize, ZmtpEvent<'_>)>, Rejection> {
    let mut frames = Vec::new();
    let mut length = 0;
    loop {
        let left = max.saturating_sub(length);
        let Some(frame) = ZmtpFrame::take(&bytes[length..], left)? else {
            return Ok(None);
        };
        length += frame.length;
        if frame.command {
            if !frames.is_empty() {
                return Err(Rejection::new("ZMTP command in the middle of a message"));
            }
            return Ok(Some((length, ZmtpEvent::Command)));
        }
        frames.push(frame.body);
        if !frame.more {
            return Ok(Some((length, ZmtpEvent::Message(frames))));
        }
        if frames.len() == FRAMES_MAX {
            let what = format!("ZMTP message with more than {FRAMES_MAX} frames");
            return Err(Rejection::new(what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 4096;

    #[test]
    fn an_opening_is_these_bytes() {
        let mut expected = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0];
        expected.extend(b"NULL");
        expected.extend([0; 48]);
        expected
            .extend(b"\x04\x2c\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\x03ps1");
        assert_eq!(opening(SocketType::Dealer, b"ps1"), expected);
    }

    #[test]
    fn one_side_understands_the_other() {
        let mut bytes = opening(SocketType::Dealer, b"ps9");
        bytes.extend(frame::message(b"hello"));
        bytes.extend([1, 1, b'a', 0, 1, b'b']);
        bytes.extend([4, 5, 4, b'P', b'I', b'N', b'G']);
        let mut session = ZmtpSession::with(SocketType::Dealer);
        let mut heard = Vec::new();
        let mut at = 0;
        while let Some((length, what)) = session.receive(&bytes[at..], MAX).unwrap() {
            heard.push(format!("{what:?}"));
            at += length;
        }
        assert_eq!(at, bytes.len());
        expect_test::expect![[r#"
            [
                "Greeting",
                "Ready { identity: [112, 115, 57] }",
                "Message([[104, 101, 108, 108, 111]])",
                "Message([[97], [98]])",
                "Command",
            ]
        "#]]
        .assert_debug_eq(&heard);
    }

    #[test]
    fn strangers_are_told_at_once() {
        let refused = |bytes: &[u8]| {
            let mut session = ZmtpSession::with(SocketType::Dealer);
            let mut at = 0;
            loop {
                match session.receive(&bytes[at..], MAX) {
                    Ok(Some((length, _))) => at += length,
                    Ok(None) => return None,
                    Err(rejection) => return Some(rejection.0),
                }
            }
        };
        assert!(refused(b"GET / HTTP/1.1\r\n").is_some());
        let mut old = opening(SocketType::Dealer, b"");
        old[10] = 1;
        assert!(refused(&old).is_some());
        let mut plain = opening(SocketType::Dealer, b"");
        plain[12..17].copy_from_slice(b"PLAIN");
        assert!(refused(&plain[..13]).is_some());
        assert_eq!(
            refused(&opening(SocketType::Router, b"")).as_deref(),
            Some("ZMTP peer is not a DEALER socket")
        );
        let mut truncated = opening(SocketType::Dealer, b"ps1");
        let at = truncated.len() - 4;
        truncated[at] = 200;
        assert!(refused(&truncated).is_some());
    }
}
