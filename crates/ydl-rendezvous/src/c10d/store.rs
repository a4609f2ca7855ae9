//! The protocol itself: commands in, answers out.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    command::{self, C10dCommand, DecodedCommand, Dialect},
    key_table::{self, KeyTable},
    limits::C10dLimits,
    reader::{C10dParseError, MESSAGE_MAX},
    response::{CANCELED, FRAME, GO_ON, NOT_YET, WATCHED, framed, number},
    waits::Waits,
    watches::Watches,
};
use crate::{Effects, LinkId, Peer, Protocol, Rejection};
use ydl_core::TaskId;

/// What is known of a link.
#[derive(Debug, Default)]
struct C10dLink {
    dialect: Option<Dialect>,
    /// The next message has at least so many bytes.
    least: usize,
    /// A wait that was kept has ended by a message that was refused.
    forgotten: bool,
}

/// PyTorch's TCPStore, for one round: another one begins with an empty store, because workers put no number of their
/// attempt into their keys.
#[derive(Debug)]
pub struct C10dStore {
    answer_max: usize,
    keys: KeyTable,
    waits: Waits,
    watches: Watches,
    links: BTreeMap<LinkId, C10dLink>,
    /// Whose programs are to come, and whose have. For people only: keys do not say whom they are waited from.
    members: Vec<TaskId>,
    here: BTreeSet<TaskId>,
}

impl Default for C10dStore {
    fn default() -> C10dStore {
        C10dStore::new(C10dLimits::default())
    }
}

impl C10dStore {
    /// An empty store.
    pub fn new(limits: C10dLimits) -> C10dStore {
        C10dStore {
            answer_max: limits.answer_bytes,
            keys: KeyTable::new(limits.stored_bytes),
            waits: Waits::new(limits.awaited_bytes),
            watches: Watches::new(limits.awaited_bytes),
            links: BTreeMap::new(),
            members: Vec::new(),
            here: BTreeSet::new(),
        }
    }

    /// The same for a round with these members.
    #[must_use]
    pub fn with_members(self, members: Vec<TaskId>) -> C10dStore {
        C10dStore { members, ..self }
    }

    /// How much memory it counts as its own, of both kinds: stored, and awaited or watched.
    pub fn bytes(&self) -> (usize, usize) {
        (self.keys.bytes(), self.waits.bytes() + self.watches.bytes())
    }

    /// Answers a command of a link that does not wait. `kept`: that is decided already, whatever it is.
    fn answer(
        &mut self,
        link: LinkId,
        command: C10dCommand<'_>,
        kept: bool,
        effects: &mut Effects,
    ) -> Result<(), Rejection> {
        match command {
            C10dCommand::Validate => {}
            C10dCommand::Set(key, value) => self.set(key, value, effects)?,
            C10dCommand::CompareSet { key, expected, desired } => {
                let now = self.compare_set(key, expected, desired, effects)?;
                effects.send(link, framed(&now));
            }
            C10dCommand::Get(key) => {
                let value = self.keys.value(key).unwrap_or_default();
                self.fits(value.len())?;
                effects.send(link, framed(value));
            }
            C10dCommand::Add(key, delta) => {
                let sum = self.add(key, delta, effects)?;
                effects.send(link, sum.to_le_bytes());
            }
            C10dCommand::Check(keys) => {
                let all = keys.iter().all(|key| self.keys.holds(key));
                effects.send(link, if all { GO_ON } else { NOT_YET });
            }
            C10dCommand::Wait(keys) => {
                let mut missing = keys.iter().filter(|key| !self.keys.holds(key)).peekable();
                match missing.peek() {
                    None => effects.send(link, GO_ON),
                    Some(_) => self.waits.for_keys(link, missing.copied(), kept)?,
                }
            }
            C10dCommand::Count => effects.send(link, number(self.keys.count())),
            C10dCommand::Delete(key) => {
                let deleted = self.delete(key, effects);
                effects.send(link, number(usize::from(deleted)));
            }
            C10dCommand::Append(key, more) => {
                let before = self.watched(key);
                self.keys.append(key, more)?;
                self.changed(key, before, effects);
            }
            C10dCommand::GetMany(keys) => {
                let values = || keys.iter().map(|key| self.keys.value(key).unwrap_or_default());
                self.fits(values().map(|value| FRAME + value.len()).sum())?;
                effects.send(link, values().flat_map(framed).collect::<Vec<_>>());
            }
            C10dCommand::SetMany(pairs) => {
                // All of them or none: a message that was refused is not kept.
                let cost = pairs.iter().map(|(key, value)| KeyTable::cost(key, value));
                self.keys.room_for(cost.sum())?;
                for (key, value) in pairs {
                    self.set(key, value, effects)?;
                }
            }
            C10dCommand::Cancel => effects.send(link, CANCELED),
            C10dCommand::Ping(nonce) => effects.send(link, nonce),
            C10dCommand::Push(key, value) => self.push(key, value, effects)?,
            C10dCommand::Pop(key) => {
                let popped = self.pop(key, effects);
                effects.send(link, popped);
            }
            C10dCommand::Length(key) => effects.send(link, number(self.keys.length(key))),
            C10dCommand::List => {
                self.fits(self.keys.list().map(|key| FRAME + key.len()).sum())?;
                let mut answer = number(self.keys.count()).to_vec();
                answer.extend(self.keys.list().flat_map(framed));
                effects.send(link, answer);
            }
            C10dCommand::Barrier(key, world) => self.barrier(link, key, world, effects)?,
            C10dCommand::Watch(key) => {
                self.watches.begin(link, key)?;
                effects.persist();
                effects.send(link, WATCHED);
            }
        }
        Ok(())
    }

