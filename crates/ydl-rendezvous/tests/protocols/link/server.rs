//! The link server with agents that send duplicate, missing, excessive or invalid frames.

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

/// Encodes torch's VALIDATE and PING commands.
fn ping() -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend(0x3C85_F7CE_u32.to_le_bytes());
    bytes.extend([13, 1, 2, 3, 4]);
    bytes
}

fn frames(output: &LinkOutput) -> Vec<&ServerFrame> {
    output.frames.iter().map(|(_, down)| down).collect()
}

fn rejections(output: &LinkOutput) -> Vec<String> {
    output.rejected.iter().map(|(_, why)| why.to_string()).collect()
}

fn seq(consumed: u64, index: u32) -> Seq {
    Seq { consumed, index }
}

#[test]
fn duplicate_bytes_are_consumed_once() {
    let (mut server, peer) = (server(), peer(1));
    server.receive(&peer, ClientFrame::Attach(Vec::new()));
    server.receive(&peer, ClientFrame::Open(ONE));
    let (first, rest) = (ping()[..7].to_vec(), ping()[3..].to_vec());
    let output = server.receive(&peer, ClientFrame::Data(ONE, 0, first));
    assert_eq!(frames(&output), [&ServerFrame::Ack(ONE, 5)]);
    let output = server.receive(&peer, ClientFrame::Data(ONE, 3, rest.clone()));
    let answer = ServerFrame::Data(ONE, Some(seq(10, 1)), vec![1, 2, 3, 4]);
    assert_eq!(frames(&output), [&answer]);
    let again = server.receive(&peer, ClientFrame::Data(ONE, 3, rest));
    assert_eq!(frames(&again), [] as [&ServerFrame; 0]);
}

#[test]
fn a_gap_closes_only_its_link() {
    let (mut server, peer) = (server(), peer(1));
    server.receive(&peer, ClientFrame::Open(ONE));
    let output = server.receive(&peer, ClientFrame::Data(ONE, 1, ping()));
    assert_eq!(frames(&output), [&ServerFrame::Close(ONE, seq(0, 1))]);
    assert_eq!(rejections(&output), ["bytes are missing from the stream"]);
    let later = server.receive(&peer, ClientFrame::Data(ONE, 0, ping()));
    assert!(later.frames.is_empty() && later.rejected.is_empty(), "{later:?}");
    let other = ConnId::Inbound(2);
    server.receive(&peer, ClientFrame::Open(other));
    assert_eq!(server.receive(&peer, ClientFrame::Data(other, 0, ping())).frames.len(), 2);
}

#[test]
fn bytes_lost_by_an_earlier_master_close_the_link() {
    let (mut server, peer) = (server(), peer(1));
    let attached = ConnState { conn: ONE, buffered_from: 40, acked: seq(10, 1) };
    let output = server.receive(&peer, ClientFrame::Attach(vec![attached]));
    assert_eq!(rejections(&output), ["bytes acknowledged by an earlier master are lost"]);
    assert_eq!(frames(&output), [&ServerFrame::Close(ONE, seq(10, 2))]);
}

