//! The tracker with simulated Rabit workers.

use std::collections::{BTreeMap, BTreeSet};

use expect_test::expect;

use super::Tracker;
use crate::{
    LinkId, Peer,
    harness::{ProtocolHarness, Rng, peer},
    rabit::topology::Topology,
};

fn tracker(workers: u32) -> Tracker {
    let tasks = (0..workers).map(|rank| format!("worker:{rank}").parse().unwrap());
    Tracker::new(tasks.collect())
}

fn int(number: i32) -> [u8; 4] {
    number.to_le_bytes()
}

fn text(text: &str) -> Vec<u8> {
    [&int(text.len() as i32)[..], text.as_bytes()].concat()
}

fn header(rank: i32, world: i32, command: &str) -> Vec<u8> {
    let parts = [int(rank).to_vec(), int(world).to_vec(), text("NULL"), text(command)];
    parts.concat()
}

fn ints(bytes: &[u8]) -> Vec<i32> {
    let (ints, rest) = bytes.as_chunks();
    assert!(rest.is_empty());
    ints.iter().map(|int| i32::from_le_bytes(*int)).collect()
}

#[derive(Debug, PartialEq, Eq)]
enum WorkerStage {
    Rank,
    Named,
    /// Number of expected connections.
    Done(i32),
}

/// A worker that connects to its neighbors.
struct TestWorker {
    link: LinkId,
    rank: u32,
    stage: WorkerStage,
    existing: BTreeSet<u32>,
    /// Ranks that it has connected to.
    connected: Vec<u32>,
}

impl TestWorker {
    fn start(
        harness: &mut ProtocolHarness<Tracker>,
        peer: &Peer,
        command: &str,
        existing: &[u32],
    ) -> TestWorker {
        let link = harness.accept(peer);
        let rank = peer.task.index;
        harness.feed(link, &[0x99, 0xff, 0, 0]);
        assert_eq!(harness.take_sent(link), [0x99, 0xff, 0, 0]);
        let own = if command == "start" { -1 } else { rank as i32 };
        assert!(harness.feed(link, &header(own, -1, command)), "{:?}", harness.rejected);
        TestWorker {
            link,
            rank,
            stage: WorkerStage::Rank,
            existing: existing.iter().copied().collect(),
            connected: Vec::new(),
        }
    }

    /// Handles pending output. Returns false if there is none.
    fn step(&mut self, harness: &mut ProtocolHarness<Tracker>, topology: &Topology) -> bool {
        let sent = harness.take_sent(self.link);
        if sent.is_empty() {
            return false;
        }
        match self.stage {
            WorkerStage::Rank => {
                let tree = topology.tree(self.rank);
                let ring = topology.ring(self.rank);
                let number = |rank: Option<u32>| rank.map_or(-1, |rank| rank as i32);
                let mut expected = vec![
                    self.rank as i32,
                    number(topology.parent(self.rank)),
                    topology.workers() as i32,
                    tree.len() as i32,
                ];
                expected.extend(tree.iter().map(|rank| *rank as i32));
                expected.push(number(ring.map(|ring| ring.0)));
                expected.push(number(ring.map(|ring| ring.1)));
                assert_eq!(ints(&sent), expected);
                let mut connected = int(self.existing.len() as i32).to_vec();
                connected.extend(self.existing.iter().flat_map(|rank| int(*rank as i32)));
                harness.feed(self.link, &connected);
                self.stage = WorkerStage::Named;
            }
            WorkerStage::Named => {
                let (head, mut rest) = sent.split_at(8);
                let head = ints(head);
                for _ in 0..head[0] {
                    let host = text("10.0.0.7");
                    rest = rest.strip_prefix(&host[..]).unwrap();
                    let [port, rank] = ints(&rest[..8])[..] else { panic!() };
                    assert_eq!(port, 9000 + rank);
                    self.connected.push(rank as u32);
                    rest = &rest[8..];
                }
                assert!(rest.is_empty());
                let port = int(9000 + self.rank as i32);
                harness.feed(self.link, &[int(0), port].concat());
                self.stage = WorkerStage::Done(head[1]);
            }
            WorkerStage::Done(_) => panic!("output after completion"),
        }
        true
    }
}

