//! Who is where.
//!
//! Nobody is told anything before all are there: who dies until then has broken nothing. Then they take turns.
//!
//! A worker that comes again while the group works is linked up with those who come to recover. Once somebody has shut
//! down, whoever starts waits for a new gathering.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    turns::Turns,
    words::{Command, Header, Words, put_int},
};
use crate::{Link, Reaction, Refusal};

/// After so many failures to connect, those who could not be reached are no longer named: they are gone, or come again.
const PATIENCE: u32 = 8;
/// A worker that cannot connect for longer is ended.
const TRIES_MAX: u32 = 64;

#[derive(Debug)]
pub(crate) struct Tracker {
    places: Vec<Place>,
    lines: BTreeMap<Link, Line>,
    turns: Turns,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Away,
    /// Waits on that link for the others.
    Waiting(Link),
    /// Has been told its rank.
    Here,
    /// Has shut down.
    Down,
}

#[derive(Debug)]
struct Line {
    rank: u32,
    stage: Stage,
    tries: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Header,
    Waiting,
    /// Is to say which links are good.
    Links,
    Queued,
    /// Is to say whether it could connect, and where it listens.
    Turn,
}

/// What a tracker of both kinds does with what was said.
#[derive(Debug)]
pub(crate) struct Heard<'a> {
    pub length: usize,
    /// For people.
    pub printed: Option<&'a [u8]>,
}

impl Tracker {
    pub fn new(workers: u32) -> Tracker {
        Tracker {
            places: vec![Place::Away; workers as usize],
            lines: BTreeMap::new(),
            turns: Turns::new(workers),
        }
    }

    pub fn open(&mut self, link: Link, rank: u32) {
        let line = Line { rank, stage: Stage::Header, tries: 0 };
        self.lines.insert(link, line);
    }

