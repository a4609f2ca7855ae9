//! What nodes of ps-lite say: each tells where it listens, is called back and told everybody, and waits at barriers.

use super::{Own, say};
use crate::{BARRIERS, starter::Turns};
use std::{
    io::Read,
    net::{Ipv4Addr, TcpListener, TcpStream},
};
use ydl_rendezvous::{
    pslite::{Command, Control, EMPTY, Meta, Node, Role},
    zmtp::{self, Heard, Session, Socket},
};

/// Servers, workers and the scheduler: the barrier that all begin with.
const EVERYBODY: i32 = 7;
/// Servers and workers.
const NODES: i32 = 6;

fn barrier(group: i32) -> Vec<u8> {
    let control = Control { command: Command::Barrier, nodes: vec![], group };
    message(control, true)
}

fn message(control: Control, request: bool) -> Vec<u8> {
    let meta = Meta {
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
    session: Session,
    bytes: Vec<u8>,
}

impl Incoming {
    fn new(stream: TcpStream, theirs: Socket) -> Incoming {
        stream.set_nodelay(true).expect("a stream");
        Incoming { stream, session: Session::with(theirs), bytes: Vec::new() }
    }

    /// The next command of control, or nothing when the other side is ready.
    fn next(&mut self) -> Option<Command> {
        loop {
            let taken = self.session.take(&self.bytes, 1 << 20).expect("ZMTP");
            if let Some((length, heard)) = taken {
                let found = match heard {
                    Heard::Message(frames) => {
                        // What a ROUTER has sent may begin with an identity.
                        let frame = frames.last().expect("a frame");
                        let meta = Meta::read(frame).expect("a message");
                        Some(meta.control.map(|control| control.command))
                    }
                    Heard::Ready { .. } => Some(None),
                    Heard::Greeting | Heard::Aside => None,
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
    let mut up = Incoming::new(own.connect(), Socket::Router);
    say(&up.stream, &zmtp::opening(Socket::Dealer, b""));
    assert_eq!(up.next(), None);
    let node = Node {
        role: if own.role == "server" { Role::Server } else { Role::Worker },
        id: EMPTY,
        host: "127.0.0.1".to_owned(),
        port: port.into(),
        is_recovery: false,
        customer: 0,
    };
    let control = Control { command: Command::AddNode, nodes: vec![node], group: 0 };
    say(&up.stream, &message(control, false));
    let (stream, _) = listener.accept().expect("the scheduler");
    let mut down = Incoming::new(stream, Socket::Dealer);
    say(&down.stream, &zmtp::opening(Socket::Router, b""));
    assert_eq!(down.next(), None);
    assert_eq!(down.next(), Some(Command::AddNode));
    say(&up.stream, &barrier(EVERYBODY));
    assert_eq!(down.next(), Some(Command::Barrier));
    turns.done();
    turns.next();
    let again = barrier(NODES);
    for _ in 0..BARRIERS {
        say(&up.stream, &again);
        assert_eq!(down.next(), Some(Command::Barrier));
    }
    turns.done();
    turns.next();
    turns.done();
}
