//! Fuzz targets of protocols that depend on the task of a link, on failures and on dials.
//!
//! The input is a sequence of parts, as for the stores. The number of a part selects one of five links that tasks
//! opened or of three dialed ones, closes a link, or restarts a task.

use ydl_core::TaskId;

use crate::{
    LinkId, Peer, Protocol,
    harness::{ProtocolHarness, peer},
    pslite::PsScheduler,
    tracker::Tracker,
    zmtp,
};

/// Limit of the debug output, more than three tasks and their links need.
const DEBUG_MAX: usize = 256 << 10;

/// Tasks that open the five links.
type Tasks = [&'static str; 5];

struct ProtocolRun<P> {
    harness: ProtocolHarness<P>,
    tasks: Tasks,
    attempts: [u32; 5],
    links: [Option<LinkId>; 5],
}

impl<P: Protocol> ProtocolRun<P> {
    fn peer(&self, of: usize) -> Peer {
        let first = self.tasks.iter().position(|task| *task == self.tasks[of]);
        peer(self.tasks[of], self.attempts[first.unwrap_or(of)])
    }

    fn part(&mut self, number: u8, bytes: &[u8]) {
        let slot = usize::from(number % 8);
        let Some(opened) = self.links.get(slot).copied() else {
            let link = LinkId::Dialed(slot as u64 - 5);
            return match number {
                128.. => self.harness.close_if_open(link),
                _ => _ = self.harness.feed(link, bytes),
            };
        };
        match number {
            192.. => {
                let first = self.tasks.iter().position(|task| *task == self.tasks[slot]);
                let peer = self.peer(slot);
                self.attempts[first.unwrap_or(slot)] += 1;
                for of in 0..5 {
                    if self.tasks[of] == self.tasks[slot]
                        && let Some(link) = self.links[of].take()
                    {
                        self.harness.close_if_open(link);
                    }
                }
                self.harness.attempt_ended(&peer);
            }
            128.. => {
                if let Some(link) = self.links[slot].take() {
                    self.harness.close_if_open(link);
                }
            }
            _ => {
                let peer = self.peer(slot);
                let link = opened.unwrap_or_else(|| self.harness.accept(&peer));
                let open = self.harness.feed(link, bytes);
                self.links[slot] = open.then_some(link);
            }
        }
        for (link, task, _) in std::mem::take(&mut self.harness.dials) {
            let of = self.tasks.iter().position(|name| *name == task.to_string());
            let peer = self.peer(of.expect("only these are dialed"));
            self.harness.open(link, &peer);
        }
    }
}

fn run<P: Protocol>(fresh: impl Fn() -> P, tasks: Tasks, mut bytes: &[u8]) {
    let mut run = ProtocolRun {
        harness: ProtocolHarness::new(fresh()),
        tasks,
        attempts: [1; 5],
        links: [None; 5],
    };
    while let Some(([number, length @ ..], rest)) = bytes.split_first_chunk::<3>() {
        let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
        let (piece, rest) = rest.split_at(length);
        bytes = rest;
        run.part(*number, piece);
    }
    let harness = &mut run.harness;
    assert!(format!("{:?}", harness.protocol).len() < DEBUG_MAX);
    let missing = harness.missing();
    harness.fail_over(fresh());
    assert_eq!(harness.missing(), missing);
}

/// Fuzzes MXNet's scheduler. One of the tasks does not belong to it.
pub fn pslite(bytes: &[u8]) {
    let tasks = ["worker:0", "worker:1", "server:0", "worker:2", "worker:0"];
    run(|| PsScheduler::new(2, 1), tasks, bytes);
    let mut session = zmtp::ZmtpSession::new(zmtp::SocketType::Dealer);
    let mut at = 0;
    while let Ok(Some((length, _))) = session.receive(&bytes[at..], 4096) {
        at += length;
    }
}

/// Fuzzes XGBoost's trackers. One of the tasks does not belong to them.
pub fn tracker(bytes: &[u8]) {
    let tasks = ["worker:0", "worker:1", "worker:2", "server:0", "worker:0"];
    let ranks: Vec<TaskId> = (0..3).map(|index| TaskId { role: "worker".into(), index }).collect();
    run(|| Tracker::new(ranks.clone()), tasks, bytes);
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use crate::harness::Rng;

    type Part = (u8, Vec<u8>);

    fn parts(mut bytes: &[u8]) -> Vec<Part> {
        let mut parts = Vec::new();
        while let Some(([number, length @ ..], rest)) = bytes.split_first_chunk::<3>() {
            let (piece, rest) = rest.split_at(u16::from_be_bytes(*length).into());
            parts.push((*number, piece.to_vec()));
            bytes = rest;
        }
        parts
    }

    /// Returns the parts with some of them dropped, repeated, reordered, redirected or corrupted.
    fn shuffled(parts: &[Part], rng: &mut Rng) -> Vec<u8> {
        let mut order: Vec<usize> = (0..parts.len()).collect();
        for _ in 0..rng.below(parts.len()) {
            let (one, other) = (rng.below(order.len()), rng.below(parts.len()));
            match rng.below(3) {
                0 => order.insert(one, other),
                1 if order.len() > 1 => _ = order.remove(one),
                _ => order[one] = other,
            }
        }
        let mut bytes = Vec::new();
        for at in order {
            let (mut number, mut piece) = parts[at].clone();
            match rng.below(16) {
                0 => number = rng.next() as u8,
                1 => piece = rng.corrupt(&piece),
                _ => {}
            }
            bytes.push(number);
            bytes.extend((piece.len() as u16).to_be_bytes());
            bytes.extend(piece);
        }
        bytes
    }

    /// A quick substitute for a fuzzer.
    #[test]
    fn corrupted_and_shuffled_seeds_are_handled() {
        check("pslite", super::pslite);
        check("tracker", super::tracker);
    }

    fn check(target: &str, read: fn(&[u8])) {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
        for seed in fs::read_dir(seeds.join(target)).unwrap() {
            let seed = fs::read(seed.unwrap().path()).unwrap();
            for round in 0..ROUNDS {
                let mut rng = Rng(round);
                read(&rng.corrupt(&seed));
                read(&shuffled(&parts(&seed), &mut rng));
            }
        }
    }

    const ROUNDS: u64 = 200;
}