/// Steps all workers until none can proceed, and checks that any two neighbors have one connection.
fn connect_all(
    harness: &mut ProtocolHarness<Tracker>,
    workers: &mut [TestWorker],
    topology: &Topology,
    rng: &mut Rng,
) {
    let mut idle = 0;
    while idle < 20 * workers.len() {
        let index = rng.below(workers.len());
        idle = if workers[index].step(harness, topology) { 0 } else { idle + 1 };
    }
    let mut accepted: BTreeMap<u32, i32> = BTreeMap::new();
    for worker in &*workers {
        let all: BTreeSet<u32> = worker.connected.iter().copied().collect();
        assert_eq!(all.len(), worker.connected.len());
        assert!(all.is_disjoint(&worker.existing));
        for other in &worker.connected {
            assert!(topology.neighbors(worker.rank).contains(other));
            *accepted.entry(*other).or_default() += 1;
        }
    }
    for worker in workers {
        let expected = accepted.get(&worker.rank).copied().unwrap_or(0);
        assert_eq!(worker.stage, WorkerStage::Done(expected), "rank {}", worker.rank);
    }
    assert!(harness.rejected.is_empty(), "{:?}", harness.rejected);
}

fn peers(workers: u32) -> Vec<Peer> {
    (0..workers).map(|rank| peer(&format!("worker:{rank}"), 1)).collect()
}

/// Starts a group in random order and connects its workers.
fn running(workers: u32, rng: &mut Rng) -> ProtocolHarness<Tracker> {
    let mut harness = ProtocolHarness::new(tracker(workers));
    let mut peers = peers(workers);
    let mut all = Vec::new();
    while !peers.is_empty() {
        let peer = peers.remove(rng.below(peers.len()));
        all.push(TestWorker::start(&mut harness, &peer, "start", &[]));
    }
    assert_eq!(harness.missing(), "");
    connect_all(&mut harness, &mut all, &Topology::new(workers), rng);
    harness
}

fn send(harness: &mut ProtocolHarness<Tracker>, peer: &Peer, bytes: &[u8]) -> bool {
    let link = harness.accept(peer);
    harness.feed(link, &[0x99, 0xff, 0, 0]) && harness.feed(link, bytes)
}

#[test]
fn groups_of_every_size_connect_in_any_order() {
    for workers in [1, 2, 3, 5, 9, 16, 40] {
        for seed in 0..20 {
            running(workers, &mut Rng(seed));
        }
    }
}

#[test]
fn two_workers_exchange_the_expected_bytes() {
    let mut harness = ProtocolHarness::new(tracker(2));
    let links = peers(2).iter().map(|peer| harness.accept(peer)).collect::<Vec<LinkId>>();
    for link in &links {
        harness.feed(
            *link,
            b"\x99\xff\0\0\xff\xff\xff\xff\xff\xff\xff\xff\x01\0\0\x000\x05\0\0\0start",
        );
    }
    assert_eq!(
        harness.take_sent(links[0]),
        b"\x99\xff\0\0\0\0\0\0\xff\xff\xff\xff\x02\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0"
    );
    assert_eq!(
        harness.take_sent(links[1]),
        b"\x99\xff\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
    );
    for link in &links {
        harness.feed(*link, &int(0));
    }
    assert_eq!(harness.take_sent(links[0]), b"\0\0\0\0\x01\0\0\0");
    assert_eq!(harness.take_sent(links[1]), b"", "its neighbor has the permit");
    harness.feed(links[0], b"\0\0\0\0\x28\x23\0\0");
    assert_eq!(
        harness.take_sent(links[1]),
        b"\x01\0\0\0\0\0\0\0\x08\0\0\x0010.0.0.7\x28\x23\0\0\0\0\0\0"
    );
}

