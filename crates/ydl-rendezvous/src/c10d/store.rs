//! The protocol itself: commands in, answers out.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    answers::{CANCELED, FRAME, GO_ON, NOT_YET, WATCHED, framed, number},
    command::{self, Command, Dialect, Read},
    keys::{self, Keys},
    limits::Limits,
    read::{MESSAGE_MAX, Stop},
    waits::Waits,
    watches::Watches,
};
use crate::{Link, Peer, Protocol, Reaction, Refusal};
use ydl_core::TaskId;

/// What is known of a link.
#[derive(Debug, Default)]
struct Talk {
    dialect: Option<Dialect>,
    /// The next message has at least so many bytes.
    least: usize,
    /// A wait that was kept has ended by a message that was refused.
    forgotten: bool,
}

/// PyTorch's TCPStore, for one round: another one begins with an empty store, because workers put no number of their
/// attempt into their keys.
#[derive(Debug)]
pub struct Store {
    answer_max: usize,
    keys: Keys,
    waits: Waits,
    watches: Watches,
    links: BTreeMap<Link, Talk>,
    /// Whose programs are to come, and whose have. For people only: keys do not say whom they are waited from.
    members: Vec<TaskId>,
    here: BTreeSet<TaskId>,
}

impl Default for Store {
    fn default() -> Store {
        Store::new(Limits::default())
    }
}

impl Store {
    /// An empty store.
    pub fn new(limits: Limits) -> Store {
        Store {
            answer_max: limits.answer_bytes,
            keys: Keys::new(limits.stored_bytes),
            waits: Waits::new(limits.awaited_bytes),
            watches: Watches::new(limits.awaited_bytes),
            links: BTreeMap::new(),
            members: Vec::new(),
            here: BTreeSet::new(),
        }
    }

    /// The same for a round with these members.
    #[must_use]
    pub fn with_members(self, members: Vec<TaskId>) -> Store {
        Store { members, ..self }
    }

    /// How much memory it counts as its own, of both kinds: stored, and awaited or watched.
    pub fn bytes(&self) -> (usize, usize) {
        (self.keys.bytes(), self.waits.bytes() + self.watches.bytes())
    }

    /// Answers a command of a link that does not wait. `kept`: that is decided already, whatever it is.
    fn answer(
        &mut self,
        link: Link,
        command: Command<'_>,
        kept: bool,
        reaction: &mut Reaction,
    ) -> Result<(), Refusal> {
        match command {
            Command::Validate => {}
            Command::Set(key, value) => self.set(key, value, reaction)?,
            Command::CompareSet { key, expected, desired } => {
                let now = self.compare_set(key, expected, desired, reaction)?;
                reaction.send(link, framed(&now));
            }
            Command::Get(key) => {
                let value = self.keys.value(key).unwrap_or_default();
                self.fits(value.len())?;
                reaction.send(link, framed(value));
            }
            Command::Add(key, delta) => {
                let sum = self.add(key, delta, reaction)?;
                reaction.send(link, sum.to_le_bytes());
            }
            Command::Check(keys) => {
                let all = keys.iter().all(|key| self.keys.holds(key));
                reaction.send(link, if all { GO_ON } else { NOT_YET });
            }
            Command::Wait(keys) => {
                let mut missing = keys.iter().filter(|key| !self.keys.holds(key)).peekable();
                match missing.peek() {
                    None => reaction.send(link, GO_ON),
                    Some(_) => self.waits.for_keys(link, missing.copied(), kept)?,
                }
            }
            Command::Count => reaction.send(link, number(self.keys.count())),
            Command::Delete(key) => {
                let deleted = self.delete(key, reaction);
                reaction.send(link, number(usize::from(deleted)));
            }
            Command::Append(key, more) => {
                let before = self.watched(key);
                self.keys.append(key, more)?;
                self.changed(key, before, reaction);
            }
            Command::GetMany(keys) => {
                let values = || keys.iter().map(|key| self.keys.value(key).unwrap_or_default());
                self.fits(values().map(|value| FRAME + value.len()).sum())?;
                reaction.send(link, values().flat_map(framed).collect::<Vec<_>>());
            }
            Command::SetMany(pairs) => {
                // All of them or none: a message that was refused is not kept.
                let cost = pairs.iter().map(|(key, value)| Keys::cost(key, value));
                self.keys.room_for(cost.sum())?;
                for (key, value) in pairs {
                    self.set(key, value, reaction)?;
                }
            }
            Command::Cancel => reaction.send(link, CANCELED),
            Command::Ping(nonce) => reaction.send(link, nonce),
            Command::Push(key, value) => self.push(key, value, reaction)?,
            Command::Pop(key) => {
                let popped = self.pop(key, reaction);
                reaction.send(link, popped);
            }
            Command::Length(key) => reaction.send(link, number(self.keys.length(key))),
            Command::List => {
                self.fits(self.keys.list().map(|key| FRAME + key.len()).sum())?;
                let mut answer = number(self.keys.count()).to_vec();
                answer.extend(self.keys.list().flat_map(framed));
                reaction.send(link, answer);
            }
            Command::Barrier(key, world) => self.barrier(link, key, world, reaction)?,
            Command::Watch(key) => {
                self.watches.begin(link, key)?;
                reaction.keep();
                reaction.send(link, WATCHED);
            }
        }
        Ok(())
    }

