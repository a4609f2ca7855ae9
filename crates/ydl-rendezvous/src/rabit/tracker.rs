//! Who is where.
//!
//! Nobody is told anything before all are there: who dies until then has broken nothing. Then they take turns.
//!
//! A worker that comes again while the group works is linked up with those who come to recover. Once somebody has shut
//! down, whoever starts waits for a new gathering.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    permits::ConnectPermits,
    reader::{RabitCommand, RabitHeader, RabitReader, put_int},
};
use crate::{Effects, LinkId, Rejection};

/// After so many failures to connect, those who could not be reached are no longer named: they are gone, or come again.
const PATIENCE: u32 = 8;
/// A worker that cannot connect for longer is ended.
const TRIES_MAX: u32 = 64;

#[derive(Debug)]
pub(crate) struct RabitTracker {
    places: Vec<RabitRankState>,
    lines: BTreeMap<LinkId, RabitLink>,
    turns: ConnectPermits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RabitRankState {
    Absent,
    /// Waits on that link for the others.
    Waiting(LinkId),
    /// Has been told its rank.
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
    /// Is to say which links are good.
    Links,
    Queued,
    /// Is to say whether it could connect, and where it listens.
    Connecting,
}

/// What a tracker of both kinds does with what was said.
#[derive(Debug)]
pub(crate) struct RabitMessage<'a> {
    pub length: usize,
    /// For people.
    pub printed: Option<&'a [u8]>,
}

impl RabitTracker {
    pub fn new(workers: u32) -> RabitTracker {
        RabitTracker {
            places: vec![RabitRankState::Absent; workers as usize],
            lines: BTreeMap::new(),
            turns: ConnectPermits::new(workers),
        }
    }

    pub fn open(&mut self, link: LinkId, rank: u32) {
        let line = RabitLink { rank, stage: RabitStage::Header, tries: 0 };
        self.lines.insert(link, line);
    }