#[test]
fn a_restarted_worker_keeps_its_rank_and_its_neighbors_recover() {
    for workers in [2, 5, 9] {
        for seed in 0..20 {
            let mut rng = Rng(seed);
            let topology = Topology::new(workers);
            let mut harness = running(workers, &mut rng);
            let failed = rng.below(workers as usize) as u32;
            harness.attempt_ended(&peer(&format!("worker:{failed}"), 1));
            assert_eq!(harness.missing(), format!("worker:{failed}"));
            let mut all = Vec::new();
            let mut neighbors: Vec<u32> = topology.neighbors(failed).into_iter().collect();
            neighbors.push(failed);
            while !neighbors.is_empty() {
                let rank = neighbors.remove(rng.below(neighbors.len()));
                let name = format!("worker:{rank}");
                all.push(if rank == failed {
                    TestWorker::start(&mut harness, &peer(&name, 2), "start", &[])
                } else {
                    let connected =
                        topology.neighbors(rank).into_iter().filter(|rank| *rank != failed);
                    let connected: Vec<u32> = connected.collect();
                    TestWorker::start(&mut harness, &peer(&name, 1), "recover", &connected)
                });
            }
            connect_all(&mut harness, &mut all, &topology, &mut rng);
            assert_eq!(harness.missing(), "");
        }
    }
}

#[test]
fn a_worker_that_fails_during_the_start_is_awaited_and_counted_once() {
    let mut harness = ProtocolHarness::new(tracker(3));
    let mut all = vec![TestWorker::start(&mut harness, &peer("worker:0", 1), "start", &[])];
    let failed = TestWorker::start(&mut harness, &peer("worker:1", 1), "start", &[]);
    harness.close(failed.link);
    assert_eq!(harness.missing(), "worker:1 worker:2");
    harness.attempt_ended(&peer("worker:1", 1));
    all.push(TestWorker::start(&mut harness, &peer("worker:2", 1), "start", &[]));
    assert_eq!(harness.missing(), "worker:1");
    assert_eq!(harness.take_sent(all[0].link), b"");
    all.push(TestWorker::start(&mut harness, &peer("worker:1", 2), "start", &[]));
    connect_all(&mut harness, &mut all, &Topology::new(3), &mut Rng(1));
}

#[test]
fn a_failed_worker_releases_its_permit() {
    let mut harness = ProtocolHarness::new(tracker(2));
    let mut all: Vec<TestWorker> =
        peers(2).iter().map(|peer| TestWorker::start(&mut harness, peer, "start", &[])).collect();
    for worker in &mut all {
        worker.step(&mut harness, &Topology::new(2));
    }
    assert!(!harness.take_sent(all[0].link).is_empty(), "has the permit");
    assert_eq!(harness.take_sent(all[1].link), b"");
    harness.close(all[0].link);
    assert!(!harness.take_sent(all[1].link).is_empty());
}

#[test]
fn a_group_can_restart_after_all_have_shut_down() {
    let mut harness = running(3, &mut Rng(3));
    for rank in [2, 0] {
        let worker = peer(&format!("worker:{rank}"), 1);
        send(&mut harness, &worker, &header(rank, 3, "shutdown"));
    }
    let mut all = vec![TestWorker::start(&mut harness, &peer("worker:2", 1), "start", &[])];
    assert_eq!(harness.take_sent(all[0].link), b"", "its former group is still active");
    send(&mut harness, &peer("worker:1", 1), &header(1, 3, "shutdown"));
    for rank in [0, 1] {
        all.push(TestWorker::start(
            &mut harness,
            &peer(&format!("worker:{rank}"), 1),
            "start",
            &[],
        ));
    }
    connect_all(&mut harness, &mut all, &Topology::new(3), &mut Rng(1));
}

#[test]
fn printed_text_is_logged_line_by_line() {
    let mut harness = ProtocolHarness::new(tracker(2));
    let printed = [header(-1, -1, "print"), text("[0]\ttrain-rmse:1.5\nmore\x1b[2J\n\n")].concat();
    assert!(!send(&mut harness, &peer("worker:1", 1), &printed), "the link is closed");
    assert!(harness.rejected.is_empty());
    assert_eq!(harness.log, ["worker:1: [0] train-rmse:1.5", "worker:1: more [2J"]);
}

