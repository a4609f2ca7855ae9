//! What nodes of ps-lite say: each tells where it listens, is called back and told everybody, and waits at barriers.

use super::{Own, say};
use crate::{BARRIERS, starter::Turns};
use std::{
    io::Read,
    net::{Ipv4Addr, TcpListener, TcpStream},
};
use ydl_rendezvous::{
    pslite::{EMPTY, PsCommand, PsControl, PsMeta, PsNode, PsRole},
    zmtp::{self, SocketType, ZmtpEvent, ZmtpSession},
};

/// Servers, workers and the scheduler: the barrier that all begin with.
const EVERYBODY: i32 = 7;
/// Servers and workers.
const NODES: i32 = 6;

fn barrier(group: i32) -> Vec<u8> {
    let control = PsControl { command: PsCommand::Barrier, nodes: vec![], group };
    message(control, true)
}

fn message(control: PsControl, request: bool) -> Vec<u8> {
    let meta = PsMeta {
        control: Some(control),
        request,
        app: request.then_some(0),
        timestamp: Some(0),
        customer: if request { 0 } else { EMPTY },
    };
    zmtp::message(&meta.write())
}

/// What comes over a connection.
struct Incoming {
    stream: TcpStream,
    session: ZmtpSession,
    bytes: Vec<u8>,
}

impl Incoming {
    fn new(stream: TcpStream, theirs: SocketType) -> Incoming {
        stream.set_nodelay(true).expect("a stream");
        Incoming { stream, session: ZmtpSession::new(theirs), bytes: Vec::new() }
    }

    /// The next command of control, or nothing when the other side is ready.
    fn next(&mut self) -> Option<PsCommand> {
        loop {
            let taken = self.session.receive(&self.bytes, 1 << 20).expect("ZMTP");
            if let Some((length, heard)) = taken {
                let found = match heard {
                    ZmtpEvent::Message(frames) => {
                        // What a ROUTER has sent may begin with an identity.
                        let frame = frames.last().expect("a frame");
                        let meta = PsMeta::parse(frame).expect("a message");
                        Some(meta.control.map(|control| control.command))
                    }
                    ZmtpEvent::Ready { .. } => Some(None),
                    ZmtpEvent::Greeting | ZmtpEvent::Command => None,
                };
                self.bytes.drain(..length);
                if let Some(found) = found {
                    return found;
                }
                continue;
            }
            let mut piece = [0; 16 << 10];
            let length = self.stream.read(&mut piece).expect("a message");
            assert!(length > 0, "the scheduler has gone");
            self.bytes.extend(&piece[..length]);
        }
    }
}

pub fn run(own: &Own, mut turns: Turns) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    turns.next();
    let mut up = Incoming::new(own.connect(), SocketType::Router);
    say(&up.stream, &zmtp::handshake(SocketType::Dealer, b""));
    assert_eq!(up.next(), None);
    let node = PsNode {
        role: if own.role == "server" { PsRole::Server } else { PsRole::Worker },
        id: EMPTY,
        host: "127.0.0.1".to_owned(),
        port: port.into(),
        is_recovery: false,
        customer: 0,
    };
    let control = PsControl { command: PsCommand::AddNode, nodes: vec![node], group: 0 };
    say(&up.stream, &message(control, false));
    let (stream, _) = listener.accept().expect("the scheduler");
    let mut down = Incoming::new(stream, SocketType::Dealer);
    say(&down.stream, &zmtp::handshake(SocketType::Router, b""));
    assert_eq!(down.next(), None);
    assert_eq!(down.next(), Some(PsCommand::AddNode));
    say(&up.stream, &barrier(EVERYBODY));
    assert_eq!(down.next(), Some(PsCommand::Barrier));
    turns.done();
    turns.next();
    let again = barrier(NODES);
    for _ in 0..BARRIERS {
        say(&up.stream, &again);
        assert_eq!(down.next(), Some(PsCommand::Barrier));
    }
    turns.done();
    turns.next();
    turns.done();
}