#[test]
fn frames_of_an_ended_attempt_are_ignored() {
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
fn excess_connections_and_unrequested_dials_are_released() {
    let (mut server, peer) = (server(), peer(1));
    let output = server.receive(&peer, ClientFrame::Open(ConnId::Outbound(7)));
    assert_eq!(frames(&output), [&ServerFrame::Release(ConnId::Outbound(7))]);
    let mut number = 0;
    let rejected = loop {
        number += 1;
        let output = server.receive(&peer, ClientFrame::Open(ConnId::Inbound(number)));
        if !output.rejected.is_empty() {
            break output;
        }
        assert!(number < 100_000, "no limit");
    };
    assert_eq!(frames(&rejected), [&ServerFrame::Release(ConnId::Inbound(number))]);
    assert_eq!(rejections(&rejected), ["more than 4096 connections"]);
    let other = Peer { task: "worker:1".parse().expect("a task"), ..peer };
    assert!(server.receive(&other, ClientFrame::Open(ONE)).rejected.is_empty());
}

#[test]
fn records_are_little_longer_than_their_messages() {
    let input: Vec<u8> = (0..3000).map(|n| n as u8).collect();
    let record = LinkRecord::Message(peer(1), ONE, 7, input);
    let json = serde_json::to_string(&record).expect("valid JSON");
    assert!(json.len() < 4200, "{}", json.len());
    let read: LinkRecord = serde_json::from_str(&json).expect("a record");
    assert_eq!(read, record);
}

/// Encodes a set of a value of almost 1 MiB, or a get.
fn set_or_get(set: bool) -> Vec<u8> {
    let value = vec![7; 1_000_000];
    let mut input = ping()[..5].to_vec();
    input.push(if set { 1 } else { 3 });
    input.extend(1_u64.to_le_bytes());
    input.push(b'k');
    if set {
        input.extend((value.len() as u64).to_le_bytes());
        input.extend(value);
    }
    input
}

#[test]
fn all_links_of_a_task_share_the_limit_of_unacknowledged_bytes() {
    let (mut server, peer) = (server(), peer(1));
    server.receive(&peer, ClientFrame::Open(ONE));
    let output = server.receive(&peer, ClientFrame::Data(ONE, 0, set_or_get(true)));
    assert!(output.rejected.is_empty(), "{:?}", output.rejected);
    let mut ask = |number: u64, acks: bool| {
        let conn = ConnId::Inbound(number);
        server.receive(&peer, ClientFrame::Open(conn));
        let output = server.receive(&peer, ClientFrame::Data(conn, 0, set_or_get(false)));
        let mut frames = output.frames.iter();
        let seq = frames.find_map(|(_, frame)| match frame {
            ServerFrame::Data(_, seq, bytes) if bytes.len() > 1000 => *seq,
            _ => None,
        });
        if let (Some(seq), true) = (seq, acks) {
            server.receive(&peer, ClientFrame::Ack(conn, seq));
        }
        rejections(&output)
    };
    // A client that reads can send any number of requests.
    assert!((2..200).all(|number| ask(number, true).is_empty()));
    let rejected = (200..400).find_map(|number| ask(number, false).pop());
    assert_eq!(rejected.as_deref(), Some("the client does not read its responses"));
}

/// Persists each byte as a message with a response of 1 MiB. At the end of an attempt, sends 2 MiB on all other links.
/// Tasks of closed links are missing.
#[derive(Debug, Default)]
struct LargeResponses {
    open: BTreeMap<LinkId, TaskId>,
    closed: Vec<TaskId>,
}

impl Protocol for LargeResponses {
    fn max_message_len(&self) -> usize {
        1
    }

    fn open(&mut self, link: LinkId, peer: &Peer, _effects: &mut Effects) {
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
        self.closed.extend(self.open.remove(&link));
        effects.persist();
    }

    fn attempt_ended(&mut self, _peer: &Peer, effects: &mut Effects) {
        for link in self.open.keys() {
            effects.send(*link, vec![7; 2 << 20]);
        }
    }

    fn missing(&self) -> Vec<TaskId> {
        self.closed.clone()
    }
}

fn other() -> Peer {
    Peer { task: "worker:1".parse().expect("a task"), ..peer(1) }
}

#[test]
fn a_replay_is_not_subject_to_the_connection_limit() {
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
    let ask = |server: &mut LinkServer, number: u64, input: String| {
        let conn = ConnId::Inbound(number);
        server.receive(&peer, ClientFrame::Open(conn));
        let output = server.receive(&peer, ClientFrame::Data(conn, 0, input.into_bytes()));
        let closed = output.frames.iter().find_map(|(_, frame)| match frame {
            ServerFrame::Close(_, seq) => Some(*seq),
            _ => None,
        });
        // A live agent acknowledges its responses.
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
fn an_agent_that_has_not_attached_yet_is_not_a_slow_reader() {
    let (mut old, mut new) = (
        LinkServer::new(Box::<LargeResponses>::default()),
        LinkServer::new(Box::<LargeResponses>::default()),
    );
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
        // Another agent attaches first.
        assert!(server.receive(&two, ClientFrame::Attach(Vec::new())).rejected.is_empty());
        assert_eq!(server.missing(), []);
        let attached = ConnState { conn: ONE, buffered_from: 100, acked: seq(100, 1) };
        let output = server.receive(&peer(1), ClientFrame::Attach(vec![attached]));
        assert!(output.rejected.is_empty(), "{:?}", output.rejected);
        assert_eq!(server.missing(), []);
        // The output since, and the acknowledged input.
        assert_eq!(frames(&output).len(), 2, "{:?}", output.rejected);
    }
}

#[test]
fn a_slow_reader_is_rejected_only_where_a_record_is_possible() {
    let mut server = LinkServer::new(Box::<LargeResponses>::default());
    server.receive(&peer(1), ClientFrame::Open(ONE));
    let output = server.receive(&peer(1), ClientFrame::Data(ONE, 0, vec![0; 63]));
    assert!(output.rejected.is_empty(), "{:?}", output.rejected);
    let output = server.attempt_ended(&other());
    assert!(output.rejected.is_empty() && output.records.is_empty(), "{output:?}");
    let output = server.receive(&other(), ClientFrame::Attach(Vec::new()));
    assert!(output.rejected.is_empty(), "frames of an ended attempt are ignored");
    let later = Peer { attempt: 2, ..other() };
    let output = server.receive(&later, ClientFrame::Attach(Vec::new()));
    assert_eq!(rejections(&output), ["the client does not read its responses"]);
    assert_eq!(output.records, [LinkRecord::Closed(peer(1), ONE)]);
}

#[test]
fn a_new_master_does_not_consume_bytes_of_a_closed_link_again() {
    let (mut old, mut new, peer) = (
        LinkServer::new(Box::<LargeResponses>::default()),
        LinkServer::new(Box::<LargeResponses>::default()),
        peer(1),
    );
    for up in
        [ClientFrame::Open(ONE), ClientFrame::Data(ONE, 0, vec![0]), ClientFrame::Closed(ONE, 1)]
    {
        let keep = old.receive(&peer, up).records;
        keep.into_iter().for_each(|record| new.replay(record));
    }
    // Its agent has received no frame.
    let attached = ConnState { conn: ONE, buffered_from: 0, acked: Seq::default() };
    let output = new.receive(&peer, ClientFrame::Attach(vec![attached]));
    assert_eq!(output.records, []);
    assert!(matches!(frames(&output)[..], [ServerFrame::Data(..), ServerFrame::Close(ONE, _)]));
    assert_eq!(new.receive(&peer, ClientFrame::Data(ONE, 0, vec![0])).records, []);
    let output = new.receive(&peer, ClientFrame::Closed(ONE, 1));
    assert_eq!((frames(&output), &output.records[..]), (vec![&ServerFrame::Release(ONE)], &[][..]));
    assert_eq!(new.missing().len(), 1, "one link has closed");
    // An agent beyond that position is asked to release the link.
    let mut third = LinkServer::new(Box::<LargeResponses>::default());
    third.replay(LinkRecord::Message(peer.clone(), ONE, 0, vec![0]));
    third.replay(LinkRecord::Closed(peer.clone(), ONE));
    let attached = ConnState { conn: ONE, buffered_from: 9, acked: seq(9, 1) };
    let output = third.receive(&peer, ClientFrame::Attach(vec![attached]));
    assert_eq!(frames(&output), [&ServerFrame::Release(ONE)]);
    assert!(output.rejected.is_empty(), "{:?}", output.rejected);
}
