//! Permits to connect to neighbors.
//!
//! A rank gets a permit only while none of its neighbors has one. So of two neighbors, the later always finds the
//! earlier listening, and exactly one of them connects. Ranks that are not neighbors can have permits at the same time.

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
    /// Ranks that wait for a permit, with the connections they have already.
    queue: VecDeque<(u32, BTreeSet<u32>)>,
    active: BTreeMap<u32, ConnectPermit>,
    /// Ranks that expect connections.
    listeners: BTreeMap<u32, Listener>,
}

#[derive(Debug)]
struct ConnectPermit {
    /// Ranks to connect to.
    connects: Vec<u32>,
    /// Number of expected connections.
    accepts: usize,
}

#[derive(Debug)]
struct Listener {
    host: Arc<str>,
    port: u16,
    /// Number of expected connections. Never 0.
    accepts: usize,
}

impl ConnectPermits {
    pub(crate) fn new(workers: u32) -> ConnectPermits {
        ConnectPermits {
            topology: Topology::new(workers),
            queue: VecDeque::new(),
            active: BTreeMap::new(),
            listeners: BTreeMap::new(),
        }
    }

    pub(crate) fn request(&mut self, rank: u32, connected: Vec<u32>) {
        self.queue.push_back((rank, connected.into_iter().collect()));
    }

    /// Grants all possible permits. Returns each rank with its message: the ranks to connect to, and the number of
    /// expected connections.
    pub(crate) fn grant(&mut self) -> Vec<(u32, Vec<u8>)> {
        let mut granted = Vec::new();
        for (rank, connected) in std::mem::take(&mut self.queue) {
            let neighbors = self.topology.neighbors(rank);
            if neighbors.iter().any(|other| self.active.contains_key(other)) {
                self.queue.push_back((rank, connected));
                continue;
            }
            let missing: Vec<u32> = neighbors.difference(&connected).copied().collect();
            let known = missing.iter().filter_map(|rank| Some((*rank, self.listeners.get(rank)?)));
            let known: Vec<_> = known.collect();
            let accepts = missing.len() - known.len();
            let mut out = Vec::new();
            put_int(&mut out, known.len() as i64);
            put_int(&mut out, accepts as i64);
            for (rank, listener) in &known {
                put_text(&mut out, &listener.host);
                put_int(&mut out, listener.port.into());
                put_int(&mut out, (*rank).into());
            }
            let connects = known.into_iter().map(|(rank, _)| rank).collect();
            self.active.insert(rank, ConnectPermit { connects, accepts });
            granted.push((rank, out));
        }
        granted
    }

    /// Ends a permit after success: the rank has connected to the listed ranks, and listens on `port` for the others.
    pub(crate) fn complete(&mut self, rank: u32, host: &Arc<str>, port: u16) {
        let Some(permit) = self.active.remove(&rank) else {
            return;
        };
        for other in permit.connects {
            if let Some(listener) = self.listeners.get_mut(&other) {
                listener.accepts -= 1;
                if listener.accepts == 0 {
                    self.listeners.remove(&other);
                }
            }
        }
        if permit.accepts > 0 {
            let listener = Listener { host: host.clone(), port, accepts: permit.accepts };
            self.listeners.insert(rank, listener);
        }
    }

    /// Releases a permit or a place in the queue. Returns the ranks of the permit.
    pub(crate) fn release(&mut self, rank: u32) -> Vec<u32> {
        self.queue.retain(|(queued, _)| *queued != rank);
        self.active.remove(&rank).map_or(Vec::new(), |permit| permit.connects)
    }

    /// Removes a listener that is gone or unreachable.
    pub(crate) fn remove_listener(&mut self, rank: u32) {
        self.listeners.remove(&rank);
    }
}