    fn set(&mut self, key: &[u8], value: &[u8], effects: &mut Effects) -> Result<(), Rejection> {
        let before = self.watched(key);
        self.keys.set(key, value)?;
        self.changed(key, before, effects);
        Ok(())
    }

    /// What is stored then.
    fn compare_set(
        &mut self,
        key: &[u8],
        expected: &[u8],
        desired: &[u8],
        effects: &mut Effects,
    ) -> Result<Vec<u8>, Rejection> {
        Ok(match self.keys.value(key) {
            // What is not there is told as what was expected: that is what callers count on.
            None if !expected.is_empty() => expected.to_vec(),
            Some(stored) if stored != expected => stored.to_vec(),
            _ => {
                self.set(key, desired, effects)?;
                desired.to_vec()
            }
        })
    }

    /// Whether it was there.
    fn delete(&mut self, key: &[u8], effects: &mut Effects) -> bool {
        let before = self.watched(key);
        let deleted = self.keys.delete(key);
        if deleted {
            effects.persist();
            self.tell(key, before, effects);
        }
        deleted
    }

    fn push(&mut self, key: &[u8], value: &[u8], effects: &mut Effects) -> Result<(), Rejection> {
        self.keys.push(key, value)?;
        effects.persist();
        if let Some(woken) = self.waits.came_for_one(key) {
            effects.send(woken, GO_ON);
        }
        Ok(())
    }

    /// How long the queue was, and what was first in it.
    fn pop(&mut self, key: &[u8], effects: &mut Effects) -> Vec<u8> {
        let mut answer = number(self.keys.length(key)).to_vec();
        if let Some(value) = self.keys.pop(key) {
            effects.persist();
            answer.extend(framed(&value));
        }
        answer
    }

    /// The sum. Old barriers ask for it over and over by adding nothing: that changes nothing.
    fn add(&mut self, key: &[u8], delta: i64, effects: &mut Effects) -> Result<i64, Rejection> {
        let stored = self.keys.value(key);
        let sum = key_table::sum(stored.unwrap_or(b"0"), delta)
            .ok_or_else(|| Rejection::new("cannot add to a value that is not a number"))?;
        let text = sum.to_string();
        if stored != Some(text.as_bytes()) {
            self.set(key, text.as_bytes(), effects)?;
        }
        Ok(sum)
    }

