//! The protocol: executes commands and responds. `C10dStore::receive` parses a message, `execute` runs it. Commands such
//! as SET and APPEND have no response: the agent alone gets an acknowledgement, once they are durable.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    command::{self, C10dCommand, DecodedCommand, Dialect},
    key_table::{self, KeyTable},
    limits::C10dLimits,
    reader::{C10dParseError, MESSAGE_MAX},
    response::{CANCELED, NOT_READY, PREFIX, READY, WATCHING, number, prefixed},
    waits::Waits,
    watches::Watches,
};
use crate::{Effects, LinkId, Peer, Protocol, Rejection};
use ydl_core::TaskId;

/// State of a link.
#[derive(Debug, Default)]
struct C10dLink {
    dialect: Option<Dialect>,
    /// Minimum length of the next message.
    needed: usize,
    /// A rejected message had ended a wait that is in the journal, so `close` must be persisted.
    wait_dropped: bool,
}

/// PyTorch's TCPStore, for one round. Each round starts with an empty store, because keys do not contain the number of
/// the attempt.
#[derive(Debug)]
pub struct C10dStore {
    max_response: usize,
    keys: KeyTable,
    waits: Waits,
    watches: Watches,
    links: BTreeMap<LinkId, C10dLink>,
    /// Tasks of the round. For diagnostics only: a key does not identify the task that will set it.
    members: Vec<TaskId>,
    /// Tasks that have connected.
    present: BTreeSet<TaskId>,
}

impl Default for C10dStore {
    fn default() -> C10dStore {
        C10dStore::new(C10dLimits::default())
    }
}

impl C10dStore {
    /// Creates an empty store.
    pub fn new(limits: C10dLimits) -> C10dStore {
        C10dStore {
            max_response: limits.response_bytes,
            keys: KeyTable::new(limits.stored_bytes),
            waits: Waits::new(limits.wait_bytes),
            watches: Watches::new(limits.wait_bytes),
            links: BTreeMap::new(),
            members: Vec::new(),
            present: BTreeSet::new(),
        }
    }

    /// Sets the members of the round.
    #[must_use]
    pub fn with_members(self, members: Vec<TaskId>) -> C10dStore {
        C10dStore { members, ..self }
    }

    /// Returns the memory in use: stored bytes, and bytes of waits and watches.
    pub fn bytes(&self) -> (usize, usize) {
        (self.keys.bytes(), self.waits.bytes() + self.watches.bytes())
    }