    /// As [`Protocol::take`](crate::Protocol::take).
    pub fn take<'a>(
        &mut self,
        link: Link,
        host: &Arc<str>,
        bytes: &'a [u8],
        reaction: &mut Reaction,
    ) -> Result<Option<Heard<'a>>, Refusal> {
        let workers = self.turns.topology.workers();
        let Some(line) = self.lines.get_mut(&link) else {
            return Err(Refusal::new("a link speaks that is over"));
        };
        let mut words = Words::of(bytes);
        let mut printed = None;
        match line.stage {
            Stage::Header => {
                let Some(header) = words.header()? else {
                    return Ok(None);
                };
                printed = self.on_header(link, &header, reaction)?;
            }
            Stage::Links => {
                let Some(good) = words.ranks(workers)? else {
                    return Ok(None);
                };
                line.stage = Stage::Queued;
                self.turns.ask(line.rank, good);
                reaction.keep();
                self.advance(reaction);
            }
            Stage::Turn => {
                let Some(failures) = words.int() else {
                    return Ok(None);
                };
                if failures != 0 {
                    reaction.keep();
                    self.on_failed(link)?;
                } else {
                    let Some(port) = words.int() else {
                        return Ok(None);
                    };
                    self.on_linked(link, host, port, reaction)?;
                    reaction.keep();
                }
                self.advance(reaction);
            }
            Stage::Waiting | Stage::Queued if bytes.is_empty() => return Ok(None),
            Stage::Waiting | Stage::Queued => {
                return Err(Refusal::new("a worker speaks while it should listen"));
            }
        }
        let length = words.taken();
        Ok(Some(Heard { length, printed }))
    }

    fn on_header<'a>(
        &mut self,
        link: Link,
        header: &Header<'a>,
        reaction: &mut Reaction,
    ) -> Result<Option<&'a [u8]>, Refusal> {
        let Some(rank) = self.lines.get(&link).map(|line| line.rank) else {
            return Ok(None);
        };
        let own = i64::from(header.rank) == i64::from(rank);
        let place = &mut self.places[rank as usize];
        let known = match header.command {
            Command::Start => own || header.rank == -1,
            Command::Recover | Command::Shutdown => own,
            Command::Print(_) => true,
        };
        if !known {
            let what = format!("rank {rank} says that it is rank {}", header.rank);
            return Err(Refusal::new(what));
        }
        match header.command {
            Command::Print(text) => {
                reaction.close(link);
                self.lines.remove(&link);
                return Ok(Some(text));
            }
            Command::Shutdown => {
                *place = Place::Down;
                self.turns.deaf(rank);
                reaction.keep();
                reaction.close(link);
                self.lines.remove(&link);
                if self.places.iter().all(|place| *place == Place::Down) {
                    self.places.fill(Place::Away);
                }
                return Ok(None);
            }
            Command::Start | Command::Recover => {}
        }
        let workers = i64::from(self.turns.topology.workers());
        if header.world > 0 && i64::from(header.world) != workers {
            let what = format!("a worker expects {} and not {workers} of them", header.world);
            return Err(Refusal::new(what));
        }
        let busy = |line: &Line| line.rank == rank && line.stage != Stage::Header;
        if self.lines.values().any(busy) {
            return Err(Refusal::new(format!("rank {rank} is claimed a second time")));
        }
        reaction.keep();
        // It listens elsewhere now, or not yet.
        self.turns.deaf(rank);
        *place = Place::Waiting(link);
        if let Some(line) = self.lines.get_mut(&link) {
            line.stage = Stage::Waiting;
        }
        let others = self.places.iter().filter(|place| **place != Place::Waiting(link));
        let working = others.clone().any(|place| *place == Place::Here)
            && others.clone().all(|place| matches!(place, Place::Here | Place::Away));
        if working {
            self.tell(link, reaction);
        } else if self.places.iter().all(|place| matches!(place, Place::Waiting(_))) {
            for place in self.places.clone() {
                if let Place::Waiting(link) = place {
                    self.tell(link, reaction);
                }
            }
        }
        Ok(None)
    }

    /// A worker is told who it is and who its neighbours are.
    fn tell(&mut self, link: Link, reaction: &mut Reaction) {
        let Some(line) = self.lines.get_mut(&link) else {
            return;
        };
        line.stage = Stage::Links;
        let rank = line.rank;
        self.places[rank as usize] = Place::Here;
        let number = |rank: Option<u32>| rank.map_or(-1, i64::from);
        let mut out = Vec::new();
        put_int(&mut out, rank.into());
        put_int(&mut out, number(self.turns.topology.parent(rank)));
        put_int(&mut out, self.turns.topology.workers().into());
        let tree = self.turns.topology.tree(rank);
        put_int(&mut out, tree.len() as i64);
        for neighbour in tree {
            put_int(&mut out, neighbour.into());
        }
        let ring = self.turns.topology.ring(rank);
        put_int(&mut out, number(ring.map(|(before, _)| before)));
        put_int(&mut out, number(ring.map(|(_, after)| after)));
        reaction.send(link, out);
    }

    /// Turns for all who can have one.
    fn advance(&mut self, reaction: &mut Reaction) {
        for (rank, told) in self.turns.advance() {
            let queued = |line: &Line| line.rank == rank && line.stage == Stage::Queued;
            let found = self.lines.iter_mut().find(|(_, line)| queued(line));
            if let Some((link, line)) = found {
                line.stage = Stage::Turn;
                reaction.send(*link, told);
            }
        }
    }

    /// It could not connect to all, and says anew which links are good.
    fn on_failed(&mut self, link: Link) -> Result<(), Refusal> {
        let Some(line) = self.lines.get_mut(&link) else {
            return Ok(());
        };
        line.tries += 1;
        line.stage = Stage::Links;
        let named = self.turns.give_up(line.rank);
        if line.tries >= TRIES_MAX {
            let what = format!("rank {} cannot connect to its neighbours", line.rank);
            return Err(Refusal::new(what));
        }
        if line.tries >= PATIENCE {
            for rank in named {
                self.turns.deaf(rank);
            }
        }
        Ok(())
    }

    fn on_linked(
        &mut self,
        link: Link,
        host: &Arc<str>,
        port: i32,
        reaction: &mut Reaction,
    ) -> Result<(), Refusal> {
        let Some(rank) = self.lines.get(&link).map(|line| line.rank) else {
            return Ok(());
        };
        let Some(port) = u16::try_from(port).ok().filter(|port| *port > 0) else {
            let what = format!("rank {rank} listens on the port `{port}`");
            return Err(Refusal::new(what));
        };
        self.turns.linked(rank, host, port);
        self.lines.remove(&link);
        reaction.close(link);
        Ok(())
    }

    /// A link has ended before all was said.
    pub fn close(&mut self, link: Link, reaction: &mut Reaction) {
        let Some(line) = self.lines.remove(&link) else {
            return;
        };
        match line.stage {
            Stage::Header => return,
            Stage::Waiting => self.places[line.rank as usize] = Place::Away,
            Stage::Links => {}
            Stage::Queued | Stage::Turn => _ = self.turns.give_up(line.rank),
        }
        reaction.keep();
        self.advance(reaction);
    }

    /// Nobody of that rank lives.
    pub fn ended(&mut self, rank: u32, reaction: &mut Reaction) {
        self.turns.deaf(rank);
        let links = self.lines.iter().filter(|(_, line)| line.rank == rank);
        for link in links.map(|(link, _)| *link).collect::<Vec<Link>>() {
            self.close(link, reaction);
        }
        let place = &mut self.places[rank as usize];
        if *place != Place::Down {
            *place = Place::Away;
        }
    }

    /// Whom those who wait are waiting for.
    pub fn missing(&self) -> Vec<u32> {
        let places = || (0..).zip(&self.places);
        let waits = |place: &Place| matches!(place, Place::Waiting(_));
        let begun = self.places.iter().any(|place| *place != Place::Away);
        let gathering = self.places.iter().any(waits);
        let missing = places().filter(|(_, place)| match place {
            Place::Waiting(_) => false,
            Place::Away => begun,
            Place::Here | Place::Down => gathering,
        });
        missing.map(|(rank, _)| rank).collect()
    }
}
