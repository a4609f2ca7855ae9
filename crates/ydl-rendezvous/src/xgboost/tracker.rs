//! Who is where.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;

use super::words::{Command, framed, read};
use crate::{Link, Reaction, Refusal};

/// What ends a worker that reads it at its error port. XGBoost's own tracker sends −1, which does nothing.
pub(crate) const ERROR: i32 = 1;

#[derive(Debug)]
pub(crate) struct Tracker {
    places: Vec<Place>,
    lines: BTreeMap<Link, u32>,
}

#[derive(Debug)]
enum Place {
    Away,
    /// Waits on that link for the others.
    Waiting(Link, Worker),
    Here(Worker),
    /// Has shut down.
    Down,
}

#[derive(Clone, Debug)]
struct Worker {
    host: Arc<str>,
    port: u16,
    error_port: u16,
}

#[derive(Serialize)]
struct Next<'a> {
    host: &'a str,
    port: u16,
    rank: usize,
}

/// What a tracker of both kinds does with what was said.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub length: usize,
    /// For people.
    pub lines: Option<String>,
    /// Ranks whose group is at an end, and the ports at which they are to hear it.
    pub broken: Vec<(u32, u16)>,
}

impl Tracker {
    pub fn new(workers: u32) -> Tracker {
        Tracker { places: (0..workers).map(|_| Place::Away).collect(), lines: BTreeMap::new() }
    }

    pub fn open(&mut self, link: Link, rank: u32) {
        self.lines.insert(link, rank);
    }

    /// As [`Protocol::take`](crate::Protocol::take).
    pub fn take(
        &mut self,
        link: Link,
        host: &Arc<str>,
        bytes: &[u8],
        reaction: &mut Reaction,
    ) -> Result<Option<Heard>, Refusal> {
        let Some(rank) = self.lines.get(&link).copied() else {
            return Err(Refusal::new("a link speaks that is over"));
        };
        let place = &self.places[rank as usize];
        if matches!(place, Place::Waiting(waiting, _) if *waiting == link) {
            return match bytes {
                [] => Ok(None),
                _ => Err(Refusal::new("a worker speaks while it should listen")),
            };
        }
        let Some((length, hello, command)) = read(bytes)? else {
            return Ok(None);
        };
        let known = matches!(place, Place::Here(_) | Place::Down);
        if known && !matches!(command, Command::Start { .. }) && hello.rank != i64::from(rank) {
            let what = format!("rank {rank} says that it is rank {}", hello.rank);
            return Err(Refusal::new(what));
        }
        let mut heard = Heard { length, ..Heard::default() };
        match command {
            Command::Start { port, error_port } => {
                if hello.world_size > 0 {
                    return Err(Refusal::new("a worker starts that has started already"));
                }
                let host = host.clone();
                let worker = Worker { host, port, error_port };
                heard.broken = self.on_started(link, rank, worker, reaction)?;
                return Ok(Some(heard));
            }
            Command::Shutdown => {
                reaction.keep();
                self.on_shut_down(rank);
            }
            Command::Error { message, code } => {
                reaction.keep();
                heard.lines = Some(format!("failed with code {code}: {message}"));
                heard.broken = self.broken_by(rank);
            }
            Command::Print { message } => heard.lines = Some(message),
        }
        self.lines.remove(&link);
        reaction.close(link);
        Ok(Some(heard))
    }

    fn on_started(
        &mut self,
        link: Link,
        rank: u32,
        worker: Worker,
        reaction: &mut Reaction,
    ) -> Result<Vec<(u32, u16)>, Refusal> {
        let broken = match &self.places[rank as usize] {
            Place::Waiting(..) => {
                return Err(Refusal::new(format!("rank {rank} is claimed a second time")));
            }
            // It has left the group without a word.
            Place::Here(_) => self.broken_by(rank),
            Place::Away | Place::Down => Vec::new(),
        };
        reaction.keep();
        let size = self.places.len();
        reaction.send(link, framed(&format!("{{\"world_size\":{size}}}")));
        self.places[rank as usize] = Place::Waiting(link, worker);
        self.gather(reaction);
        Ok(broken)
    }

    /// Once all wait, each is told of the next.
    fn gather(&mut self, reaction: &mut Reaction) {
        let waiting = self.places.iter().map(|place| match place {
            Place::Waiting(link, worker) => Some((*link, worker.clone())),
            Place::Away | Place::Here(_) | Place::Down => None,
        });
        let Some(all) = waiting.collect::<Option<Vec<(Link, Worker)>>>() else {
            return;
        };
        for (rank, (link, _)) in all.iter().enumerate() {
            let next = (rank + 1) % all.len();
            let (_, worker) = &all[next];
            let next = Next { host: &worker.host, port: worker.port, rank: next };
            // Numbers and text: it cannot fail.
            let next = serde_json::to_string(&next).unwrap_or_default();
            reaction.send(*link, framed(&next));
            reaction.close(*link);
            self.lines.remove(link);
        }
        self.places = all.into_iter().map(|(_, worker)| Place::Here(worker)).collect();
    }

    fn on_shut_down(&mut self, rank: u32) {
        let place = &mut self.places[rank as usize];
        // Of a group that is at an end already nobody counts who leaves.
        if matches!(place, Place::Here(_)) {
            *place = Place::Down;
        }
        if self.places.iter().all(|place| matches!(place, Place::Down)) {
            self.places.fill_with(|| Place::Away);
        }
    }

    /// The group is at an end because of one of them, if it was there: who else must hear of it.
    fn broken_by(&mut self, rank: u32) -> Vec<(u32, u16)> {
        if !matches!(self.places[rank as usize], Place::Here(_)) {
            return Vec::new();
        }
        let mut broken = Vec::new();
        for (other, place) in (0..).zip(&mut self.places) {
            if let Place::Here(worker) = place {
                if other != rank && worker.error_port > 0 {
                    broken.push((other, worker.error_port));
                }
                *place = Place::Away;
            }
        }
        broken
    }

    /// A link has ended before all was said.
    pub fn close(&mut self, link: Link, reaction: &mut Reaction) {
        let Some(rank) = self.lines.remove(&link) else {
            return;
        };
        let place = &mut self.places[rank as usize];
        if matches!(place, Place::Waiting(waiting, _) if *waiting == link) {
            reaction.keep();
            *place = Place::Away;
        }
    }

    /// Nobody of that rank lives: who must hear of it.
    pub fn ended(&mut self, rank: u32, reaction: &mut Reaction) -> Vec<(u32, u16)> {
        let links = self.lines.iter().filter(|(_, of)| **of == rank);
        for link in links.map(|(link, _)| *link).collect::<Vec<Link>>() {
            self.close(link, reaction);
        }
        self.broken_by(rank)
    }

    /// Whom those who wait are waiting for.
    pub fn missing(&self) -> Vec<u32> {
        let waits = |place: &Place| matches!(place, Place::Waiting(..));
        if !self.places.iter().any(waits) {
            return Vec::new();
        }
        let missing = (0..).zip(&self.places).filter(|(_, place)| !waits(place));
        missing.map(|(rank, _)| rank).collect()
    }
}