    fn set(&mut self, key: &[u8], value: &[u8], reaction: &mut Reaction) -> Result<(), Refusal> {
        let before = self.watched(key);
        self.keys.set(key, value)?;
        self.changed(key, before, reaction);
        Ok(())
    }

    /// What is stored then.
    fn compare_set(
        &mut self,
        key: &[u8],
        expected: &[u8],
        desired: &[u8],
        reaction: &mut Reaction,
    ) -> Result<Vec<u8>, Refusal> {
        Ok(match self.keys.value(key) {
            // What is not there is told as what was expected: that is what callers count on.
            None if !expected.is_empty() => expected.to_vec(),
            Some(stored) if stored != expected => stored.to_vec(),
            _ => {
                self.set(key, desired, reaction)?;
                desired.to_vec()
            }
        })
    }

    /// Whether it was there.
    fn delete(&mut self, key: &[u8], reaction: &mut Reaction) -> bool {
        let before = self.watched(key);
        let deleted = self.keys.delete(key);
        if deleted {
            reaction.keep();
            self.tell(key, before, reaction);
        }
        deleted
    }

    fn push(&mut self, key: &[u8], value: &[u8], reaction: &mut Reaction) -> Result<(), Refusal> {
        self.keys.push(key, value)?;
        reaction.keep();
        if let Some(woken) = self.waits.came_for_one(key) {
            reaction.send(woken, GO_ON);
        }
        Ok(())
    }

    /// How long the queue was, and what was first in it.
    fn pop(&mut self, key: &[u8], reaction: &mut Reaction) -> Vec<u8> {
        let mut answer = number(self.keys.length(key)).to_vec();
        if let Some(value) = self.keys.pop(key) {
            reaction.keep();
            answer.extend(framed(&value));
        }
        answer
    }

    /// The sum. Old barriers ask for it over and over by adding nothing: that changes nothing.
    fn add(&mut self, key: &[u8], delta: i64, reaction: &mut Reaction) -> Result<i64, Refusal> {
        let stored = self.keys.value(key);
        let sum = keys::sum(stored.unwrap_or(b"0"), delta)
            .ok_or_else(|| Refusal::new("something was added to a value that is not a number"))?;
        let text = sum.to_string();
        if stored != Some(text.as_bytes()) {
            self.set(key, text.as_bytes(), reaction)?;
        }
        Ok(sum)
    }

