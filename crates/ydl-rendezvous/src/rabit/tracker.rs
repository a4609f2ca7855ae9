//! The protocol: assigns ranks and coordinates connections.
//!
//! Ranks are assigned when all workers are present, so a failure before that has no effect on the others. Then workers
//! get permits to connect to their neighbors.
//!
//! A worker that restarts while the group is active connects to the workers that recover. Once a worker has shut down,
//! new workers wait for the next group.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    permits::ConnectPermits,
    reader::{RabitCommand, RabitHeader, RabitReader, put_int},
};
use crate::{Effects, LinkId, Rejection};

/// Number of failed connection attempts after which unreachable ranks are no longer listed: they have ended or will
/// register again.
const UNREACHABLE_AFTER: u32 = 8;
/// Maximum number of connection attempts of a worker.
const TRIES_MAX: u32 = 64;

#[derive(Debug)]
pub(crate) struct RabitTracker {
    states: Vec<RabitRankState>,
    links: BTreeMap<LinkId, RabitLink>,
    permits: ConnectPermits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RabitRankState {
    Absent,
    /// Waits for the others, on this link.
    Waiting(LinkId),
    /// Has received its rank.
    Active,
    /// Has shut down.
    ShutDown,
}

#[derive(Debug)]
struct RabitLink {
    rank: u32,
    stage: RabitStage,
    tries: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RabitStage {
    Header,
    Waiting,
    /// Will report its existing connections.
    Links,
    Queued,
    /// Will report failed connections and its port.
    Connecting,
}

/// A handled message.
#[derive(Debug)]
pub(crate) struct RabitMessage<'a> {
    pub length: usize,
    /// Text to print.
    pub printed: Option<&'a [u8]>,
}

impl RabitTracker {
    pub(crate) fn new(workers: u32) -> RabitTracker {
        RabitTracker {
            states: vec![RabitRankState::Absent; workers as usize],
            links: BTreeMap::new(),
            permits: ConnectPermits::new(workers),
        }
    }

    pub(crate) fn open(&mut self, link: LinkId, rank: u32) {
        let worker = RabitLink { rank, stage: RabitStage::Header, tries: 0 };
        self.links.insert(link, worker);
    }

