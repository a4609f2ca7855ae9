//! Who is where.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;

use super::message::{XgboostCommand, framed, read};
use crate::{Effects, LinkId, Rejection};

/// What ends a worker that reads it at its error port. XGBoost's own tracker sends −1, which does nothing.
pub(crate) const ERROR: i32 = 1;

#[derive(Debug)]
pub(crate) struct XgboostTracker {
    places: Vec<XgboostRankState>,
    lines: BTreeMap<LinkId, u32>,
}

#[derive(Debug)]
enum XgboostRankState {
    Absent,
    /// Waits on that link for the others.
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

/// What a tracker of both kinds does with what was said.
#[derive(Debug, Default)]
pub(crate) struct XgboostMessage {
    pub length: usize,
    /// For people.
    pub lines: Option<String>,
    /// Ranks whose group is at an end, and the ports at which they are to hear it.
    pub broken: Vec<(u32, u16)>,
}

impl XgboostTracker {
    pub fn new(workers: u32) -> XgboostTracker {
        XgboostTracker {
            places: (0..workers).map(|_| XgboostRankState::Absent).collect(),
            lines: BTreeMap::new(),
        }
    }

    pub fn open(&mut self, link: LinkId, rank: u32) {
        self.lines.insert(link, rank);
    }

    /// As [`Protocol::receive`](crate::Protocol::receive).
    pub fn receive(
        &mut self,
        link: LinkId,
        host: &Arc<str>,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<Option<XgboostMessage>, Rejection> {
        let Some(rank) = self.lines.get(&link).copied() else {
            return Err(Rejection::new("input on a closed link"));
        };
        let place = &self.places[rank as usize];
        if matches!(place, XgboostRankState::Waiting(waiting, _) if *waiting == link) {
            return match bytes {
                [] => Ok(None),
                _ => Err(Rejection::new("unexpected input from a waiting worker")),
            };
        }
        let Some((length, hello, command)) = read(bytes)? else {
            return Ok(None);
        };
        let known = matches!(place, XgboostRankState::Active(_) | XgboostRankState::ShutDown);
        if known
            && !matches!(command, XgboostCommand::Start { .. })
            && hello.rank != i64::from(rank)
        {
            let what = format!("rank {rank} identified itself as rank {}", hello.rank);
            return Err(Rejection::new(what));
        }
        let mut heard = XgboostMessage { length, ..XgboostMessage::default() };
        match command {
            XgboostCommand::Start { port, error_port } => {
                if hello.world_size > 0 {
                    return Err(Rejection::new("worker has started already"));
                }
                let host = host.clone();
                let worker = XgboostWorker { host, port, error_port };
                heard.broken = self.on_started(link, rank, worker, effects)?;
                return Ok(Some(heard));
            }
            XgboostCommand::Shutdown => {
                effects.persist();
                self.on_shut_down(rank);
            }
            XgboostCommand::Error { message, code } => {
                effects.persist();
                heard.lines = Some(format!("failed with code {code}: {message}"));
                heard.broken = self.broken_by(rank);
            }
            XgboostCommand::Print { message } => heard.lines = Some(message),
        }
        self.lines.remove(&link);
        effects.close(link);
        Ok(Some(heard))
    }

    fn on_started(
        &mut self,
        link: LinkId,
        rank: u32,
        worker: XgboostWorker,
        effects: &mut Effects,
    ) -> Result<Vec<(u32, u16)>, Rejection> {
        let broken = match &self.places[rank as usize] {
            XgboostRankState::Waiting(..) => {
                return Err(Rejection::new(format!("rank {rank} is already connected")));
            }
            // It has left the group without a word.
            XgboostRankState::Active(_) => self.broken_by(rank),
            XgboostRankState::Absent | XgboostRankState::ShutDown => Vec::new(),
        };
        effects.persist();
        let size = self.places.len();
        effects.send(link, framed(&format!("{{\"world_size\":{size}}}")));
        self.places[rank as usize] = XgboostRankState::Waiting(link, worker);
        self.gather(effects);
        Ok(broken)
    }

    /// Once all wait, each is told of the next.
    fn gather(&mut self, effects: &mut Effects) {
        let waiting = self.places.iter().map(|place| match place {
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
            let next = RingNeighbor { host: &worker.host, port: worker.port, rank: next };
            // Numbers and text: it cannot fail.
            let next = serde_json::to_string(&next).unwrap_or_default();
            effects.send(*link, framed(&next));
            effects.close(*link);
            self.lines.remove(link);
        }
        self.places = all.into_iter().map(|(_, worker)| XgboostRankState::Active(worker)).collect();
    }

    fn on_shut_down(&mut self, rank: u32) {
        let place = &mut self.places[rank as usize];
        // Of a group that is at an end already nobody counts who leaves.
        if matches!(place, XgboostRankState::Active(_)) {
            *place = XgboostRankState::ShutDown;
        }
        if self.places.iter().all(|place| matches!(place, XgboostRankState::ShutDown)) {
            self.places.fill_with(|| XgboostRankState::Absent);
        }
    }

    /// The group is at an end because of one of them, if it was there: who else must hear of it.
    fn broken_by(&mut self, rank: u32) -> Vec<(u32, u16)> {
        if !matches!(self.places[rank as usize], XgboostRankState::Active(_)) {
            return Vec::new();
        }
        let mut broken = Vec::new();
        for (other, place) in (0..).zip(&mut self.places) {
            if let XgboostRankState::Active(worker) = place {
                if other != rank && worker.error_port > 0 {
                    broken.push((other, worker.error_port));
                }
                *place = XgboostRankState::Absent;
            }
        }
        broken
    }

    /// A link has ended before all was said.
    pub fn close(&mut self, link: LinkId, effects: &mut Effects) {
        let Some(rank) = self.lines.remove(&link) else {
            return;
        };
        let place = &mut self.places[rank as usize];
        if matches!(place, XgboostRankState::Waiting(waiting, _) if *waiting == link) {
            effects.persist();
            *place = XgboostRankState::Absent;
        }
    }

    /// Nobody of that rank lives: who must hear of it.
    pub fn attempt_ended(&mut self, rank: u32, effects: &mut Effects) -> Vec<(u32, u16)> {
        let links = self.lines.iter().filter(|(_, of)| **of == rank);
        for link in links.map(|(link, _)| *link).collect::<Vec<LinkId>>() {
            self.close(link, effects);
        }
        self.broken_by(rank)
    }

    /// Whom those who wait are waiting for.
    pub fn missing(&self) -> Vec<u32> {
        let waits = |place: &XgboostRankState| matches!(place, XgboostRankState::Waiting(..));
        if !self.places.iter().any(waits) {
            return Vec::new();
        }
        let missing = (0..).zip(&self.places).filter(|(_, place)| !waits(place));
        missing.map(|(rank, _)| rank).collect()
    }
}
