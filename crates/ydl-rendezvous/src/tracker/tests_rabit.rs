//! Workers that do what Rabit's do, against the tracker.

use std::collections::{BTreeMap, BTreeSet};

use expect_test::expect;

use super::Tracker;
use crate::{
    Link, Peer,
    rabit::Topology,
    trial::{Chance, Trial, peer},
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
enum Stage {
    Rank,
    Named,
    /// How many will connect to it.
    Done(i32),
}

/// A worker that links up.
struct Worker {
    link: Link,
    rank: u32,
    stage: Stage,
    good: BTreeSet<u32>,
    /// Whom it has connected to.
    connected: Vec<u32>,
}

impl Worker {
    fn start(trial: &mut Trial<Tracker>, peer: &Peer, command: &str, good: &[u32]) -> Worker {
        let link = trial.accept(peer);
        let rank = peer.task.index;
        trial.give(link, &[0x99, 0xff, 0, 0]);
        assert_eq!(trial.heard(link), [0x99, 0xff, 0, 0]);
        let own = if command == "start" { -1 } else { rank as i32 };
        assert!(trial.give(link, &header(own, -1, command)), "{:?}", trial.refused);
        Worker {
            link,
            rank,
            stage: Stage::Rank,
            good: good.iter().copied().collect(),
            connected: Vec::new(),
        }
    }

    /// Does what it can do; whether that was anything.
    fn step(&mut self, trial: &mut Trial<Tracker>, topology: &Topology) -> bool {
        let heard = trial.heard(self.link);
        if heard.is_empty() {
            return false;
        }
        match self.stage {
            Stage::Rank => {
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
                assert_eq!(ints(&heard), expected);
                let mut good = int(self.good.len() as i32).to_vec();
                good.extend(self.good.iter().flat_map(|rank| int(*rank as i32)));
                trial.give(self.link, &good);
                self.stage = Stage::Named;
            }
            Stage::Named => {
                let (head, mut rest) = heard.split_at(8);
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
                trial.give(self.link, &[int(0), port].concat());
                self.stage = Stage::Done(head[1]);
            }
            Stage::Done(_) => panic!("told more than it asked"),
        }
        true
    }
}

/// Lets all of them work until nobody can go on, and checks that every two neighbours have one connection.
fn link_up(
    trial: &mut Trial<Tracker>,
    workers: &mut [Worker],
    topology: &Topology,
    chance: &mut Chance,
) {
    let mut idle = 0;
    while idle < 20 * workers.len() {
        let who = chance.below(workers.len());
        idle = if workers[who].step(trial, topology) { 0 } else { idle + 1 };
    }
    let mut accepted: BTreeMap<u32, i32> = BTreeMap::new();
    for worker in &*workers {
        let all: BTreeSet<u32> = worker.connected.iter().copied().collect();
        assert_eq!(all.len(), worker.connected.len());
        assert!(all.is_disjoint(&worker.good));
        for other in &worker.connected {
            assert!(topology.neighbours(worker.rank).contains(other));
            *accepted.entry(*other).or_default() += 1;
        }
    }
    for worker in workers {
        let expected = accepted.get(&worker.rank).copied().unwrap_or(0);
        assert_eq!(worker.stage, Stage::Done(expected), "rank {}", worker.rank);
    }
    assert!(trial.refused.is_empty(), "{:?}", trial.refused);
}

fn peers(workers: u32) -> Vec<Peer> {
    (0..workers).map(|rank| peer(&format!("worker:{rank}"), 1)).collect()
}

/// All start, in some order, and are linked up.
fn running(workers: u32, chance: &mut Chance) -> Trial<Tracker> {
    let mut trial = Trial::of(tracker(workers));
    let mut peers = peers(workers);
    let mut all = Vec::new();
    while !peers.is_empty() {
        let peer = peers.remove(chance.below(peers.len()));
        all.push(Worker::start(&mut trial, &peer, "start", &[]));
    }
    assert_eq!(trial.missing(), "");
    link_up(&mut trial, &mut all, &Topology::new(workers), chance);
    trial
}

fn say(trial: &mut Trial<Tracker>, peer: &Peer, bytes: &[u8]) -> bool {
    let link = trial.accept(peer);
    trial.give(link, &[0x99, 0xff, 0, 0]) && trial.give(link, bytes)
}

#[test]
fn groups_of_every_size_link_up_in_any_order() {
    for workers in [1, 2, 3, 5, 9, 16, 40] {
        for seed in 0..20 {
            running(workers, &mut Chance(seed));
        }
    }
}

#[test]
fn two_workers_say_and_hear_these_bytes() {
    let mut trial = Trial::of(tracker(2));
    let links = peers(2).iter().map(|peer| trial.accept(peer)).collect::<Vec<Link>>();
    for link in &links {
        trial.give(
            *link,
            b"\x99\xff\0\0\xff\xff\xff\xff\xff\xff\xff\xff\x01\0\0\x000\x05\0\0\0start",
        );
    }
    assert_eq!(
        trial.heard(links[0]),
        b"\x99\xff\0\0\0\0\0\0\xff\xff\xff\xff\x02\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0"
    );
    assert_eq!(
        trial.heard(links[1]),
        b"\x99\xff\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
    );
    for link in &links {
        trial.give(*link, &int(0));
    }
    assert_eq!(trial.heard(links[0]), b"\0\0\0\0\x01\0\0\0");
    assert_eq!(trial.heard(links[1]), b"", "its neighbour has the turn");
    trial.give(links[0], b"\0\0\0\0\x28\x23\0\0");
    assert_eq!(
        trial.heard(links[1]),
        b"\x01\0\0\0\0\0\0\0\x08\0\0\x0010.0.0.7\x28\x23\0\0\0\0\0\0"
    );
}

#[test]
fn a_worker_that_comes_again_has_its_rank_and_its_neighbours_recover() {
    for workers in [2, 5, 9] {
        for seed in 0..20 {
            let mut chance = Chance(seed);
            let topology = Topology::new(workers);
            let mut trial = running(workers, &mut chance);
            let dead = chance.below(workers as usize) as u32;
            trial.ended(&peer(&format!("worker:{dead}"), 1));
            assert_eq!(trial.missing(), format!("worker:{dead}"));
            let mut all = Vec::new();
            let mut neighbours: Vec<u32> = topology.neighbours(dead).into_iter().collect();
            neighbours.push(dead);
            while !neighbours.is_empty() {
                let rank = neighbours.remove(chance.below(neighbours.len()));
                let name = format!("worker:{rank}");
                all.push(if rank == dead {
                    Worker::start(&mut trial, &peer(&name, 2), "start", &[])
                } else {
                    let good = topology.neighbours(rank).into_iter().filter(|rank| *rank != dead);
                    let good: Vec<u32> = good.collect();
                    Worker::start(&mut trial, &peer(&name, 1), "recover", &good)
                });
            }
            link_up(&mut trial, &mut all, &topology, &mut chance);
            assert_eq!(trial.missing(), "");
        }
    }
}

#[test]
fn who_dies_while_all_wait_is_waited_for_and_counted_once() {
    let mut trial = Trial::of(tracker(3));
    let mut all = vec![Worker::start(&mut trial, &peer("worker:0", 1), "start", &[])];
    let dead = Worker::start(&mut trial, &peer("worker:1", 1), "start", &[]);
    trial.close(dead.link);
    assert_eq!(trial.missing(), "worker:1 worker:2");
    trial.ended(&peer("worker:1", 1));
    all.push(Worker::start(&mut trial, &peer("worker:2", 1), "start", &[]));
    assert_eq!(trial.missing(), "worker:1");
    assert_eq!(trial.heard(all[0].link), b"");
    all.push(Worker::start(&mut trial, &peer("worker:1", 2), "start", &[]));
    link_up(&mut trial, &mut all, &Topology::new(3), &mut Chance(1));
}

#[test]
fn who_dies_in_its_turn_gives_it_back() {
    let mut trial = Trial::of(tracker(2));
    let mut all: Vec<Worker> =
        peers(2).iter().map(|peer| Worker::start(&mut trial, peer, "start", &[])).collect();
    for worker in &mut all {
        worker.step(&mut trial, &Topology::new(2));
    }
    assert!(!trial.heard(all[0].link).is_empty(), "has the turn");
    assert_eq!(trial.heard(all[1].link), b"");
    trial.close(all[0].link);
    assert!(!trial.heard(all[1].link).is_empty());
}

#[test]
fn all_shut_down_and_may_begin_anew() {
    let mut trial = running(3, &mut Chance(3));
    for rank in [2, 0] {
        let worker = peer(&format!("worker:{rank}"), 1);
        say(&mut trial, &worker, &header(rank, 3, "shutdown"));
    }
    let mut all = vec![Worker::start(&mut trial, &peer("worker:2", 1), "start", &[])];
    assert_eq!(trial.heard(all[0].link), b"", "the group it was in still works");
    say(&mut trial, &peer("worker:1", 1), &header(1, 3, "shutdown"));
    for rank in [0, 1] {
        all.push(Worker::start(&mut trial, &peer(&format!("worker:{rank}"), 1), "start", &[]));
    }
    link_up(&mut trial, &mut all, &Topology::new(3), &mut Chance(1));
}

#[test]
fn what_is_printed_is_said_line_by_line() {
    let mut trial = Trial::of(tracker(2));
    let printed = [header(-1, -1, "print"), text("[0]\ttrain-rmse:1.5\nmore\x1b[2J\n\n")].concat();
    assert!(!say(&mut trial, &peer("worker:1", 1), &printed), "no more is heard");
    assert!(trial.refused.is_empty());
    assert_eq!(trial.said, ["worker:1: [0] train-rmse:1.5", "worker:1: more [2J"]);
}

#[test]
fn strangers_are_refused() {
    let mut trial = running(2, &mut Chance(3));
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
        assert!(!say(&mut trial, &peer, &bytes));
    }
    let link = trial.accept(&worker);
    assert!(!trial.give(link, b"\x99\xfe"));
    expect![[r#"
        worker:2 is no worker of this round
        server:0 is no worker of this round
        rank 1 says that it is rank 0
        rank 1 says that it is rank -1
        rank 1 says that it is rank 0
        a worker expects 3 and not 2 of them
        a tracker's command is not known
        a tracker's magic number is another"#]]
    .assert_eq(&trial.refused.join("\n"));
    trial.ended(&worker);
    assert!(!say(&mut trial, &worker, &header(-1, -1, "start")));
    assert_eq!(trial.refused.last().unwrap(), "attempt 1 of worker:1 is over");

    let mut trial = Trial::of(tracker(2));
    assert!(say(&mut trial, &worker, &header(-1, -1, "start")));
    assert!(!say(&mut trial, &worker, &header(-1, -1, "start")));
    assert_eq!(trial.refused, ["rank 1 is claimed a second time"]);
}

#[test]
fn who_cannot_connect_for_ever_is_ended_and_others_get_on() {
    let mut trial = Trial::of(tracker(2));
    let mut all: Vec<Worker> =
        peers(2).iter().map(|peer| Worker::start(&mut trial, peer, "start", &[])).collect();
    let topology = Topology::new(2);
    assert!(all[0].step(&mut trial, &topology) && all[0].step(&mut trial, &topology));
    all[1].step(&mut trial, &topology);
    let told = |trial: &mut Trial<Tracker>| ints(&trial.heard(all[1].link)[..8]);
    for _ in 0..8 {
        assert_eq!(told(&mut trial), [1, 0]);
        assert!(trial.give(all[1].link, &[int(1), int(0)].concat()));
    }
    assert_eq!(told(&mut trial), [0, 1], "who could not be reached must come again");
    while trial.give(all[1].link, &[int(1), int(0)].concat()) {}
    assert_eq!(trial.refused, ["rank 1 cannot connect to its neighbours"]);
}

/// Everything that three workers hear, with every part cut in pieces and masters that die between them.
fn played(mut chance: Option<Chance>) -> Vec<Vec<u8>> {
    let mut trial = Trial::of(tracker(3));
    let links: Vec<Link> = peers(3).iter().map(|peer| trial.accept(peer)).collect();
    let start = [int(0xff99).to_vec(), header(-1, -1, "start")].concat();
    let mut script: Vec<(usize, Vec<u8>)> = (0..3).map(|who| (who, start.clone())).collect();
    script.extend((0..3).map(|who| (who, int(0).to_vec())));
    script.extend((0..3).map(|who| (who, [int(0), int(9000 + who as i32)].concat())));
    for (who, bytes) in script {
        let pieces = chance.as_mut().map_or(vec![&bytes[..]], |chance| chance.cut(&bytes));
        for piece in pieces {
            trial.give(links[who], piece);
            if chance.as_mut().is_some_and(|chance| chance.below(4) == 0) {
                trial.moved_to(tracker(3));
            }
        }
    }
    assert!(trial.refused.is_empty(), "{:?}", trial.refused);
    assert_eq!(trial.closed.len(), 3);
    links.into_iter().map(|link| trial.heard(link)).collect()
}

#[test]
fn pieces_and_masters_that_die_between_them_change_nothing() {
    let whole = played(None);
    for seed in 0..100 {
        assert_eq!(played(Some(Chance(seed))), whole, "{seed}");
    }
}

#[test]
fn spoiled_bytes_harm_nobody() {
    for seed in 0..300 {
        let mut chance = Chance(seed);
        let mut trial = Trial::of(tracker(3));
        for _ in 0..20 {
            let link = trial.accept(&peer("worker:1", 1));
            let command = ["print", "recover", "shutdown", "start"][chance.below(4)];
            let bytes = [int(0xff99).to_vec(), header(-1, -1, command), text("x"), vec![0; 8]];
            let bytes = chance.spoil(&bytes.concat());
            for piece in chance.cut(&bytes) {
                trial.give(link, piece);
            }
        }
        trial.ended(&peer("worker:1", 1));
        let mut all: Vec<Worker> = (0..3)
            .map(|rank| peer(&format!("worker:{rank}"), 2))
            .map(|peer| Worker::start(&mut trial, &peer, "start", &[]))
            .collect();
        trial.refused.clear();
        link_up(&mut trial, &mut all, &Topology::new(3), &mut chance);
    }
}