    fn barrier(
        &mut self,
        link: LinkId,
        key: &[u8],
        world: i64,
        effects: &mut Effects,
    ) -> Result<(), Rejection> {
        // First what can be refused and undone.
        self.waits.at_barrier(link, key, world)?;
        let count = match self.add(key, 1, effects) {
            Ok(count) => count,
            Err(rejection) => {
                self.waits.end(link);
                return Err(rejection);
            }
        };
        for link in self.waits.reached(key, count) {
            effects.send(link, GO_ON);
        }
        Ok(())
    }

    /// What a key holds now, if somebody will be told.
    fn watched(&self, key: &[u8]) -> Option<Vec<u8>> {
        let watched = self.watches.any(key);
        self.keys.value(key).filter(|_| watched).map(<[u8]>::to_vec)
    }

    /// A value was stored.
    fn changed(&mut self, key: &[u8], before: Option<Vec<u8>>, effects: &mut Effects) {
        effects.persist();
        self.tell(key, before, effects);
        for woken in self.waits.came(key) {
            effects.send(woken, GO_ON);
        }
    }

    fn tell(&mut self, key: &[u8], before: Option<Vec<u8>>, effects: &mut Effects) {
        let change = (before.as_deref(), self.keys.value(key));
        let untold = self.watches.tell(key, change, self.answer_max, effects);
        for link in untold {
            self.watches.end(link);
            self.waits.end(link);
            self.links.remove(&link);
            effects.close(link);
        }
    }

    fn fits(&self, answer: usize) -> Result<(), Rejection> {
        if answer <= self.answer_max {
            return Ok(());
        }
        Err(Rejection::new(format!(
            "response of `{answer}` bytes exceeds the maximum of `{}`",
            self.answer_max
        )))
    }
}

impl Protocol for C10dStore {
    fn max_message_len(&self) -> usize {
        MESSAGE_MAX
    }

    // An old client has a second link, on which it never says a word: it stays open.
    fn open(&mut self, link: LinkId, peer: &Peer, _reaction: &mut Effects) {
        self.links.insert(link, C10dLink::default());
        self.here.insert(peer.task.clone());
    }

    fn receive(
        &mut self,
        link: LinkId,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<Option<usize>, Rejection> {
        let talk = self.links.entry(link).or_default();
        if bytes.len() < talk.least {
            return Ok(None);
        }
        let DecodedCommand { command, dialect, length } = match command::read(talk.dialect, bytes) {
            Ok(read) if read.length <= MESSAGE_MAX => read,
            Err(C10dParseError::Incomplete(least)) if least <= MESSAGE_MAX => {
                talk.least = least;
                return Ok(None);
            }
            Ok(DecodedCommand { length: least, .. }) | Err(C10dParseError::Incomplete(least)) => {
                return Err(Rejection::new(format!(
                    "message of at least `{least}` bytes exceeds the maximum of `{MESSAGE_MAX}`"
                )));
            }
            Err(C10dParseError::Invalid(rejection)) => return Err(rejection),
        };
        // Everything later on this link is read by what was learned here.
        let first = talk.dialect != Some(dialect);
        talk.dialect = Some(dialect);
        talk.least = 0;
        // Whoever says something else no longer waits: old clients cannot say that they gave up.
        let forgotten = self.waits.end(link);
        if first || forgotten {
            effects.persist();
        }
        match self.answer(link, command, first || forgotten, effects) {
            Ok(()) => Ok(Some(length)),
            Err(rejection) => {
                if let Some(talk) = self.links.get_mut(&link) {
                    talk.forgotten |= forgotten;
                }
                Err(rejection)
            }
        }
    }

    fn close(&mut self, link: LinkId, effects: &mut Effects) {
        let forgotten = self.links.remove(&link).is_some_and(|talk| talk.forgotten);
        let waited = self.waits.end(link);
        let watched = self.watches.end(link);
        // What was begun by a kept message would come back with it.
        if forgotten || waited || watched {
            effects.persist();
        }
    }

    fn attempt_ended(&mut self, peer: &Peer, _reaction: &mut Effects) {
        self.here.remove(&peer.task);
    }

    fn missing(&self) -> Vec<TaskId> {
        if self.waits.is_empty() {
            return Vec::new();
        }
        let away = self.members.iter().filter(|task| !self.here.contains(task));
        away.cloned().collect()
    }
}
