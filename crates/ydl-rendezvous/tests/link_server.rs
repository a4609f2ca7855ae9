//! What a server makes of agents that say too much, too little, or nothing that could be.

use std::collections::BTreeMap;

use ydl_core::{Cluster, RoleMembers, TaskId};
use ydl_rendezvous::{
    ClientFrame, ConnId, Effects, LinkId, LinkOutput, LinkRecord, LinkServer, Peer, Protocol,
    Rejection, Seq, ServerFrame,
    c10d::C10dStore,
    gloo::{GlooDriver, GlooLimits},
    link::frame::ConnState,
};

const ONE: ConnId = ConnId::Inbound(1);

fn server() -> LinkServer {
    LinkServer::new(Box::<C10dStore>::default())
}

fn peer(attempt: u32) -> Peer {
    Peer { task: "worker:0".parse().expect("a task"), attempt, host: "10.0.0.1".into() }
}

/// A greeting of torch's, and a question: does this nonce come back?
fn ping() -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend(0x3C85_F7CE_u32.to_le_bytes());
    bytes.extend([13, 1, 2, 3, 4]);
    bytes
}

fn told(output: &LinkOutput) -> Vec<&ServerFrame> {
    output.frames.iter().map(|(_, down)| down).collect()
}

fn why(output: &LinkOutput) -> Vec<String> {
    output.rejected.iter().map(|(_, why)| why.to_string()).collect()
}

fn seq(consumed: u64, index: u32) -> Seq {
    Seq { consumed, index }
}

#[test]
fn what_came_twice_is_taken_once() {
    let (mut server, peer) = (server(), peer(1));
    server.receive(&peer, ClientFrame::Attach(Vec::new()));
    server.receive(&peer, ClientFrame::Open(ONE));
    let (first, rest) = (ping()[..7].to_vec(), ping()[3..].to_vec());
    let output = server.receive(&peer, ClientFrame::Data(ONE, 0, first));
    assert_eq!(told(&output), [&ServerFrame::Ack(ONE, 5)]);
    let output = server.receive(&peer, ClientFrame::Data(ONE, 3, rest.clone()));
    let answer = ServerFrame::Data(ONE, Some(seq(10, 1)), vec![1, 2, 3, 4]);
    assert_eq!(told(&output), [&answer]);
    let again = server.receive(&peer, ClientFrame::Data(ONE, 3, rest));
    assert_eq!(told(&again), [] as [&ServerFrame; 0]);
}

#[test]
fn a_gap_ends_the_link_and_nothing_else() {
    let (mut server, peer) = (server(), peer(1));
    server.receive(&peer, ClientFrame::Open(ONE));
    let output = server.receive(&peer, ClientFrame::Data(ONE, 1, ping()));
    assert_eq!(told(&output), [&ServerFrame::Close(ONE, seq(0, 1))]);
    assert_eq!(why(&output), ["bytes are missing from the stream"]);
    let later = server.receive(&peer, ClientFrame::Data(ONE, 0, ping()));
    assert!(later.frames.is_empty() && later.rejected.is_empty(), "{later:?}");
    let other = ConnId::Inbound(2);
    server.receive(&peer, ClientFrame::Open(other));
    assert_eq!(server.receive(&peer, ClientFrame::Data(other, 0, ping())).frames.len(), 2);
}

#[test]
fn what_an_earlier_master_took_and_nobody_knows_ends_the_link() {
    let (mut server, peer) = (server(), peer(1));
    let attached = ConnState { conn: ONE, buffered_from: 40, acked: seq(10, 1) };
    let output = server.receive(&peer, ClientFrame::Attach(vec![attached]));
    assert_eq!(why(&output), ["bytes acknowledged by an earlier master are lost"]);
    assert_eq!(told(&output), [&ServerFrame::Close(ONE, seq(10, 2))]);
}

#[test]
fn an_attempt_that_is_over_is_heard_no_more() {
    let mut server = server();
    server.receive(&peer(1), ClientFrame::Open(ONE));
    server.attempt_ended(&peer(2));
    let late = server.receive(&peer(1), ClientFrame::Data(ONE, 0, ping()));
    assert!(late.frames.is_empty(), "{late:?}");
    server.receive(&peer(3), ClientFrame::Open(ONE));
    let next = server.receive(&peer(3), ClientFrame::Data(ONE, 0, ping()));
    assert_eq!(next.frames.len(), 2, "{next:?}");
}

#[test]
fn connections_and_dials_that_nobody_asked_for_are_sent_away() {
    let (mut server, peer) = (server(), peer(1));
    let output = server.receive(&peer, ClientFrame::Open(ConnId::Outbound(7)));
    assert_eq!(told(&output), [&ServerFrame::Release(ConnId::Outbound(7))]);
    let mut number = 0;
    let refused = loop {
        number += 1;
        let output = server.receive(&peer, ClientFrame::Open(ConnId::Inbound(number)));
        if !output.rejected.is_empty() {
            break output;
        }
        assert!(number < 100_000, "there is no end to it");
    };
    assert_eq!(told(&refused), [&ServerFrame::Release(ConnId::Inbound(number))]);
    assert_eq!(why(&refused), ["more than 4096 connections"]);
    let other = Peer { task: "worker:1".parse().expect("a task"), ..peer };
    assert!(server.receive(&other, ClientFrame::Open(ONE)).rejected.is_empty());
}

