//! The protocol: forms the ring and reports failures.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;

use super::message::{XgboostCommand, parse, prefixed};
use crate::{Effects, LinkId, Rejection};

/// Code that ends a worker when received on its error port. XGBoost's own tracker sends −1, which has no effect.
pub(crate) const ERROR: i32 = 1;

#[derive(Debug)]
pub(crate) struct XgboostTracker {
    states: Vec<XgboostRankState>,
    links: BTreeMap<LinkId, u32>,
}

#[derive(Debug)]
enum XgboostRankState {
    Absent,
    /// Waits for the others, on this link.
    Waiting(LinkId, XgboostWorker),
    Active(XgboostWorker),
    /// Has shut down.
    ShutDown,
}

#[derive(Clone, Debug)]
struct XgboostWorker {
    host: Arc<str>,
    port: u16,
    error_port: u16,
}

#[derive(Serialize)]
struct RingNeighbor<'a> {
    host: &'a str,
    port: u16,
    rank: usize,
}

/// A handled message.
#[derive(Debug, Default)]
pub(crate) struct XgboostMessage {
    pub length: usize,
    /// Text to print.
    pub printed: Option<String>,
    /// Ranks to stop because their group has failed, with their error ports.
    pub to_stop: Vec<(u32, u16)>,
}

impl XgboostTracker {
    pub(crate) fn new(workers: u32) -> XgboostTracker {
        XgboostTracker {
            states: (0..workers).map(|_| XgboostRankState::Absent).collect(),
            links: BTreeMap::new(),
        }
    }

    pub(crate) fn open(&mut self, link: LinkId, rank: u32) {
        self.links.insert(link, rank);
    }