#[test]
fn invalid_clients_are_rejected() {
    let mut harness = running(2, &mut Rng(3));
    let worker = peer("worker:1", 1);
    for (peer, bytes) in [
        (peer("worker:2", 1), header(-1, -1, "start")),
        (peer("server:0", 1), header(-1, -1, "start")),
        (worker.clone(), header(0, -1, "start")),
        (worker.clone(), header(-1, -1, "recover")),
        (worker.clone(), header(0, 2, "shutdown")),
        (worker.clone(), header(-1, 3, "start")),
        (worker.clone(), header(-1, -1, "dance")),
    ] {
        assert!(!send(&mut harness, &peer, &bytes));
    }
    let link = harness.accept(&worker);
    assert!(!harness.feed(link, b"\x99\xfe"));
    expect![[r#"
        worker:2 is not a worker of this round
        server:0 is not a worker of this round
        rank 1 identified itself as rank 0
        rank 1 identified itself as rank -1
        rank 1 identified itself as rank 0
        worker expects 3 workers, the job has 2
        unknown tracker command
        invalid tracker magic number"#]]
    .assert_eq(&harness.rejected.join("\n"));
    harness.attempt_ended(&worker);
    assert!(!send(&mut harness, &worker, &header(-1, -1, "start")));
    assert_eq!(harness.rejected.last().unwrap(), "attempt 1 of worker:1 has ended");

    let mut harness = ProtocolHarness::new(tracker(2));
    assert!(send(&mut harness, &worker, &header(-1, -1, "start")));
    assert!(!send(&mut harness, &worker, &header(-1, -1, "start")));
    assert_eq!(harness.rejected, ["rank 1 is already connected"]);
}

#[test]
fn a_worker_that_cannot_connect_is_rejected_eventually() {
    let mut harness = ProtocolHarness::new(tracker(2));
    let mut all: Vec<TestWorker> =
        peers(2).iter().map(|peer| TestWorker::start(&mut harness, peer, "start", &[])).collect();
    let topology = Topology::new(2);
    assert!(all[0].step(&mut harness, &topology) && all[0].step(&mut harness, &topology));
    all[1].step(&mut harness, &topology);
    let describe =
        |harness: &mut ProtocolHarness<Tracker>| ints(&harness.take_sent(all[1].link)[..8]);
    for _ in 0..8 {
        assert_eq!(describe(&mut harness), [1, 0]);
        assert!(harness.feed(all[1].link, &[int(1), int(0)].concat()));
    }
    assert_eq!(describe(&mut harness), [0, 1], "an unreachable rank must register again");
    while harness.feed(all[1].link, &[int(1), int(0)].concat()) {}
    assert_eq!(harness.rejected, ["rank 1 cannot connect to its neighbors"]);
}

/// Returns the bytes that three workers receive, with random fragmentation and failovers.
fn transcript(mut rng: Option<Rng>) -> Vec<Vec<u8>> {
    let mut harness = ProtocolHarness::new(tracker(3));
    let links: Vec<LinkId> = peers(3).iter().map(|peer| harness.accept(peer)).collect();
    let start = [int(0xff99).to_vec(), header(-1, -1, "start")].concat();
    let mut script: Vec<(usize, Vec<u8>)> = (0..3).map(|index| (index, start.clone())).collect();
    script.extend((0..3).map(|index| (index, int(0).to_vec())));
    script.extend((0..3).map(|index| (index, [int(0), int(9000 + index as i32)].concat())));
    for (index, bytes) in script {
        let pieces = rng.as_mut().map_or(vec![&bytes[..]], |rng| rng.split(&bytes));
        for piece in pieces {
            harness.feed(links[index], piece);
            if rng.as_mut().is_some_and(|rng| rng.below(4) == 0) {
                harness.fail_over(tracker(3));
            }
        }
    }
    assert!(harness.rejected.is_empty(), "{:?}", harness.rejected);
    assert_eq!(harness.closed.len(), 3);
    links.into_iter().map(|link| harness.take_sent(link)).collect()
}

#[test]
fn fragmentation_and_failovers_do_not_change_the_output() {
    let whole = transcript(None);
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
            let link = harness.accept(&peer("worker:1", 1));
            let command = ["print", "recover", "shutdown", "start"][rng.below(4)];
            let bytes = [int(0xff99).to_vec(), header(-1, -1, command), text("x"), vec![0; 8]];
            let bytes = rng.corrupt(&bytes.concat());
            for piece in rng.split(&bytes) {
                harness.feed(link, piece);
            }
        }
        harness.attempt_ended(&peer("worker:1", 1));
        let mut all: Vec<TestWorker> = (0..3)
            .map(|rank| peer(&format!("worker:{rank}"), 2))
            .map(|peer| TestWorker::start(&mut harness, &peer, "start", &[]))
            .collect();
        harness.rejected.clear();
        connect_all(&mut harness, &mut all, &Topology::new(3), &mut rng);
    }
}