    /// Executes a command of a link, which must not be waiting. `persisted`: the caller persists the message whatever the
    /// command does.
    fn execute(
        &mut self,
        link: LinkId,
        command: C10dCommand<'_>,
        persisted: bool,
        effects: &mut Effects,
    ) -> Result<(), Rejection> {
        match command {
            C10dCommand::Validate => {}
            C10dCommand::Set(key, value) => self.set(key, value, effects)?,
            C10dCommand::CompareSet { key, expected, desired } => {
                let stored = self.compare_set(key, expected, desired, effects)?;
                effects.send(link, prefixed(&stored));
            }
            C10dCommand::Get(key) => {
                let value = self.keys.value(key).unwrap_or_default();
                self.check_response(value.len())?;
                effects.send(link, prefixed(value));
            }
            C10dCommand::Add(key, delta) => {
                let sum = self.add(key, delta, effects)?;
                effects.send(link, sum.to_le_bytes());
            }
            C10dCommand::Check(keys) => {
                let all = keys.iter().all(|key| self.keys.contains(key));
                effects.send(link, if all { READY } else { NOT_READY });
            }
            C10dCommand::Wait(keys) => {
                let mut missing = keys.iter().filter(|key| !self.keys.contains(key)).peekable();
                match missing.peek() {
                    None => effects.send(link, READY),
                    Some(_) => self.waits.for_keys(link, missing.copied(), persisted)?,
                }
            }
            C10dCommand::Count => effects.send(link, number(self.keys.count())),
            C10dCommand::Delete(key) => {
                let deleted = self.delete(key, effects);
                effects.send(link, number(usize::from(deleted)));
            }
            C10dCommand::Append(key, more) => {
                let before = self.watched_value(key);
                self.keys.append(key, more)?;
                self.value_stored(key, before, effects);
            }
            C10dCommand::GetMany(keys) => {
                let values = || keys.iter().map(|key| self.keys.value(key).unwrap_or_default());
                self.check_response(values().map(|value| PREFIX + value.len()).sum())?;
                effects.send(link, values().flat_map(prefixed).collect::<Vec<_>>());
            }
            C10dCommand::SetMany(pairs) => {
                // All or none: a rejected message is not persisted.
                let cost = pairs.iter().map(|(key, value)| KeyTable::cost(key, value));
                self.keys.reserve(cost.sum())?;
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
            C10dCommand::Length(key) => effects.send(link, number(self.keys.queue_len(key))),
            C10dCommand::List => {
                self.check_response(self.keys.list().map(|key| PREFIX + key.len()).sum())?;
                let mut response = number(self.keys.count()).to_vec();
                response.extend(self.keys.list().flat_map(prefixed));
                effects.send(link, response);
            }
            C10dCommand::Barrier(key, world) => self.barrier(link, key, world, effects)?,
            C10dCommand::Watch(key) => {
                self.watches.begin(link, key)?;
                effects.persist();
                effects.send(link, WATCHING);
            }
        }
        Ok(())
    }

    fn set(&mut self, key: &[u8], value: &[u8], effects: &mut Effects) -> Result<(), Rejection> {
        let before = self.watched_value(key);
        self.keys.set(key, value)?;
        self.value_stored(key, before, effects);
        Ok(())
    }

    /// Returns the value stored afterwards.
    fn compare_set(
        &mut self,
        key: &[u8],
        expected: &[u8],
        desired: &[u8],
        effects: &mut Effects,
    ) -> Result<Vec<u8>, Rejection> {
        Ok(match self.keys.value(key) {
            // torch returns the expected value for a missing key, and its callers rely on that.
            None if !expected.is_empty() => expected.to_vec(),
            Some(stored) if stored != expected => stored.to_vec(),
            _ => {
                self.set(key, desired, effects)?;
                desired.to_vec()
            }
        })
    }

    /// Returns true if the key existed.
    fn delete(&mut self, key: &[u8], effects: &mut Effects) -> bool {
        let before = self.watched_value(key);
        let deleted = self.keys.delete(key);
        if deleted {
            effects.persist();
            self.notify(key, before, effects);
        }
        deleted
    }

    fn push(&mut self, key: &[u8], value: &[u8], effects: &mut Effects) -> Result<(), Rejection> {
        self.keys.push(key, value)?;
        effects.persist();
        if let Some(woken) = self.waits.item_pushed(key) {
            effects.send(woken, READY);
        }
        Ok(())
    }

    /// Returns the encoded length of the queue and its first item.
    fn pop(&mut self, key: &[u8], effects: &mut Effects) -> Vec<u8> {
        let mut response = number(self.keys.queue_len(key)).to_vec();
        if let Some(value) = self.keys.pop(key) {
            effects.persist();
            response.extend(prefixed(&value));
        }
        response
    }

    /// Returns the sum. Legacy barriers poll by adding zero, which changes nothing.
    fn add(&mut self, key: &[u8], delta: i64, effects: &mut Effects) -> Result<i64, Rejection> {
        let stored = self.keys.value(key);
        let sum = key_table::add(stored.unwrap_or(b"0"), delta)
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
        // The wait first: it can be rejected, and undone.
        self.waits.at_barrier(link, key, world)?;
        let count = match self.add(key, 1, effects) {
            Ok(count) => count,
            Err(rejection) => {
                self.waits.end(link);
                return Err(rejection);
            }
        };
        for link in self.waits.barrier_reached(key, count) {
            effects.send(link, READY);
        }
        Ok(())
    }

    /// Returns the value of a key if the key is watched, for the notification of its change.
    fn watched_value(&self, key: &[u8]) -> Option<Vec<u8>> {
        let watched = self.watches.contains(key);
        self.keys.value(key).filter(|_| watched).map(<[u8]>::to_vec)
    }

    /// Notifies watchers and waiters of a stored value.
    fn value_stored(&mut self, key: &[u8], before: Option<Vec<u8>>, effects: &mut Effects) {
        effects.persist();
        self.notify(key, before, effects);
        for woken in self.waits.key_set(key) {
            effects.send(woken, READY);
        }
    }

    fn notify(&mut self, key: &[u8], before: Option<Vec<u8>>, effects: &mut Effects) {
        let change = (before.as_deref(), self.keys.value(key));
        let unnotified = self.watches.notify(key, change, self.max_response, effects);
        for link in unnotified {
            self.watches.end(link);
            self.waits.end(link);
            self.links.remove(&link);
            effects.close(link);
        }
    }

    fn check_response(&self, response: usize) -> Result<(), Rejection> {
        if response <= self.max_response {
            return Ok(());
        }
        Err(Rejection::new(format!(
            "response of `{response}` bytes exceeds the maximum of `{}`",
            self.max_response
        )))
    }
}

impl Protocol for C10dStore {
    fn max_message_len(&self) -> usize {
        MESSAGE_MAX
    }