    /// As [`Protocol::receive`](crate::Protocol::receive).
    pub(crate) fn receive(
        &mut self,
        link: LinkId,
        host: &Arc<str>,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<Option<XgboostMessage>, Rejection> {
        let Some(rank) = self.links.get(&link).copied() else {
            return Err(Rejection::new("input on a closed link"));
        };
        let state = &self.states[rank as usize];
        if matches!(state, XgboostRankState::Waiting(waiting, _) if *waiting == link) {
            return match bytes {
                [] => Ok(None),
                _ => Err(Rejection::new("unexpected input from a waiting worker")),
            };
        }
        let Some((length, hello, command)) = parse(bytes)? else {
            return Ok(None);
        };
        let known = matches!(state, XgboostRankState::Active(_) | XgboostRankState::ShutDown);
        if known
            && !matches!(command, XgboostCommand::Start { .. })
            && hello.rank != i64::from(rank)
        {
            let what = format!("rank {rank} identified itself as rank {}", hello.rank);
            return Err(Rejection::new(what));
        }
        let mut handled = XgboostMessage { length, ..XgboostMessage::default() };
        match command {
            XgboostCommand::Start { port, error_port } => {
                if hello.world_size > 0 {
                    return Err(Rejection::new("worker has started already"));
                }
                let host = host.clone();
                let worker = XgboostWorker { host, port, error_port };
                handled.to_stop = self.on_started(link, rank, worker, effects)?;
                return Ok(Some(handled));
            }
            XgboostCommand::Shutdown => {
                effects.persist();
                self.on_shut_down(rank);
            }
            XgboostCommand::Error { message, code } => {
                effects.persist();
                handled.printed = Some(format!("failed with code {code}: {message}"));
                handled.to_stop = self.end_group(rank);
            }
            XgboostCommand::Print { message } => handled.printed = Some(message),
        }
        self.links.remove(&link);
        effects.close(link);
        Ok(Some(handled))
    }

    fn on_started(
        &mut self,
        link: LinkId,
        rank: u32,
        worker: XgboostWorker,
        effects: &mut Effects,
    ) -> Result<Vec<(u32, u16)>, Rejection> {
        let to_stop = match &self.states[rank as usize] {
            XgboostRankState::Waiting(..) => {
                return Err(Rejection::new(format!("rank {rank} is already connected")));
            }
            // It left the group without a shutdown.
            XgboostRankState::Active(_) => self.end_group(rank),
            XgboostRankState::Absent | XgboostRankState::ShutDown => Vec::new(),
        };
        effects.persist();
        let size = self.states.len();
        effects.send(link, prefixed(&format!("{{\"world_size\":{size}}}")));
        self.states[rank as usize] = XgboostRankState::Waiting(link, worker);
        self.form_ring(effects);
        Ok(to_stop)
    }

    /// Sends each worker its neighbor once all are waiting.
    fn form_ring(&mut self, effects: &mut Effects) {
        let waiting = self.states.iter().map(|state| match state {
            XgboostRankState::Waiting(link, worker) => Some((*link, worker.clone())),
            XgboostRankState::Absent | XgboostRankState::Active(_) | XgboostRankState::ShutDown => {
                None
            }
        });
        let Some(all) = waiting.collect::<Option<Vec<(LinkId, XgboostWorker)>>>() else {
            return;
        };
        for (rank, (link, _)) in all.iter().enumerate() {
            let next = (rank + 1) % all.len();
            let (_, worker) = &all[next];
            let neighbor = RingNeighbor { host: &worker.host, port: worker.port, rank: next };
            // Numbers and strings: serialization cannot fail.
            let neighbor = serde_json::to_string(&neighbor).unwrap_or_default();
            effects.send(*link, prefixed(&neighbor));
            effects.close(*link);
            self.links.remove(link);
        }
        self.states = all.into_iter().map(|(_, worker)| XgboostRankState::Active(worker)).collect();
    }

    fn on_shut_down(&mut self, rank: u32) {
        let state = &mut self.states[rank as usize];
        // Ignore workers of a failed group.
        if matches!(state, XgboostRankState::Active(_)) {
            *state = XgboostRankState::ShutDown;
        }
        if self.states.iter().all(|state| matches!(state, XgboostRankState::ShutDown)) {
            self.states.fill_with(|| XgboostRankState::Absent);
        }
    }

    /// Ends the group if `rank` is an active member. Returns the other ranks to stop.
    fn end_group(&mut self, rank: u32) -> Vec<(u32, u16)> {
        if !matches!(self.states[rank as usize], XgboostRankState::Active(_)) {
            return Vec::new();
        }
        let mut to_stop = Vec::new();
        for (other, state) in (0..).zip(&mut self.states) {
            if let XgboostRankState::Active(worker) = state {
                if other != rank && worker.error_port > 0 {
                    to_stop.push((other, worker.error_port));
                }
                *state = XgboostRankState::Absent;
            }
        }
        to_stop
    }

    /// Handles the end of an unfinished link.
    pub(crate) fn close(&mut self, link: LinkId, effects: &mut Effects) {
        let Some(rank) = self.links.remove(&link) else {
            return;
        };
        let state = &mut self.states[rank as usize];
        if matches!(state, XgboostRankState::Waiting(waiting, _) if *waiting == link) {
            effects.persist();
            *state = XgboostRankState::Absent;
        }
    }

    /// Handles the end of the attempt of a rank. Returns the ranks to stop.
    pub(crate) fn attempt_ended(&mut self, rank: u32, effects: &mut Effects) -> Vec<(u32, u16)> {
        let links = self.links.iter().filter(|(_, of)| **of == rank);
        for link in links.map(|(link, _)| *link).collect::<Vec<LinkId>>() {
            self.close(link, effects);
        }
        self.end_group(rank)
    }

    /// Returns the ranks that waiting workers are waiting for.
    pub(crate) fn missing(&self) -> Vec<u32> {
        let waits = |state: &XgboostRankState| matches!(state, XgboostRankState::Waiting(..));
        if !self.states.iter().any(waits) {
            return Vec::new();
        }
        let missing = (0..).zip(&self.states).filter(|(_, state)| !waits(state));
        missing.map(|(rank, _)| rank).collect()
    }
}
