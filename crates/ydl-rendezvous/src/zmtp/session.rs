//! The receiving side of a link: greeting, READY, then messages.

use super::frame::{self, ZmtpFrame};
use crate::Rejection;

const GREETING: usize = 64;
const MECHANISM: [u8; 20] = *b"NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
/// Maximum number of frames in a message. ps-lite sends one for the metadata and one for each array.
const FRAMES_MAX: usize = 64;

/// Type of the socket at an end of a link.
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

/// Returns the greeting and READY command of a socket.
pub fn handshake(socket: SocketType, identity: &[u8]) -> Vec<u8> {
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

/// An event from the peer.
#[derive(Debug, PartialEq, Eq)]
pub enum ZmtpEvent<'a> {
    Greeting,
    /// The handshake is complete. The identity is empty for a peer without one.
    Ready {
        identity: &'a [u8],
    },
    /// The frames of a message.
    Message(Vec<&'a [u8]>),
    /// A command without effect.
    Command,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionState {
    Greeting,
    Ready,
    Messages,
}

/// State of the peer's side of a link.
#[derive(Debug)]
pub struct ZmtpSession {
    peer_socket: SocketType,
    state: SessionState,
}

impl ZmtpSession {
    /// Creates a session with a peer of this socket type.
    pub fn new(peer_socket: SocketType) -> ZmtpSession {
        ZmtpSession { peer_socket, state: SessionState::Greeting }
    }

    /// Parses the first complete event in `bytes` and returns it with its length. Frames and messages are limited to
    /// `max` bytes.
    pub fn receive<'a>(
        &mut self,
        bytes: &'a [u8],
        max: usize,
    ) -> Result<Option<(usize, ZmtpEvent<'a>)>, Rejection> {
        match self.state {
            SessionState::Greeting => {
                check_greeting(bytes)?;
                if bytes.len() < GREETING {
                    return Ok(None);
                }
                self.state = SessionState::Ready;
                Ok(Some((GREETING, ZmtpEvent::Greeting)))
            }
            SessionState::Ready => {
                let Some(frame) = ZmtpFrame::parse(bytes, max)? else {
                    return Ok(None);
                };
                if !frame.command {
                    return Err(Rejection::new("ZMTP message before READY"));
                }
                let identity = ready(frame.body, self.peer_socket)?;
                self.state = SessionState::Messages;
                Ok(Some((frame.length, ZmtpEvent::Ready { identity })))
            }
            SessionState::Messages => parse_message(bytes, max),
        }
    }
}

/// Checks the bytes of a greeting received so far, so that other protocols are rejected at their first byte.
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

/// Returns the identity in a READY command.
fn ready(body: &[u8], peer_socket: SocketType) -> Result<&[u8], Rejection> {
    let malformed = || Rejection::new("malformed ZMTP READY command");
    let mut rest = body
        .strip_prefix(b"\x05READY")
        .ok_or_else(|| Rejection::new("ZMTP command other than READY in the handshake"))?;
    let (mut identity, mut socket): (&[u8], &[u8]) = (&[], &[]);
    while let Some((&length, tail)) = rest.split_first() {
        let (name, tail) = tail.split_at_checked(length.into()).ok_or_else(malformed)?;
        let (size, tail) = tail.split_first_chunk::<4>().ok_or_else(malformed)?;
        let size = u32::from_be_bytes(*size) as usize;
        let (value, tail) = tail.split_at_checked(size).ok_or_else(malformed)?;
        if name.eq_ignore_ascii_case(b"Identity") {
            identity = value;
        } else if name.eq_ignore_ascii_case(b"Socket-Type") {
            socket = value;
        }
        rest = tail;
    }
    if socket != peer_socket.name().as_bytes() {
        let what = format!("ZMTP peer is not a {} socket", peer_socket.name());
        return Err(Rejection::new(what));
    }
    Ok(identity)
}

/// Parses a message once its last frame has arrived. Incomplete ones are parsed again, which `max` bounds.
fn parse_message(bytes: &[u8], max: usize) -> Result<Option<(usize, ZmtpEvent<'_>)>, Rejection> {
    let mut frames = Vec::new();
    let mut length = 0;
    loop {
        let left = max.saturating_sub(length);
        let Some(frame) = ZmtpFrame::parse(&bytes[length..], left)? else {
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
    fn the_handshake_has_the_expected_bytes() {
        let mut expected = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0];
        expected.extend(b"NULL");
        expected.extend([0; 48]);
        expected
            .extend(b"\x04\x2c\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\x03ps1");
        assert_eq!(handshake(SocketType::Dealer, b"ps1"), expected);
    }

    #[test]
    fn a_session_parses_handshake_and_messages() {
        let mut bytes = handshake(SocketType::Dealer, b"ps9");
        bytes.extend(frame::message(b"hello"));
        bytes.extend([1, 1, b'a', 0, 1, b'b']);
        bytes.extend([4, 5, 4, b'P', b'I', b'N', b'G']);
        let mut session = ZmtpSession::new(SocketType::Dealer);
        let mut events = Vec::new();
        let mut at = 0;
        while let Some((length, what)) = session.receive(&bytes[at..], MAX).unwrap() {
            events.push(format!("{what:?}"));
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
        .assert_debug_eq(&events);
    }

    #[test]
    fn other_protocols_are_rejected_early() {
        let rejected = |bytes: &[u8]| {
            let mut session = ZmtpSession::new(SocketType::Dealer);
            let mut at = 0;
            loop {
                match session.receive(&bytes[at..], MAX) {
                    Ok(Some((length, _))) => at += length,
                    Ok(None) => return None,
                    Err(rejection) => return Some(rejection.0),
                }
            }
        };
        assert!(rejected(b"GET / HTTP/1.1\r\n").is_some());
        let mut old = handshake(SocketType::Dealer, b"");
        old[10] = 1;
        assert!(rejected(&old).is_some());
        let mut plain = handshake(SocketType::Dealer, b"");
        plain[12..17].copy_from_slice(b"PLAIN");
        assert!(rejected(&plain[..13]).is_some());
        assert_eq!(
            rejected(&handshake(SocketType::Router, b"")).as_deref(),
            Some("ZMTP peer is not a DEALER socket")
        );
        let mut truncated = handshake(SocketType::Dealer, b"ps1");
        let at = truncated.len() - 4;
        truncated[at] = 200;
        assert!(rejected(&truncated).is_some());
    }
}
