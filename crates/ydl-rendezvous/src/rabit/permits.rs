//! Who may link up now, and with whom.
//!
//! A rank gets its turn only while none of its neighbours has one, so of two neighbours the later always finds the
//! earlier listening, and exactly one of them connects. Those who are not neighbours take their turns together.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use super::{
    reader::{put_int, put_text},
    topology::Topology,
};

#[derive(Debug)]
pub(super) struct ConnectPermits {
    pub topology: Topology,
    /// Who has said which of its links are good, in the order of their saying it.
    queue: VecDeque<(u32, BTreeSet<u32>)>,
    now: BTreeMap<u32, ConnectPermit>,
    /// Who expects others to connect.
    listening: BTreeMap<u32, Listener>,
}

#[derive(Debug)]
struct ConnectPermit {
    /// Those it was told to connect to.
    connects: Vec<u32>,
    /// How many will connect to it.
    accepts: usize,
}

#[derive(Debug)]
struct Listener {
    host: Arc<str>,
    port: u16,
    /// Never 0: who expects nobody is not here.
    accepts: usize,
}

impl ConnectPermits {
    pub fn new(workers: u32) -> ConnectPermits {
        ConnectPermits {
            topology: Topology::new(workers),
            queue: VecDeque::new(),
            now: BTreeMap::new(),
            listening: BTreeMap::new(),
        }
    }

    pub fn ask(&mut self, rank: u32, good: Vec<u32>) {
        self.queue.push_back((rank, good.into_iter().collect()));
    }

    /// Those whose turn it is from now on, and what each is told: whom to connect to, and how many will connect to it.
    pub fn advance(&mut self) -> Vec<(u32, Vec<u8>)> {
        let mut told = Vec::new();
        for (rank, good) in std::mem::take(&mut self.queue) {
            let neighbours = self.topology.neighbours(rank);
            if neighbours.iter().any(|other| self.now.contains_key(other)) {
                self.queue.push_back((rank, good));
                continue;
            }
            let bad: Vec<u32> = neighbours.difference(&good).copied().collect();
            let known = bad.iter().filter_map(|rank| Some((*rank, self.listening.get(rank)?)));
            let known: Vec<_> = known.collect();
            let accepts = bad.len() - known.len();
            let mut out = Vec::new();
            put_int(&mut out, known.len() as i64);
            put_int(&mut out, accepts as i64);
            for (rank, listening) in &known {
                put_text(&mut out, &listening.host);
                put_int(&mut out, listening.port.into());
                put_int(&mut out, (*rank).into());
            }
            let connects = known.into_iter().map(|(rank, _)| rank).collect();
            self.now.insert(rank, ConnectPermit { connects, accepts });
            told.push((rank, out));
        }
        told
    }

    /// It has connected to those it was told of, and listens there for the others.
    pub fn linked(&mut self, rank: u32, host: &Arc<str>, port: u16) {
        let Some(turn) = self.now.remove(&rank) else {
            return;
        };
        for other in turn.connects {
            if let Some(listening) = self.listening.get_mut(&other) {
                listening.accepts -= 1;
                if listening.accepts == 0 {
                    self.listening.remove(&other);
                }
            }
        }
        if turn.accepts > 0 {
            let listening = Listener { host: host.clone(), port, accepts: turn.accepts };
            self.listening.insert(rank, listening);
        }
    }

    /// Gives its turn back, or its place in the queue. Whom it was told to connect to.
    pub fn give_up(&mut self, rank: u32) -> Vec<u32> {
        self.queue.retain(|(queued, _)| *queued != rank);
        self.now.remove(&rank).map_or(Vec::new(), |turn| turn.connects)
    }

    /// It does not listen any more, or nobody reaches it.
    pub fn deaf(&mut self, rank: u32) {
        self.listening.remove(&rank);
    }
}
