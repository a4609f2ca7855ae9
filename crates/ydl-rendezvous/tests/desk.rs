//! What a desk makes of agents that say too much, too little, or nothing that could be.

use std::collections::BTreeMap;

use ydl_core::{Cluster, Member, TaskId};
use ydl_rendezvous::{
    Call, Desk, Down, Kept, Link, Mark, Peer, Protocol, Reaction, Refusal, Up, Work,
    c10d::Store,
    frames::Attached,
    gloo::{Driver, Limits},
};

const ONE: Call = Call::In(1);

fn desk() -> Desk {
    Desk::new(Box::<Store>::default())
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

fn told(work: &Work) -> Vec<&Down> {
    work.down.iter().map(|(_, down)| down).collect()
}

fn why(work: &Work) -> Vec<String> {
    work.refused.iter().map(|(_, why)| why.to_string()).collect()
}

fn mark(taken: u64, index: u32) -> Mark {
    Mark { taken, index }
}

#[test]
fn what_came_twice_is_taken_once() {
    let (mut desk, peer) = (desk(), peer(1));
    desk.hear(&peer, Up::Attach(Vec::new()));
    desk.hear(&peer, Up::Open(ONE));
    let (first, rest) = (ping()[..7].to_vec(), ping()[3..].to_vec());
    let work = desk.hear(&peer, Up::Bytes(ONE, 0, first));
    assert_eq!(told(&work), [&Down::Taken(ONE, 5)]);
    let work = desk.hear(&peer, Up::Bytes(ONE, 3, rest.clone()));
    let answer = Down::Bytes(ONE, Some(mark(10, 1)), vec![1, 2, 3, 4]);
    assert_eq!(told(&work), [&answer]);
    let again = desk.hear(&peer, Up::Bytes(ONE, 3, rest));
    assert_eq!(told(&again), [] as [&Down; 0]);
}

#[test]
fn a_gap_ends_the_link_and_nothing_else() {
    let (mut desk, peer) = (desk(), peer(1));
    desk.hear(&peer, Up::Open(ONE));
    let work = desk.hear(&peer, Up::Bytes(ONE, 1, ping()));
    assert_eq!(told(&work), [&Down::Close(ONE, mark(0, 1))]);
    assert_eq!(why(&work), ["a part of what was said is missing"]);
    let later = desk.hear(&peer, Up::Bytes(ONE, 0, ping()));
    assert!(later.down.is_empty() && later.refused.is_empty(), "{later:?}");
    let other = Call::In(2);
    desk.hear(&peer, Up::Open(other));
    assert_eq!(desk.hear(&peer, Up::Bytes(other, 0, ping())).down.len(), 2);
}

#[test]
fn what_an_earlier_master_took_and_nobody_knows_ends_the_link() {
    let (mut desk, peer) = (desk(), peer(1));
    let attached = Attached { call: ONE, floor: 40, settled: mark(10, 1) };
    let work = desk.hear(&peer, Up::Attach(vec![attached]));
    assert_eq!(why(&work), ["what was taken of it is not known any more"]);
    assert_eq!(told(&work), [&Down::Close(ONE, mark(10, 2))]);
}

#[test]
fn an_attempt_that_is_over_is_heard_no_more() {
    let mut desk = desk();
    desk.hear(&peer(1), Up::Open(ONE));
    desk.ended(&peer(2));
    let late = desk.hear(&peer(1), Up::Bytes(ONE, 0, ping()));
    assert!(late.down.is_empty(), "{late:?}");
    desk.hear(&peer(3), Up::Open(ONE));
    let next = desk.hear(&peer(3), Up::Bytes(ONE, 0, ping()));
    assert_eq!(next.down.len(), 2, "{next:?}");
}

#[test]
fn connections_and_dials_that_nobody_asked_for_are_sent_away() {
    let (mut desk, peer) = (desk(), peer(1));
    let work = desk.hear(&peer, Up::Open(Call::Out(7)));
    assert_eq!(told(&work), [&Down::Gone(Call::Out(7))]);
    let mut number = 0;
    let refused = loop {
        number += 1;
        let work = desk.hear(&peer, Up::Open(Call::In(number)));
        if !work.refused.is_empty() {
            break work;
        }
        assert!(number < 100_000, "there is no end to it");
    };
    assert_eq!(told(&refused), [&Down::Gone(Call::In(number))]);
    assert_eq!(why(&refused), ["it has 4096 connections already"]);
    let other = Peer { task: "worker:1".parse().expect("a task"), ..peer };
    assert!(desk.hear(&other, Up::Open(ONE)).refused.is_empty());
}

#[test]
fn what_is_written_down_is_little_longer_than_what_was_said() {
    let said: Vec<u8> = (0..3000).map(|n| n as u8).collect();
    let kept = Kept::Message(peer(1), ONE, 7, said);
    let written = serde_json::to_string(&kept).expect("this can be written");
    assert!(written.len() < 4200, "{}", written.len());
    let read: Kept = serde_json::from_str(&written).expect("this can be read");
    assert_eq!(read, kept);
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
    let (mut desk, peer) = (desk(), peer(1));
    desk.hear(&peer, Up::Open(ONE));
    let work = desk.hear(&peer, Up::Bytes(ONE, 0, set_or_get(true)));
    assert!(work.refused.is_empty(), "{:?}", work.refused);
    let mut ask = |number: u64, settles: bool| {
        let call = Call::In(number);
        desk.hear(&peer, Up::Open(call));
        let work = desk.hear(&peer, Up::Bytes(call, 0, set_or_get(false)));
        let mut downs = work.down.iter();
        let mark = downs.find_map(|(_, down)| match down {
            Down::Bytes(_, mark, bytes) if bytes.len() > 1000 => *mark,
            _ => None,
        });
        if let (Some(mark), true) = (mark, settles) {
            desk.hear(&peer, Up::Settled(call, mark));
        }
        why(&work)
    };
    // Who reads may ask as often as he likes.
    assert!((2..200).all(|number| ask(number, true).is_empty()));
    let refused = (200..400).find_map(|number| ask(number, false).pop());
    assert_eq!(refused.as_deref(), Some("it does not read what it is told"));
}

/// Each byte is a message that is kept and answered with a mebibyte. At an attempt's end everybody else is told two. Missing are
/// those whose links have ended.
#[derive(Debug, Default)]
struct Loud {
    open: BTreeMap<Link, TaskId>,
    over: Vec<TaskId>,
}

impl Protocol for Loud {
    fn message_max(&self) -> usize {
        1
    }

    fn open(&mut self, link: Link, peer: &Peer, _reaction: &mut Reaction) {
        self.open.insert(link, peer.task.clone());
    }

    fn take(
        &mut self,
        link: Link,
        bytes: &[u8],
        reaction: &mut Reaction,
    ) -> Result<Option<usize>, Refusal> {
        if bytes.is_empty() {
            return Ok(None);
        }
        reaction.keep();
        reaction.send(link, vec![7; 1 << 20]);
        Ok(Some(1))
    }

    fn close(&mut self, link: Link, reaction: &mut Reaction) {
        self.over.extend(self.open.remove(&link));
        reaction.keep();
    }

    fn ended(&mut self, _peer: &Peer, reaction: &mut Reaction) {
        for link in self.open.keys() {
            reaction.send(*link, vec![7; 2 << 20]);
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
        roles: vec![Member {
            role: "worker".into(),
            instances: 1,
            processes: 1,
            indexes: vec![0],
            endpoints: Vec::new(),
        }],
    };
    let fresh = || Desk::new(Box::new(Driver::new(&members, Limits::default())));
    let (mut old, mut new, peer) = (fresh(), fresh(), peer(1));
    let ask = |desk: &mut Desk, number: u64, said: String| {
        let call = Call::In(number);
        desk.hear(&peer, Up::Open(call));
        let work = desk.hear(&peer, Up::Bytes(call, 0, said.into_bytes()));
        let closed = work.down.iter().find_map(|(_, down)| match down {
            Down::Close(_, mark) => Some(*mark),
            _ => None,
        });
        // Live, what was answered is soon settled.
        if let Some(mark) = closed {
            desk.hear(&peer, Up::Settled(call, mark));
        }
        work
    };
    old.hear(&peer, Up::Attach(Vec::new()));
    for number in 1..=5000 {
        let put = format!("PUT /any/{number} HTTP/1.1\r\nContent-Length: 1\r\n\r\nx");
        let work = ask(&mut old, number, put);
        assert!(work.refused.is_empty(), "{:?}", work.refused);
        work.keep.into_iter().for_each(|kept| new.replay(kept));
    }
    for desk in [&mut old, &mut new] {
        desk.hear(&peer, Up::Attach(Vec::new()));
        let work = ask(desk, 5001, "GET /any/5000 HTTP/1.1\r\n\r\n".to_owned());
        let found = work.down.iter().any(|(_, down)| {
            matches!(down, Down::Bytes(_, _, bytes) if bytes.starts_with(b"HTTP/1.0 200"))
        });
        assert!(found, "{work:?}");
    }
}

#[test]
fn who_has_not_come_to_a_new_master_yet_is_not_taken_for_one_who_does_not_read() {
    let (mut old, mut new) = (Desk::new(Box::<Loud>::default()), Desk::new(Box::<Loud>::default()));
    let mut kept = old.hear(&peer(1), Up::Open(ONE)).keep;
    for at in 0..100 {
        let work = old.hear(&peer(1), Up::Bytes(ONE, at, vec![0]));
        assert!(work.refused.is_empty(), "{:?}", work.refused);
        old.hear(&peer(1), Up::Settled(ONE, mark(at + 1, 1)));
        kept.extend(work.keep);
    }
    kept.into_iter().for_each(|kept| new.replay(kept));
    let two = Peer { task: "worker:2".parse().expect("a task"), ..peer(1) };
    for desk in [&mut old, &mut new] {
        assert!(desk.ended(&other()).refused.is_empty());
        // Somebody else comes first.
        assert!(desk.hear(&two, Up::Attach(Vec::new())).refused.is_empty());
        assert_eq!(desk.missing(), []);
        let attached = Attached { call: ONE, floor: 100, settled: mark(100, 1) };
        let work = desk.hear(&peer(1), Up::Attach(vec![attached]));
        assert!(work.refused.is_empty(), "{:?}", work.refused);
        assert_eq!(desk.missing(), []);
        // What it was told meanwhile, and how far it was heard.
        assert_eq!(told(&work).len(), 2, "{:?}", work.refused);
    }
}

#[test]
fn who_does_not_read_is_sent_away_where_it_can_be_written_down() {
    let mut desk = Desk::new(Box::<Loud>::default());
    desk.hear(&peer(1), Up::Open(ONE));
    let work = desk.hear(&peer(1), Up::Bytes(ONE, 0, vec![0; 63]));
    assert!(work.refused.is_empty(), "{:?}", work.refused);
    let work = desk.ended(&other());
    assert!(work.refused.is_empty() && work.keep.is_empty(), "{work:?}");
    let work = desk.hear(&other(), Up::Attach(Vec::new()));
    assert!(work.refused.is_empty(), "an attempt that is over says nothing");
    let later = Peer { attempt: 2, ..other() };
    let work = desk.hear(&later, Up::Attach(Vec::new()));
    assert_eq!(why(&work), ["it does not read what it is told"]);
    assert_eq!(work.keep, [Kept::Closed(peer(1), ONE)]);
}

#[test]
fn what_came_over_a_link_that_has_ended_is_not_taken_again_by_a_new_master() {
    let (mut old, mut new, peer) =
        (Desk::new(Box::<Loud>::default()), Desk::new(Box::<Loud>::default()), peer(1));
    for up in [Up::Open(ONE), Up::Bytes(ONE, 0, vec![0]), Up::Closed(ONE, 1)] {
        let keep = old.hear(&peer, up).keep;
        keep.into_iter().for_each(|kept| new.replay(kept));
    }
    // Its agent has heard nothing of all that.
    let attached = Attached { call: ONE, floor: 0, settled: Mark::default() };
    let work = new.hear(&peer, Up::Attach(vec![attached]));
    assert_eq!(work.keep, []);
    assert!(matches!(told(&work)[..], [Down::Bytes(..), Down::Close(ONE, _)]));
    assert_eq!(new.hear(&peer, Up::Bytes(ONE, 0, vec![0])).keep, []);
    let work = new.hear(&peer, Up::Closed(ONE, 1));
    assert_eq!((told(&work), &work.keep[..]), (vec![&Down::Gone(ONE)], &[][..]));
    assert_eq!(new.missing().len(), 1, "it has ended once");
    // One that has gone on from there is told that the link is no more.
    let mut third = Desk::new(Box::<Loud>::default());
    third.replay(Kept::Message(peer.clone(), ONE, 0, vec![0]));
    third.replay(Kept::Closed(peer.clone(), ONE));
    let attached = Attached { call: ONE, floor: 9, settled: mark(9, 1) };
    let work = third.hear(&peer, Up::Attach(vec![attached]));
    assert_eq!(told(&work), [&Down::Gone(ONE)]);
    assert!(work.refused.is_empty(), "{:?}", work.refused);
}