    /// As [`Protocol::receive`](crate::Protocol::receive).
    pub fn receive<'a>(
        &mut self,
        link: LinkId,
        host: &Arc<str>,
        bytes: &'a [u8],
        effects: &mut Effects,
    ) -> Result<Option<RabitMessage<'a>>, Rejection> {
        let workers = self.turns.topology.workers();
        let Some(line) = self.lines.get_mut(&link) else {
            return Err(Rejection::new("input on a closed link"));
        };
        let mut words = RabitReader::of(bytes);
        let mut printed = None;
        match line.stage {
            RabitStage::Header => {
                let Some(header) = words.header()? else {
                    return Ok(None);
                };
                printed = self.on_header(link, &header, effects)?;
            }
            RabitStage::Links => {
                let Some(good) = words.ranks(workers)? else {
                    return Ok(None);
                };
                line.stage = RabitStage::Queued;
                self.turns.ask(line.rank, good);
                effects.persist();
                self.advance(effects);
            }
            RabitStage::Connecting => {
                let Some(failures) = words.int() else {
                    return Ok(None);
                };
                if failures != 0 {
                    effects.persist();
                    self.on_failed(link)?;
                } else {
                    let Some(port) = words.int() else {
                        return Ok(None);
                    };
                    self.on_linked(link, host, port, effects)?;
                    effects.persist();
                }
                self.advance(effects);
            }
            RabitStage::Waiting | RabitStage::Queued if bytes.is_empty() => return Ok(None),
            RabitStage::Waiting | RabitStage::Queued => {
                return Err(Rejection::new("unexpected input from a waiting worker"));
            }
        }
        let length = words.taken();
        Ok(Some(RabitMessage { length, printed }))
    }

    fn on_header<'a>(
        &mut self,
        link: LinkId,
        header: &RabitHeader<'a>,
        effects: &mut Effects,
    ) -> Result<Option<&'a [u8]>, Rejection> {
        let Some(rank) = self.lines.get(&link).map(|line| line.rank) else {
            return Ok(None);
        };
        let own = i64::from(header.rank) == i64::from(rank);
        let place = &mut self.places[rank as usize];
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
                self.lines.remove(&link);
                return Ok(Some(text));
            }
            RabitCommand::Shutdown => {
                *place = RabitRankState::ShutDown;
                self.turns.deaf(rank);
                effects.persist();
                effects.close(link);
                self.lines.remove(&link);
                if self.places.iter().all(|place| *place == RabitRankState::ShutDown) {
                    self.places.fill(RabitRankState::Absent);
                }
                return Ok(None);
            }
            RabitCommand::Start | RabitCommand::Recover => {}
        }
        let workers = i64::from(self.turns.topology.workers());
        if header.world > 0 && i64::from(header.world) != workers {
            let what = format!("worker expects {} workers, the job has {workers}", header.world);
            return Err(Rejection::new(what));
        }
        let busy = |line: &RabitLink| line.rank == rank && line.stage != RabitStage::Header;
        if self.lines.values().any(busy) {
            return Err(Rejection::new(format!("rank {rank} is already connected")));
        }
        effects.persist();
        // It listens elsewhere now, or not yet.
        self.turns.deaf(rank);
        *place = RabitRankState::Waiting(link);
        if let Some(line) = self.lines.get_mut(&link) {
            line.stage = RabitStage::Waiting;
        }
        let others = self.places.iter().filter(|place| **place != RabitRankState::Waiting(link));
        let working = others.clone().any(|place| *place == RabitRankState::Active)
            && others
                .clone()
                .all(|place| matches!(place, RabitRankState::Active | RabitRankState::Absent));
        if working {
            self.tell(link, effects);
        } else if self.places.iter().all(|place| matches!(place, RabitRankState::Waiting(_))) {
            for place in self.places.clone() {
                if let RabitRankState::Waiting(link) = place {
                    self.tell(link, effects);
                }
            }
        }
        Ok(None)
    }

    /// A worker is told who it is and who its neighbours are.
    fn tell(&mut self, link: LinkId, effects: &mut Effects) {
        let Some(line) = self.lines.get_mut(&link) else {
            return;
        };
        line.stage = RabitStage::Links;
        let rank = line.rank;
        self.places[rank as usize] = RabitRankState::Active;
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
        effects.send(link, out);
    }

    /// ConnectPermits for all who can have one.
    fn advance(&mut self, effects: &mut Effects) {
        for (rank, told) in self.turns.advance() {
            let queued = |line: &RabitLink| line.rank == rank && line.stage == RabitStage::Queued;
            let found = self.lines.iter_mut().find(|(_, line)| queued(line));
            if let Some((link, line)) = found {
                line.stage = RabitStage::Connecting;
                effects.send(*link, told);
            }
        }
    }

    /// It could not connect to all, and says anew which links are good.
    fn on_failed(&mut self, link: LinkId) -> Result<(), Rejection> {
        let Some(line) = self.lines.get_mut(&link) else {
            return Ok(());
        };
        line.tries += 1;
        line.stage = RabitStage::Links;
        let named = self.turns.give_up(line.rank);
        if line.tries >= TRIES_MAX {
            let what = format!("rank {} cannot connect to its neighbours", line.rank);
            return Err(Rejection::new(what));
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
        link: LinkId,
        host: &Arc<str>,
        port: i32,
        effects: &mut Effects,
    ) -> Result<(), Rejection> {
        let Some(rank) = self.lines.get(&link).map(|line| line.rank) else {
            return Ok(());
        };
        let Some(port) = u16::try_from(port).ok().filter(|port| *port > 0) else {
            let what = format!("rank {rank} reported the invalid port `{port}`");
            return Err(Rejection::new(what));
        };
        self.turns.linked(rank, host, port);
        self.lines.remove(&link);
        effects.close(link);
        Ok(())
    }

    /// A link has ended before all was said.
    pub fn close(&mut self, link: LinkId, effects: &mut Effects) {
        let Some(line) = self.lines.remove(&link) else {
            return;
        };
        match line.stage {
            RabitStage::Header => return,
            RabitStage::Waiting => self.places[line.rank as usize] = RabitRankState::Absent,
            RabitStage::Links => {}
            RabitStage::Queued | RabitStage::Connecting => _ = self.turns.give_up(line.rank),
        }
        effects.persist();
        self.advance(effects);
    }

    /// Nobody of that rank lives.
    pub fn attempt_ended(&mut self, rank: u32, effects: &mut Effects) {
        self.turns.deaf(rank);
        let links = self.lines.iter().filter(|(_, line)| line.rank == rank);
        for link in links.map(|(link, _)| *link).collect::<Vec<LinkId>>() {
            self.close(link, effects);
        }
        let place = &mut self.places[rank as usize];
        if *place != RabitRankState::ShutDown {
            *place = RabitRankState::Absent;
        }
    }

    /// Whom those who wait are waiting for.
    pub fn missing(&self) -> Vec<u32> {
        let places = || (0..).zip(&self.places);
        let waits = |place: &RabitRankState| matches!(place, RabitRankState::Waiting(_));
        let begun = self.places.iter().any(|place| *place != RabitRankState::Absent);
        let gathering = self.places.iter().any(waits);
        let missing = places().filter(|(_, place)| match place {
            RabitRankState::Waiting(_) => false,
            RabitRankState::Absent => begun,
            RabitRankState::Active | RabitRankState::ShutDown => gathering,
        });
        missing.map(|(rank, _)| rank).collect()
    }
}