    fn barrier(
        &mut self,
        link: Link,
        key: &[u8],
        world: i64,
        reaction: &mut Reaction,
    ) -> Result<(), Refusal> {
        // First what can be refused and undone.
        self.waits.at_barrier(link, key, world)?;
        let count = match self.add(key, 1, reaction) {
            Ok(count) => count,
            Err(refusal) => {
                self.waits.end(link);
                return Err(refusal);
            }
        };
        for link in self.waits.reached(key, count) {
            reaction.send(link, GO_ON);
        }
        Ok(())
    }

    /// What a key holds now, if somebody will be told.
    fn watched(&self, key: &[u8]) -> Option<Vec<u8>> {
        let watched = self.watches.any(key);
        self.keys.value(key).filter(|_| watched).map(<[u8]>::to_vec)
    }

    /// A value was stored.
    fn changed(&mut self, key: &[u8], before: Option<Vec<u8>>, reaction: &mut Reaction) {
        reaction.keep();
        self.tell(key, before, reaction);
        for woken in self.waits.came(key) {
            reaction.send(woken, GO_ON);
        }
    }

    fn tell(&mut self, key: &[u8], before: Option<Vec<u8>>, reaction: &mut Reaction) {
        let change = (before.as_deref(), self.keys.value(key));
        let untold = self.watches.tell(key, change, self.answer_max, reaction);
        for link in untold {
            self.watches.end(link);
            self.waits.end(link);
            self.links.remove(&link);
            reaction.close(link);
        }
    }

    fn fits(&self, answer: usize) -> Result<(), Refusal> {
        if answer <= self.answer_max {
            return Ok(());
        }
        Err(Refusal::new(format!(
            "an answer of `{answer}` bytes was asked for, and `{}` is the most",
            self.answer_max
        )))
    }
}

impl Protocol for Store {
    fn message_max(&self) -> usize {
        MESSAGE_MAX
    }

    // An old client has a second link, on which it never says a word: it stays open.
    fn open(&mut self, link: Link, peer: &Peer, _reaction: &mut Reaction) {
        self.links.insert(link, Talk::default());
        self.here.insert(peer.task.clone());
    }

    fn take(
        &mut self,
        link: Link,
        bytes: &[u8],
        reaction: &mut Reaction,
    ) -> Result<Option<usize>, Refusal> {
        let talk = self.links.entry(link).or_default();
        if bytes.len() < talk.least {
            return Ok(None);
        }
        let Read { command, dialect, length } = match command::read(talk.dialect, bytes) {
            Ok(read) if read.length <= MESSAGE_MAX => read,
            Err(Stop::Short(least)) if least <= MESSAGE_MAX => {
                talk.least = least;
                return Ok(None);
            }
            Ok(Read { length: least, .. }) | Err(Stop::Short(least)) => {
                return Err(Refusal::new(format!(
                    "a message of at least `{least}` bytes was announced, and `{MESSAGE_MAX}` is the most"
                )));
            }
            Err(Stop::Wrong(refusal)) => return Err(refusal),
        };
        // Everything later on this link is read by what was learned here.
        let first = talk.dialect != Some(dialect);
        talk.dialect = Some(dialect);
        talk.least = 0;
        // Whoever says something else no longer waits: old clients cannot say that they gave up.
        let forgotten = self.waits.end(link);
        if first || forgotten {
            reaction.keep();
        }
        match self.answer(link, command, first || forgotten, reaction) {
            Ok(()) => Ok(Some(length)),
            Err(refusal) => {
                if let Some(talk) = self.links.get_mut(&link) {
                    talk.forgotten |= forgotten;
                }
                Err(refusal)
            }
        }
    }

    fn close(&mut self, link: Link, reaction: &mut Reaction) {
        let forgotten = self.links.remove(&link).is_some_and(|talk| talk.forgotten);
        let waited = self.waits.end(link);
        let watched = self.watches.end(link);
        // What was begun by a kept message would come back with it.
        if forgotten || waited || watched {
            reaction.keep();
        }
    }

    fn ended(&mut self, peer: &Peer, _reaction: &mut Reaction) {
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
