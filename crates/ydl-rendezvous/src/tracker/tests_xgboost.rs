//! The tracker with simulated workers of XGBoost 2.1 and later.

use expect_test::expect;

use super::Tracker;
use crate::{
    LinkId, Peer,
    harness::{ProtocolHarness, Rng, peer},
};

fn tracker(workers: u32) -> Tracker {
    let tasks = (0..workers).map(|rank| format!("worker:{rank}").parse().unwrap());
    Tracker::new(tasks.collect())
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

fn message(rank: i32, world: i32, command: &str) -> Vec<u8> {
    let hello = format!(r#"{{"rank":{rank},"task_id":"x","world_size":{world}}}"#);
    [vec![0x99, 0xff, 0, 0], text(&hello), text(command)].concat()
}

fn start(rank: u32) -> Vec<u8> {
    let (port, error) = (9000 + rank, 9500 + rank);
    message(0, -1, &format!(r#"{{"cmd":1,"error_port":{error},"port":{port}}}"#))
}

fn send(harness: &mut ProtocolHarness<Tracker>, peer: &Peer, bytes: &[u8]) -> LinkId {
    let link = harness.accept(peer);
    harness.feed(link, bytes);
    link
}

fn worker(rank: u32) -> Peer {
    peer(&format!("worker:{rank}"), 1)
}

fn running(workers: u32) -> ProtocolHarness<Tracker> {
    let mut harness = ProtocolHarness::new(tracker(workers));
    let mut links = Vec::new();
    for rank in (0..workers).rev() {
        let link = send(&mut harness, &worker(rank), &start(rank));
        links.push((rank, link));
    }
    for (rank, link) in links {
        let next = (rank + 1) % workers;
        let port = 9000 + next;
        let expected = [
            vec![0x99, 0xff, 0, 0],
            text(&format!(r#"{{"world_size":{workers}}}"#)),
            text(&format!(r#"{{"host":"10.0.0.7","port":{port},"rank":{next}}}"#)),
        ];
        assert_eq!(harness.take_sent(link), expected.concat());
    }
    assert!(harness.rejected.is_empty(), "{:?}", harness.rejected);
    harness
}

fn dialed(harness: &mut ProtocolHarness<Tracker>) -> String {
    let mut dials = Vec::new();
    for (link, task, port) in std::mem::take(&mut harness.dials) {
        harness.open(link, &peer(&task.to_string(), 1));
        assert_eq!(harness.take_sent(link), [1, 0, 0, 0]);
        assert!(harness.closed.contains(&link));
        dials.push(format!("{task} at {port}"));
    }
    dials.join(", ")
}

#[test]
fn groups_of_every_size_form_a_ring() {
    for workers in [1, 2, 5, 9, 12] {
        running(workers);
    }
}

#[test]
fn a_waiting_worker_gets_a_response_and_the_others_are_missing() {
    let mut harness = ProtocolHarness::new(tracker(3));
    assert_eq!(harness.missing(), "");
    let link = send(&mut harness, &worker(1), &start(1));
    assert_eq!(harness.take_sent(link)[4..], text(r#"{"world_size":3}"#));
    assert_eq!(harness.missing(), "worker:0 worker:2");
    harness.close(link);
    assert_eq!(harness.missing(), "");
}

#[test]
fn an_error_stops_all_others() {
    let mut harness = running(3);
    let error = message(1, 3, r#"{"cmd":3,"code":-1,"msg":"out of\nluck"}"#);
    send(&mut harness, &worker(1), &error);
    assert_eq!(dialed(&mut harness), "worker:0 at 9500, worker:2 at 9502");
    expect![[r#"
        worker:1: failed with code -1: out of
        worker:1: luck
        worker:1 left the group; stopping the other 2 workers"#]]
    .assert_eq(&harness.log.join("\n"));
    // Errors of the others are not reported again.
    let error = message(2, 3, r#"{"cmd":3,"code":-1,"msg":"peer"}"#);
    send(&mut harness, &worker(2), &error);
    harness.attempt_ended(&worker(0));
    assert_eq!(dialed(&mut harness), "");
}

#[test]
fn a_failed_worker_stops_all_that_have_not_shut_down() {
    let mut harness = running(4);
    send(&mut harness, &worker(3), &message(3, 4, r#"{"cmd":2}"#));
    harness.attempt_ended(&worker(3));
    assert_eq!(dialed(&mut harness), "", "its work is done");
    harness.attempt_ended(&worker(0));
    assert_eq!(dialed(&mut harness), "worker:1 at 9501, worker:2 at 9502");
    // All restart.
    for rank in 0..4 {
        harness.attempt_ended(&worker(rank));
        send(&mut harness, &peer(&format!("worker:{rank}"), 2), &start(rank));
    }
    assert_eq!(harness.missing(), "");
    assert!(harness.rejected.is_empty(), "{:?}", harness.rejected);
}

#[test]
fn a_worker_that_starts_again_has_left_its_active_group() {
    let mut harness = running(2);
    send(&mut harness, &worker(0), &start(0));
    assert_eq!(dialed(&mut harness), "worker:1 at 9501");
    assert_eq!(harness.missing(), "worker:1");
}

#[test]
fn a_group_can_restart_after_all_have_shut_down() {
    let mut harness = running(2);
    for rank in 0..2 {
        send(&mut harness, &worker(rank), &message(rank as i32, 2, r#"{"cmd":2}"#));
    }
    for rank in 0..2 {
        send(&mut harness, &worker(rank), &start(rank));
    }
    assert!(harness.dials.is_empty() && harness.rejected.is_empty());
    assert_eq!(harness.missing(), "");
}

#[test]
fn invalid_clients_are_rejected() {
    let mut harness = running(2);
    let shut = |rank| message(rank, 2, r#"{"cmd":2}"#);
    send(&mut harness, &worker(2), &start(2));
    send(&mut harness, &worker(1), &shut(0));
    send(&mut harness, &worker(1), &message(1, 2, r#"{"cmd":1,"port":1,"error_port":1}"#));
    send(&mut harness, &worker(1), &message(1, 2, r#"{"cmd":9}"#));
    send(&mut harness, &worker(1), &message(1, 2, "nonsense"));
    expect![[r#"
        worker:2 is not a worker of this round
        rank 1 identified itself as rank 0
        worker has started already
        unknown tracker command `9`
        malformed tracker message"#]]
    .assert_eq(&harness.rejected.join("\n"));
    assert!(harness.dials.is_empty());

    let mut harness = ProtocolHarness::new(tracker(2));
    let first = send(&mut harness, &worker(1), &start(1));
    send(&mut harness, &worker(1), &start(1));
    assert_eq!(harness.rejected, ["rank 1 is already connected"]);
    assert!(!harness.feed(first, b"x"), "no input is expected");
}

fn transcript(mut rng: Option<Rng>) -> (Vec<Vec<u8>>, String) {
    let mut harness = ProtocolHarness::new(tracker(3));
    let mut script: Vec<(u32, Vec<u8>)> = (0..3).map(|rank| (rank, start(rank))).collect();
    script.push((2, message(2, 3, r#"{"cmd":2}"#)));
    script.push((0, message(0, 3, r#"{"cmd":4,"msg":"hello"}"#)));
    script.push((1, message(1, 3, r#"{"cmd":3,"code":1,"msg":"no"}"#)));
    let mut links = Vec::new();
    for (rank, bytes) in script {
        let link = harness.accept(&worker(rank));
        links.push(link);
        let pieces = rng.as_mut().map_or(vec![&bytes[..]], |rng| rng.split(&bytes));
        for piece in pieces {
            harness.feed(link, piece);
            if rng.as_mut().is_some_and(|rng| rng.below(4) == 0) {
                harness.fail_over(tracker(3));
            }
        }
    }
    assert!(harness.rejected.is_empty(), "{:?}", harness.rejected);
    let sent = links.into_iter().map(|link| harness.take_sent(link)).collect();
    (sent, dialed(&mut harness))
}

#[test]
fn fragmentation_and_failovers_do_not_change_the_output() {
    let whole = transcript(None);
    assert_eq!(whole.1, "worker:0 at 9500");
    for seed in 0..100 {
        assert_eq!(transcript(Some(Rng(seed))), whole, "{seed}");
    }
}

#[test]
fn corrupted_bytes_do_not_affect_others() {
    for seed in 0..300 {
        let mut rng = Rng(seed);
        let mut harness = ProtocolHarness::new(tracker(3));
        for _ in 0..20 {
            let link = harness.accept(&worker(1));
            let bytes = rng.corrupt(&start(1));
            for piece in rng.split(&bytes) {
                harness.feed(link, piece);
            }
        }
        harness.attempt_ended(&worker(1));
        for rank in 0..3 {
            send(&mut harness, &peer(&format!("worker:{rank}"), 2), &start(rank));
        }
        assert_eq!(harness.missing(), "", "{seed}");
    }
}
