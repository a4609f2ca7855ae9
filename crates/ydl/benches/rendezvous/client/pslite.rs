//! Messages of ps-lite nodes: each sends its address, receives those of all others on a connection from the scheduler, and
//! waits at barriers.

use super::{ClientInfo, send};
use crate::{BARRIERS, steps::StepSignals};
use std::{
    io::Read,
    net::{Ipv4Addr, TcpListener, TcpStream},
};
use ydl_rendezvous::{
    pslite::{EMPTY, PsCommand, PsControl, PsMeta, PsNode, PsRole},
    zmtp::{self, SocketType, ZmtpEvent, ZmtpSession},
};

/// Servers, workers and the scheduler: the first barrier.
const ALL_NODES: i32 = 7;
/// Servers and workers.
const WORKERS_AND_SERVERS: i32 = 6;

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

/// Received bytes and session of a connection.
struct Incoming {
    stream: TcpStream,
    session: ZmtpSession,
    bytes: Vec<u8>,
}

impl Incoming {
    fn new(stream: TcpStream, server: SocketType) -> Incoming {
        stream.set_nodelay(true).expect("a stream");
        Incoming { stream, session: ZmtpSession::new(server), bytes: Vec::new() }
    }

    /// Returns the next control command, or `None` when the peer is ready.
    fn next(&mut self) -> Option<PsCommand> {
        loop {
            let taken = self.session.receive(&self.bytes, 1 << 20).expect("ZMTP");
            if let Some((length, event)) = taken {
                let found = match event {
                    ZmtpEvent::Message(frames) => {
                        // A ROUTER's message may begin with an identity.
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
            assert!(length > 0, "the scheduler closed the connection");
            self.bytes.extend(&piece[..length]);
        }
    }
}

pub fn run(info: &ClientInfo, mut signals: StepSignals) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    signals.next();
    let mut to_scheduler = Incoming::new(info.connect(), SocketType::Router);
    send(&to_scheduler.stream, &zmtp::handshake(SocketType::Dealer, b""));
    assert_eq!(to_scheduler.next(), None);
    let node = PsNode {
        role: if info.role == "server" { PsRole::Server } else { PsRole::Worker },
        id: EMPTY,
        host: "127.0.0.1".to_owned(),
        port: port.into(),
        is_recovery: false,
        customer: 0,
    };
    let control = PsControl { command: PsCommand::AddNode, nodes: vec![node], group: 0 };
    send(&to_scheduler.stream, &message(control, false));
    let (stream, _) = listener.accept().expect("the scheduler");
    let mut from_scheduler = Incoming::new(stream, SocketType::Dealer);
    send(&from_scheduler.stream, &zmtp::handshake(SocketType::Router, b""));
    assert_eq!(from_scheduler.next(), None);
    assert_eq!(from_scheduler.next(), Some(PsCommand::AddNode));
    send(&to_scheduler.stream, &barrier(ALL_NODES));
    assert_eq!(from_scheduler.next(), Some(PsCommand::Barrier));
    signals.done();
    signals.next();
    let again = barrier(WORKERS_AND_SERVERS);
    for _ in 0..BARRIERS {
        send(&to_scheduler.stream, &again);
        assert_eq!(from_scheduler.next(), Some(PsCommand::Barrier));
    }
    signals.done();
    signals.next();
    signals.done();
}
