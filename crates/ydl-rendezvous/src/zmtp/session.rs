//! One side of a link: greeting, READY, then messages.

use super::frame::{self, Frame};
use crate::Refusal;

const GREETING: usize = 64;
const MECHANISM: [u8; 20] = *b"NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
/// Frames of one message; ps-lite sends one of meta and one of each array.
const FRAMES_MAX: usize = 64;

/// What kind of socket ends a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Socket {
    Router,
    Dealer,
}

impl Socket {
    fn name(self) -> &'static str {
        match self {
            Socket::Router => "ROUTER",
            Socket::Dealer => "DEALER",
        }
    }
}

/// Everything that is said before the first message, for a link on which we are `socket`.
pub fn opening(socket: Socket, identity: &[u8]) -> Vec<u8> {
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
pub enum Heard<'a> {
    Greeting,
    /// From now on messages may be sent, and come. The identity is empty for somebody who has none yet.
    Ready {
        identity: &'a [u8],
    },
    /// The frames of a message.
    Message(Vec<&'a [u8]>),
    /// A command that asks for nothing.
    Aside,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Greeting,
    Ready,
    Messages,
}

/// How far the other side of a link has come.
#[derive(Debug)]
pub struct Session {
    theirs: Socket,
    stage: Stage,
}

impl Session {
    /// A link whose other end is that kind of socket.
    pub fn with(theirs: Socket) -> Session {
        Session { theirs, stage: Stage::Greeting }
    }

    /// The first whole thing of these bytes, and how long it was. Frames and whole messages are at most `max` long.
    pub fn take<'a>(
        &mut self,
        bytes: &'a [u8],
        max: usize,
    ) -> Result<Option<(usize, Heard<'a>)>, Refusal> {
        match self.stage {
            Stage::Greeting => {
                check_greeting(bytes)?;
                if bytes.len() < GREETING {
                    return Ok(None);
                }
                self.stage = Stage::Ready;
                Ok(Some((GREETING, Heard::Greeting)))
            }
            Stage::Ready => {
                let Some(frame) = Frame::take(bytes, max)? else {
                    return Ok(None);
                };
                if !frame.command {
                    return Err(Refusal::new("a ZMTP message came before READY"));
                }
                let identity = ready(frame.body, self.theirs)?;
                self.stage = Stage::Messages;
                Ok(Some((frame.length, Heard::Ready { identity })))
            }
            Stage::Messages => whole_message(bytes, max),
        }
    }
}

/// Whoever does not speak ZMTP is told so by his first byte, not by his sixty-fourth.
fn check_greeting(bytes: &[u8]) -> Result<(), Refusal> {
    let wrong = |what: &str| Err(Refusal::new(format!("a ZMTP greeting has {what}")));
    let differs = |at: usize, expected: u8| bytes.get(at).is_some_and(|byte| *byte != expected);
    if differs(0, 0xff) || differs(9, 0x7f) {
        return wrong("another signature");
    }
    if bytes.get(10).is_some_and(|major| *major < 3) {
        return wrong("a version before 3");
    }
    let mechanism = bytes.get(12..).unwrap_or_default();
    if mechanism.iter().zip(MECHANISM).any(|(a, b)| *a != b) {
        return wrong("a mechanism other than NULL");
    }
    Ok(())
}

/// The identity in a READY command.
fn ready(body: &[u8], theirs: Socket) -> Result<&[u8], Refusal> {
    let wrong = || Refusal::new("a ZMTP READY command cannot be read");
    let mut rest = body
        .strip_prefix(b"\x05READY")
        .ok_or_else(|| Refusal::new("a ZMTP command other than READY came first"))?;
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
        let what = format!("a ZMTP peer is no {} socket", theirs.name());
        return Err(Refusal::new(what));
    }
    Ok(identity)
}

/// A message counts when its last frame is there: what is half there is looked at again, which `max` keeps short.
fn whole_message(bytes: &[u8], max: usize) -> Result<Option<(usize, Heard<'_>)>, Refusal> {
    let mut frames = Vec::new();
    let mut length = 0;
    loop {
        let left = max.saturating_sub(length);
        let Some(frame) = Frame::take(&bytes[length..], left)? else {
            return Ok(None);
        };
        length += frame.length;
        if frame.command {
            if !frames.is_empty() {
                return Err(Refusal::new("a ZMTP command came in the middle of a message"));
            }
            return Ok(Some((length, Heard::Aside)));
        }
        frames.push(frame.body);
        if !frame.more {
            return Ok(Some((length, Heard::Message(frames))));
        }
        if frames.len() == FRAMES_MAX {
            let what = format!("a ZMTP message has more than {FRAMES_MAX} frames");
            return Err(Refusal::new(what));
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
        assert_eq!(opening(Socket::Dealer, b"ps1"), expected);
    }

    #[test]
    fn one_side_understands_the_other() {
        let mut bytes = opening(Socket::Dealer, b"ps9");
        bytes.extend(frame::message(b"hello"));
        bytes.extend([1, 1, b'a', 0, 1, b'b']);
        bytes.extend([4, 5, 4, b'P', b'I', b'N', b'G']);
        let mut session = Session::with(Socket::Dealer);
        let mut heard = Vec::new();
        let mut at = 0;
        while let Some((length, what)) = session.take(&bytes[at..], MAX).unwrap() {
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
                "Aside",
            ]
        "#]]
        .assert_debug_eq(&heard);
    }

    #[test]
    fn strangers_are_told_at_once() {
        let refused = |bytes: &[u8]| {
            let mut session = Session::with(Socket::Dealer);
            let mut at = 0;
            loop {
                match session.take(&bytes[at..], MAX) {
                    Ok(Some((length, _))) => at += length,
                    Ok(None) => return None,
                    Err(refusal) => return Some(refusal.0),
                }
            }
        };
        assert!(refused(b"GET / HTTP/1.1\r\n").is_some());
        let mut old = opening(Socket::Dealer, b"");
        old[10] = 1;
        assert!(refused(&old).is_some());
        let mut plain = opening(Socket::Dealer, b"");
        plain[12..17].copy_from_slice(b"PLAIN");
        assert!(refused(&plain[..13]).is_some());
        assert_eq!(
            refused(&opening(Socket::Router, b"")).as_deref(),
            Some("a ZMTP peer is no DEALER socket")
        );
        let mut truncated = opening(Socket::Dealer, b"ps1");
        let at = truncated.len() - 4;
        truncated[at] = 200;
        assert!(refused(&truncated).is_some());
    }
}