#[test]
fn what_is_written_down_is_little_longer_than_what_was_said() {
    let said: Vec<u8> = (0..3000).map(|n| n as u8).collect();
    let record = LinkRecord::Message(peer(1), ONE, 7, said);
    let written = serde_json::to_string(&record).expect("this can be written");
    assert!(written.len() < 4200, "{}", written.len());
    let read: LinkRecord = serde_json::from_str(&written).expect("this can be read");
    assert_eq!(read, record);
}

/// A key with a value of almost a mebibyte, or a question for it.
fn set_or_get(set: bool) -> Vec<u8> {
    let value = vec![7; 1_000_000];
    let mut said = ping()[..5].to_vec();
    said.push(if set { 1 } else { 3 });
    said.extend(1_u64.to_le_bytes());
    said.push(b'k');
    if set {
        said.extend((value.len() as u64).to_le_bytes());
        said.extend(value);
    }
    said
}

#[test]
fn many_links_of_one_task_hold_no_more_than_one_could() {
    let (mut server, peer) = (server(), peer(1));
    server.receive(&peer, ClientFrame::Open(ONE));
    let output = server.receive(&peer, ClientFrame::Data(ONE, 0, set_or_get(true)));
    assert!(output.rejected.is_empty(), "{:?}", output.rejected);
    let mut ask = |number: u64, settles: bool| {
        let conn = ConnId::Inbound(number);
        server.receive(&peer, ClientFrame::Open(conn));
        let output = server.receive(&peer, ClientFrame::Data(conn, 0, set_or_get(false)));
        let mut downs = output.frames.iter();
        let seq = downs.find_map(|(_, down)| match down {
            ServerFrame::Data(_, seq, bytes) if bytes.len() > 1000 => *seq,
            _ => None,
        });
        if let (Some(seq), true) = (seq, settles) {
            server.receive(&peer, ClientFrame::Ack(conn, seq));
        }
        why(&output)
    };
    // Who reads may ask as often as he likes.
    assert!((2..200).all(|number| ask(number, true).is_empty()));
    let refused = (200..400).find_map(|number| ask(number, false).pop());
    assert_eq!(refused.as_deref(), Some("the client does not read its responses"));
}

/// Each byte is a message that is record and answered with a mebibyte. At an attempt's end everybody else is told two. Missing are
/// those whose links have ended.
#[derive(Debug, Default)]
struct Loud {
    open: BTreeMap<LinkId, TaskId>,
    over: Vec<TaskId>,
}

impl Protocol for Loud {
    fn max_message_len(&self) -> usize {
        1
    }

    fn open(&mut self, link: LinkId, peer: &Peer, _reaction: &mut Effects) {
        self.open.insert(link, peer.task.clone());
    }

