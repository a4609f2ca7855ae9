//! Harness for tests and fuzzers: runs a protocol over in-memory links, and generates reproducible random numbers.

use std::collections::BTreeMap;

use ydl_core::TaskId;

use crate::{Action, Effects, LinkId, Peer, Protocol};

pub(crate) fn peer(task: &str, attempt: u32) -> Peer {
    Peer { task: task.parse().unwrap(), attempt, host: "10.0.0.7".into() }
}

pub(crate) fn names(tasks: &[TaskId]) -> String {
    let names: Vec<String> = tasks.iter().map(TaskId::to_string).collect();
    names.join(" ")
}

/// A persisted event.
#[derive(Clone, Debug)]
enum JournalEntry {
    Open(LinkId, Peer),
    Message(LinkId, Vec<u8>),
    Close(LinkId),
    Ended(Peer),
}

#[derive(Debug)]
pub(crate) struct ProtocolHarness<P> {
    pub protocol: P,
    pending: BTreeMap<LinkId, Vec<u8>>,
    accepted: u64,
    sent: BTreeMap<LinkId, Vec<u8>>,
    /// Requested dials without a result.
    pub dials: Vec<(LinkId, TaskId, u16)>,
    pub closed: Vec<LinkId>,
    pub log: Vec<String>,
    pub rejected: Vec<String>,
    journal: Vec<JournalEntry>,
}

impl<P: Protocol> ProtocolHarness<P> {
    pub fn new(protocol: P) -> ProtocolHarness<P> {
        ProtocolHarness {
            protocol,
            pending: BTreeMap::new(),
            accepted: 0,
            sent: BTreeMap::new(),
            dials: Vec::new(),
            closed: Vec::new(),
            log: Vec::new(),
            rejected: Vec::new(),
            journal: Vec::new(),
        }
    }

    /// Opens a link from a program.
    pub fn accept(&mut self, peer: &Peer) -> LinkId {
        let link = LinkId::Accepted(self.accepted);
        self.accepted += 1;
        self.open(link, peer);
        link
    }

    pub fn open(&mut self, link: LinkId, peer: &Peer) {
        self.journal.push(JournalEntry::Open(link, peer.clone()));
        self.pending.insert(link, Vec::new());
        let mut effects = Effects::default();
        self.protocol.open(link, peer, &mut effects);
        self.run(effects);
    }

    /// Passes bytes to the protocol. Returns true if the link is still open.
    pub fn feed(&mut self, link: LinkId, bytes: &[u8]) -> bool {
        let Some(pending) = self.pending.get_mut(&link) else {
            return false;
        };
        pending.extend(bytes);
        let mut bytes = std::mem::take(pending);
        loop {
            let mut effects = Effects::default();
            match self.protocol.receive(link, &bytes, &mut effects) {
                Ok(Some(length)) => {
                    assert!(0 < length && length <= bytes.len());
                    let rest = bytes.split_off(length);
                    let (persist, actions) = effects.into_parts();
                    if persist {
                        self.journal.push(JournalEntry::Message(link, bytes));
                    }
                    bytes = rest;
                    self.apply(actions);
                    if !self.pending.contains_key(&link) {
                        return false;
                    }
                }
                Ok(None) => {
                    let (persist, actions) = effects.into_parts();
                    assert!(!persist && actions.is_empty(), "nothing has changed");
                    assert!(bytes.len() <= self.protocol.max_message_len());
                    self.pending.insert(link, bytes);
                    return true;
                }
                Err(rejection) => {
                    self.rejected.push(rejection.0);
                    self.close(link);
                    return false;
                }
            }
        }
    }

    /// Closes a link from the program's side, or fails a dial.
    pub fn close(&mut self, link: LinkId) {
        self.pending.remove(&link);
        let mut effects = Effects::default();
        self.protocol.close(link, &mut effects);
        let (persist, actions) = effects.into_parts();
        if persist {
            self.journal.push(JournalEntry::Close(link));
        }
        self.apply(actions);
    }

    /// Closes a link if it is open.
    pub fn close_if_open(&mut self, link: LinkId) {
        if self.pending.contains_key(&link) {
            self.close(link);
        }
    }

    pub fn attempt_ended(&mut self, peer: &Peer) {
        self.journal.push(JournalEntry::Ended(peer.clone()));
        let mut effects = Effects::default();
        self.protocol.attempt_ended(peer, &mut effects);
        self.run(effects);
    }

    /// Returns the bytes sent on a link since the last call.
    pub fn take_sent(&mut self, link: LinkId) -> Vec<u8> {
        self.sent.remove(&link).unwrap_or_default()
    }

    pub fn missing(&self) -> String {
        names(&self.protocol.missing())
    }

    /// Fails over to a new protocol value: replays the journal without running its actions again.
    pub fn fail_over(&mut self, protocol: P) {
        self.protocol = protocol;
        for entry in &self.journal {
            let mut effects = Effects::default();
            match entry {
                JournalEntry::Open(link, peer) => self.protocol.open(*link, peer, &mut effects),
                JournalEntry::Message(link, bytes) => {
                    let length = self.protocol.receive(*link, bytes, &mut effects);
                    assert_eq!(length, Ok(Some(bytes.len())));
                }
                JournalEntry::Close(link) => self.protocol.close(*link, &mut effects),
                JournalEntry::Ended(peer) => self.protocol.attempt_ended(peer, &mut effects),
            }
        }
    }

    fn run(&mut self, effects: Effects) {
        self.apply(effects.into_parts().1);
    }

    fn apply(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(link, bytes) => self.sent.entry(link).or_default().extend(bytes),
                Action::Close(link) => {
                    self.pending.remove(&link);
                    self.closed.push(link);
                }
                Action::Dial(link, task, port) => self.dials.push((link, task, port)),
                Action::Log(line) => self.log.push(line),
            }
        }
    }
}

/// Reproducible pseudorandom number generator (splitmix64).
#[derive(Debug)]
pub(crate) struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Splits the bytes into chunks of random length.
    pub fn split<'a>(&mut self, mut bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let mut chunks = Vec::new();
        while !bytes.is_empty() {
            let (chunk, rest) = bytes.split_at(1 + self.below(bytes.len()));
            chunks.push(chunk);
            bytes = rest;
        }
        chunks
    }

    /// Returns the bytes with random changes: some replaced, inserted, repeated or truncated.
    pub fn corrupt(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut corrupted = bytes.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(corrupted.len().max(1)).min(corrupted.len());
            match self.below(4) {
                0 => corrupted.truncate(at),
                1 => corrupted.insert(at, self.next() as u8),
                2 => corrupted.extend_from_within(at..),
                _ => {
                    if let Some(byte) = corrupted.get_mut(at) {
                        *byte = self.next() as u8;
                    }
                }
            }
        }
        corrupted
    }
}
