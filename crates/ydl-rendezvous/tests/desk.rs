//! What a desk makes of agents that say too much, too little, or nothing that could be.

use ydl_rendezvous::{Call, Desk, Down, Mark, Peer, Up, Work, c10d::Store, frames::Attached};

const ONE: Call = Call::In(1);

fn desk() -> Desk {
    Desk::new(Box::<Store>::default())
}

fn peer(attempt: u32) -> Peer {
    Peer {
        task: "worker:0".parse().expect("a task"),
        attempt,
        host: "10.0.0.1".into(),
    }
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
    work.refused
        .iter()
        .map(|(_, why)| why.to_string())
        .collect()
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
    assert!(
        later.down.is_empty() && later.refused.is_empty(),
        "{later:?}"
    );
    let other = Call::In(2);
    desk.hear(&peer, Up::Open(other));
    assert_eq!(desk.hear(&peer, Up::Bytes(other, 0, ping())).down.len(), 2);
}

#[test]
fn what_an_earlier_master_took_and_nobody_knows_ends_the_link() {
    let (mut desk, peer) = (desk(), peer(1));
    let attached = Attached {
        call: ONE,
        floor: 40,
        settled: mark(10, 1),
    };
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
    let other = Peer {
        task: "worker:1".parse().expect("a task"),
        ..peer
    };
    assert!(desk.hear(&other, Up::Open(ONE)).refused.is_empty());
}