    // A legacy client has a second link that stays silent. It stays open.
    fn open(&mut self, link: LinkId, peer: &Peer, _effects: &mut Effects) {
        self.links.insert(link, C10dLink::default());
        self.present.insert(peer.task.clone());
    }

    fn receive(
        &mut self,
        link: LinkId,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<Option<usize>, Rejection> {
        let state = self.links.entry(link).or_default();
        if bytes.len() < state.needed {
            return Ok(None);
        }
        let DecodedCommand { command, dialect, length } = match command::parse(state.dialect, bytes)
        {
            Ok(command) if command.length <= MESSAGE_MAX => command,
            Err(C10dParseError::Incomplete(needed)) if needed <= MESSAGE_MAX => {
                state.needed = needed;
                return Ok(None);
            }
            Ok(DecodedCommand { length: needed, .. }) | Err(C10dParseError::Incomplete(needed)) => {
                return Err(Rejection::new(format!(
                    "message of at least `{needed}` bytes exceeds the maximum of `{MESSAGE_MAX}`"
                )));
            }
            Err(C10dParseError::Invalid(rejection)) => return Err(rejection),
        };
        // Later messages of this link are parsed in the dialect detected here.
        let first = state.dialect != Some(dialect);
        state.dialect = Some(dialect);
        state.needed = 0;
        // A new command ends a wait: legacy clients cannot cancel one.
        let wait_dropped = self.waits.end(link);
        if first || wait_dropped {
            effects.persist();
        }
        match self.execute(link, command, first || wait_dropped, effects) {
            Ok(()) => Ok(Some(length)),
            Err(rejection) => {
                if let Some(state) = self.links.get_mut(&link) {
                    state.wait_dropped |= wait_dropped;
                }
                Err(rejection)
            }
        }
    }

    fn close(&mut self, link: LinkId, effects: &mut Effects) {
        let wait_dropped = self.links.remove(&link).is_some_and(|state| state.wait_dropped);
        let was_waiting = self.waits.end(link);
        let was_watching = self.watches.end(link);
        // A replay of the persisted start would bring the wait or watch back.
        if wait_dropped || was_waiting || was_watching {
            effects.persist();
        }
    }

    fn attempt_ended(&mut self, peer: &Peer, _effects: &mut Effects) {
        self.present.remove(&peer.task);
    }

    fn missing(&self) -> Vec<TaskId> {
        if self.waits.is_empty() {
            return Vec::new();
        }
        let absent = self.members.iter().filter(|task| !self.present.contains(task));
        absent.cloned().collect()
    }
}