    fn receive(
        &mut self,
        link: LinkId,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<Option<usize>, Rejection> {
        if bytes.is_empty() {
            return Ok(None);
        }
        effects.persist();
        effects.send(link, vec![7; 1 << 20]);
        Ok(Some(1))
    }

    fn close(&mut self, link: LinkId, effects: &mut Effects) {
        self.over.extend(self.open.remove(&link));
        effects.persist();
    }

    fn attempt_ended(&mut self, _peer: &Peer, effects: &mut Effects) {
        for link in self.open.keys() {
            effects.send(*link, vec![7; 2 << 20]);
        }
    }

    fn missing(&self) -> Vec<TaskId> {
        self.over.clone()
    }
}

fn other() -> Peer {
    Peer { task: "worker:1".parse().expect("a task"), ..peer(1) }
}

#[test]
fn a_new_master_knows_what_came_over_any_number_of_links() {
    let members = Cluster {
        round: 1,
        roles: vec![RoleMembers {
            role: "worker".into(),
            instances: 1,
            processes: 1,
            indexes: vec![0],
            endpoints: Vec::new(),
        }],
    };
    let fresh = || LinkServer::new(Box::new(GlooDriver::new(&members, GlooLimits::default())));
    let (mut old, mut new, peer) = (fresh(), fresh(), peer(1));
    let ask = |server: &mut LinkServer, number: u64, said: String| {
        let conn = ConnId::Inbound(number);
        server.receive(&peer, ClientFrame::Open(conn));
        let output = server.receive(&peer, ClientFrame::Data(conn, 0, said.into_bytes()));
        let closed = output.frames.iter().find_map(|(_, down)| match down {
            ServerFrame::Close(_, seq) => Some(*seq),
            _ => None,
        });
        // Live, what was answered is soon settled.
        if let Some(seq) = closed {
            server.receive(&peer, ClientFrame::Ack(conn, seq));
        }
        output
    };
    old.receive(&peer, ClientFrame::Attach(Vec::new()));
    for number in 1..=5000 {
        let put = format!("PUT /any/{number} HTTP/1.1\r\nContent-Length: 1\r\n\r\nx");
        let output = ask(&mut old, number, put);
        assert!(output.rejected.is_empty(), "{:?}", output.rejected);
        output.records.into_iter().for_each(|record| new.replay(record));
    }
    for server in [&mut old, &mut new] {
        server.receive(&peer, ClientFrame::Attach(Vec::new()));
        let output = ask(server, 5001, "GET /any/5000 HTTP/1.1\r\n\r\n".to_owned());
        let found = output.frames.iter().any(|(_, down)| {
            matches!(down, ServerFrame::Data(_, _, bytes) if bytes.starts_with(b"HTTP/1.0 200"))
        });
        assert!(found, "{output:?}");
    }
}

#[test]
fn who_has_not_come_to_a_new_master_yet_is_not_taken_for_one_who_does_not_read() {
    let (mut old, mut new) =
        (LinkServer::new(Box::<Loud>::default()), LinkServer::new(Box::<Loud>::default()));
    let mut record = old.receive(&peer(1), ClientFrame::Open(ONE)).records;
    for at in 0..100 {
        let output = old.receive(&peer(1), ClientFrame::Data(ONE, at, vec![0]));
        assert!(output.rejected.is_empty(), "{:?}", output.rejected);
        old.receive(&peer(1), ClientFrame::Ack(ONE, seq(at + 1, 1)));
        record.extend(output.records);
    }
    record.into_iter().for_each(|record| new.replay(record));
    let two = Peer { task: "worker:2".parse().expect("a task"), ..peer(1) };
    for server in [&mut old, &mut new] {
        assert!(server.attempt_ended(&other()).rejected.is_empty());
        // Somebody else comes first.
        assert!(server.receive(&two, ClientFrame::Attach(Vec::new())).rejected.is_empty());
        assert_eq!(server.missing(), []);
        let attached = ConnState { conn: ONE, buffered_from: 100, acked: seq(100, 1) };
        let output = server.receive(&peer(1), ClientFrame::Attach(vec![attached]));
        assert!(output.rejected.is_empty(), "{:?}", output.rejected);
        assert_eq!(server.missing(), []);
        // What it was told meanwhile, and how far it was heard.
        assert_eq!(told(&output).len(), 2, "{:?}", output.rejected);
    }
}

#[test]
fn who_does_not_read_is_sent_away_where_it_can_be_written_down() {
    let mut server = LinkServer::new(Box::<Loud>::default());
    server.receive(&peer(1), ClientFrame::Open(ONE));
    let output = server.receive(&peer(1), ClientFrame::Data(ONE, 0, vec![0; 63]));
    assert!(output.rejected.is_empty(), "{:?}", output.rejected);
    let output = server.attempt_ended(&other());
    assert!(output.rejected.is_empty() && output.records.is_empty(), "{output:?}");
    let output = server.receive(&other(), ClientFrame::Attach(Vec::new()));
    assert!(output.rejected.is_empty(), "an attempt that is over says nothing");
    let later = Peer { attempt: 2, ..other() };
    let output = server.receive(&later, ClientFrame::Attach(Vec::new()));
    assert_eq!(why(&output), ["the client does not read its responses"]);
    assert_eq!(output.records, [LinkRecord::Closed(peer(1), ONE)]);
}

#[test]
fn what_came_over_a_link_that_has_ended_is_not_taken_again_by_a_new_master() {
    let (mut old, mut new, peer) =
        (LinkServer::new(Box::<Loud>::default()), LinkServer::new(Box::<Loud>::default()), peer(1));
    for up in
        [ClientFrame::Open(ONE), ClientFrame::Data(ONE, 0, vec![0]), ClientFrame::Closed(ONE, 1)]
    {
        let keep = old.receive(&peer, up).records;
        keep.into_iter().for_each(|record| new.replay(record));
    }
    // Its agent has heard nothing of all that.
    let attached = ConnState { conn: ONE, buffered_from: 0, acked: Seq::default() };
    let output = new.receive(&peer, ClientFrame::Attach(vec![attached]));
    assert_eq!(output.records, []);
    assert!(matches!(told(&output)[..], [ServerFrame::Data(..), ServerFrame::Close(ONE, _)]));
    assert_eq!(new.receive(&peer, ClientFrame::Data(ONE, 0, vec![0])).records, []);
    let output = new.receive(&peer, ClientFrame::Closed(ONE, 1));
    assert_eq!((told(&output), &output.records[..]), (vec![&ServerFrame::Release(ONE)], &[][..]));
    assert_eq!(new.missing().len(), 1, "it has ended once");
    // One that has gone on from there is told that the link is no more.
    let mut third = LinkServer::new(Box::<Loud>::default());
    third.replay(LinkRecord::Message(peer.clone(), ONE, 0, vec![0]));
    third.replay(LinkRecord::Closed(peer.clone(), ONE));
    let attached = ConnState { conn: ONE, buffered_from: 9, acked: seq(9, 1) };
    let output = third.receive(&peer, ClientFrame::Attach(vec![attached]));
    assert_eq!(told(&output), [&ServerFrame::Release(ONE)]);
    assert!(output.rejected.is_empty(), "{:?}", output.rejected);
}