    /// As [`Protocol::receive`](crate::Protocol::receive).
    pub(crate) fn receive<'a>(
        &mut self,
        link: LinkId,
        host: &Arc<str>,
        bytes: &'a [u8],
        effects: &mut Effects,
    ) -> Result<Option<RabitMessage<'a>>, Rejection> {
        let workers = self.permits.topology.workers();
        let Some(worker) = self.links.get_mut(&link) else {
            return Err(Rejection::new("input on a closed link"));
        };
        let mut reader = RabitReader::new(bytes);
        let mut printed = None;
        match worker.stage {
            RabitStage::Header => {
                let Some(header) = reader.header()? else {
                    return Ok(None);
                };
                printed = self.on_header(link, &header, effects)?;
            }
            RabitStage::Links => {
                let Some(connected) = reader.ranks(workers)? else {
                    return Ok(None);
                };
                worker.stage = RabitStage::Queued;
                self.permits.request(worker.rank, connected);
                effects.persist();
                self.grant_permits(effects);
            }
            RabitStage::Connecting => {
                let Some(failures) = reader.int() else {
                    return Ok(None);
                };
                if failures != 0 {
                    effects.persist();
                    self.on_failed(link)?;
                } else {
                    let Some(port) = reader.int() else {
                        return Ok(None);
                    };
                    self.on_connected(link, host, port, effects)?;
                    effects.persist();
                }
                self.grant_permits(effects);
            }
            RabitStage::Waiting | RabitStage::Queued if bytes.is_empty() => return Ok(None),
            RabitStage::Waiting | RabitStage::Queued => {
                return Err(Rejection::new("unexpected input from a waiting worker"));
            }
        }
        let length = reader.position();
        Ok(Some(RabitMessage { length, printed }))
    }

    fn on_header<'a>(
        &mut self,
        link: LinkId,
        header: &RabitHeader<'a>,
        effects: &mut Effects,
    ) -> Result<Option<&'a [u8]>, Rejection> {
        let Some(rank) = self.links.get(&link).map(|worker| worker.rank) else {
            return Ok(None);
        };
        let own = i64::from(header.rank) == i64::from(rank);
        let state = &mut self.states[rank as usize];
        let known = match header.command {
            RabitCommand::Start => own || header.rank == -1,
            RabitCommand::Recover | RabitCommand::Shutdown => own,
            RabitCommand::Print(_) => true,
        };
        if !known {
            let what = format!("rank {rank} identified itself as rank {}", header.rank);
            return Err(Rejection::new(what));
        }
        match header.command {
            RabitCommand::Print(text) => {
                effects.close(link);
                self.links.remove(&link);
                return Ok(Some(text));
            }
            RabitCommand::Shutdown => {
                *state = RabitRankState::ShutDown;
                self.permits.remove_listener(rank);
                effects.persist();
                effects.close(link);
                self.links.remove(&link);
                if self.states.iter().all(|state| *state == RabitRankState::ShutDown) {
                    self.states.fill(RabitRankState::Absent);
                }
                return Ok(None);
            }
            RabitCommand::Start | RabitCommand::Recover => {}
        }
        let workers = i64::from(self.permits.topology.workers());
        if header.world > 0 && i64::from(header.world) != workers {
            let what = format!("worker expects {} workers, the job has {workers}", header.world);
            return Err(Rejection::new(what));
        }
        let busy = |worker: &RabitLink| worker.rank == rank && worker.stage != RabitStage::Header;
        if self.links.values().any(busy) {
            return Err(Rejection::new(format!("rank {rank} is already connected")));
        }
        effects.persist();
        // Its earlier listener is gone.
        self.permits.remove_listener(rank);
        *state = RabitRankState::Waiting(link);
        if let Some(worker) = self.links.get_mut(&link) {
            worker.stage = RabitStage::Waiting;
        }
        let others = self.states.iter().filter(|state| **state != RabitRankState::Waiting(link));
        let working = others.clone().any(|state| *state == RabitRankState::Active)
            && others
                .clone()
                .all(|state| matches!(state, RabitRankState::Active | RabitRankState::Absent));
        if working {
            self.assign(link, effects);
        } else if self.states.iter().all(|state| matches!(state, RabitRankState::Waiting(_))) {
            for state in self.states.clone() {
                if let RabitRankState::Waiting(link) = state {
                    self.assign(link, effects);
                }
            }
        }
        Ok(None)
    }

    /// Sends a worker its rank and its neighbors.
    fn assign(&mut self, link: LinkId, effects: &mut Effects) {
        let Some(worker) = self.links.get_mut(&link) else {
            return;
        };
        worker.stage = RabitStage::Links;
        let rank = worker.rank;
        self.states[rank as usize] = RabitRankState::Active;
        let number = |rank: Option<u32>| rank.map_or(-1, i64::from);
        let mut out = Vec::new();
        put_int(&mut out, rank.into());
        put_int(&mut out, number(self.permits.topology.parent(rank)));
        put_int(&mut out, self.permits.topology.workers().into());
        let tree = self.permits.topology.tree(rank);
        put_int(&mut out, tree.len() as i64);
        for neighbor in tree {
            put_int(&mut out, neighbor.into());
        }
        let ring = self.permits.topology.ring(rank);
        put_int(&mut out, number(ring.map(|(before, _)| before)));
        put_int(&mut out, number(ring.map(|(_, after)| after)));
        effects.send(link, out);
    }

    /// Grants all possible permits.
    fn grant_permits(&mut self, effects: &mut Effects) {
        for (rank, message) in self.permits.grant() {
            let queued =
                |worker: &RabitLink| worker.rank == rank && worker.stage == RabitStage::Queued;
            let found = self.links.iter_mut().find(|(_, worker)| queued(worker));
            if let Some((link, worker)) = found {
                worker.stage = RabitStage::Connecting;
                effects.send(*link, message);
            }
        }
    }

    /// Handles failed connections. The worker reports its connections again.
    fn on_failed(&mut self, link: LinkId) -> Result<(), Rejection> {
        let Some(worker) = self.links.get_mut(&link) else {
            return Ok(());
        };
        worker.tries += 1;
        worker.stage = RabitStage::Links;
        let listed = self.permits.release(worker.rank);
        if worker.tries >= TRIES_MAX {
            let what = format!("rank {} cannot connect to its neighbors", worker.rank);
            return Err(Rejection::new(what));
        }
        if worker.tries >= UNREACHABLE_AFTER {
            for rank in listed {
                self.permits.remove_listener(rank);
            }
        }
        Ok(())
    }

    fn on_connected(
        &mut self,
        link: LinkId,
        host: &Arc<str>,
        port: i32,
        effects: &mut Effects,
    ) -> Result<(), Rejection> {
        let Some(rank) = self.links.get(&link).map(|worker| worker.rank) else {
            return Ok(());
        };
        let Some(port) = u16::try_from(port).ok().filter(|port| *port > 0) else {
            let what = format!("rank {rank} reported the invalid port `{port}`");
            return Err(Rejection::new(what));
        };
        self.permits.complete(rank, host, port);
        self.links.remove(&link);
        effects.close(link);
        Ok(())
    }

    /// Handles the end of an unfinished link.
    pub(crate) fn close(&mut self, link: LinkId, effects: &mut Effects) {
        let Some(worker) = self.links.remove(&link) else {
            return;
        };
        match worker.stage {
            RabitStage::Header => return,
            RabitStage::Waiting => self.states[worker.rank as usize] = RabitRankState::Absent,
            RabitStage::Links => {}
            RabitStage::Queued | RabitStage::Connecting => _ = self.permits.release(worker.rank),
        }
        effects.persist();
        self.grant_permits(effects);
    }

    /// Handles the end of the attempt of a rank.
    pub(crate) fn attempt_ended(&mut self, rank: u32, effects: &mut Effects) {
        self.permits.remove_listener(rank);
        let links = self.links.iter().filter(|(_, worker)| worker.rank == rank);
        for link in links.map(|(link, _)| *link).collect::<Vec<LinkId>>() {
            self.close(link, effects);
        }
        let state = &mut self.states[rank as usize];
        if *state != RabitRankState::ShutDown {
            *state = RabitRankState::Absent;
        }
    }

    /// Returns the ranks that waiting workers are waiting for.
    pub(crate) fn missing(&self) -> Vec<u32> {
        let states = || (0..).zip(&self.states);
        let waits = |state: &RabitRankState| matches!(state, RabitRankState::Waiting(_));
        let begun = self.states.iter().any(|state| *state != RabitRankState::Absent);
        let pending = self.states.iter().any(waits);
        let missing = states().filter(|(_, state)| match state {
            RabitRankState::Waiting(_) => false,
            RabitRankState::Absent => begun,
            RabitRankState::Active | RabitRankState::ShutDown => pending,
        });
        missing.map(|(rank, _)| rank).collect()
    }
}
