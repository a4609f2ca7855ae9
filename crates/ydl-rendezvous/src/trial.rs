//! For tests and fuzzers: a protocol with links that are nothing but bytes, and a generator of the same chances every time.

use std::collections::BTreeMap;

use ydl_core::TaskId;

use crate::{Act, Link, Peer, Protocol, Reaction};

pub(crate) fn peer(task: &str, attempt: u32) -> Peer {
    Peer { task: task.parse().unwrap(), attempt, host: "10.0.0.7".into() }
}

pub(crate) fn names(tasks: &[TaskId]) -> String {
    let names: Vec<String> = tasks.iter().map(TaskId::to_string).collect();
    names.join(" ")
}

/// What a new master would be given.
#[derive(Clone, Debug)]
enum Entry {
    Open(Link, Peer),
    Message(Link, Vec<u8>),
    Close(Link),
    Ended(Peer),
}

#[derive(Debug)]
pub(crate) struct Trial<P> {
    pub protocol: P,
    pending: BTreeMap<Link, Vec<u8>>,
    accepted: u64,
    sent: BTreeMap<Link, Vec<u8>>,
    /// Dialed and not yet answered.
    pub dials: Vec<(Link, TaskId, u16)>,
    pub closed: Vec<Link>,
    pub said: Vec<String>,
    pub refused: Vec<String>,
    journal: Vec<Entry>,
}

impl<P: Protocol> Trial<P> {
    pub fn of(protocol: P) -> Trial<P> {
        Trial {
            protocol,
            pending: BTreeMap::new(),
            accepted: 0,
            sent: BTreeMap::new(),
            dials: Vec::new(),
            closed: Vec::new(),
            said: Vec::new(),
            refused: Vec::new(),
            journal: Vec::new(),
        }
    }

    /// A program has connected.
    pub fn accept(&mut self, peer: &Peer) -> Link {
        let link = Link::Accepted(self.accepted);
        self.accepted += 1;
        self.open(link, peer);
        link
    }

    pub fn open(&mut self, link: Link, peer: &Peer) {
        self.journal.push(Entry::Open(link, peer.clone()));
        self.pending.insert(link, Vec::new());
        let mut reaction = Reaction::default();
        self.protocol.open(link, peer, &mut reaction);
        self.act(reaction);
    }

    /// Whether the link is still open.
    pub fn give(&mut self, link: Link, bytes: &[u8]) -> bool {
        let Some(pending) = self.pending.get_mut(&link) else {
            return false;
        };
        pending.extend(bytes);
        let mut bytes = std::mem::take(pending);
        loop {
            let mut reaction = Reaction::default();
            match self.protocol.take(link, &bytes, &mut reaction) {
                Ok(Some(length)) => {
                    assert!(0 < length && length <= bytes.len());
                    let rest = bytes.split_off(length);
                    let (keep, acts) = reaction.into_parts();
                    if keep {
                        self.journal.push(Entry::Message(link, bytes));
                    }
                    bytes = rest;
                    self.acts(acts);
                    if !self.pending.contains_key(&link) {
                        return false;
                    }
                }
                Ok(None) => {
                    let (keep, acts) = reaction.into_parts();
                    assert!(!keep && acts.is_empty(), "nothing has changed");
                    assert!(bytes.len() <= self.protocol.message_max());
                    self.pending.insert(link, bytes);
                    return true;
                }
                Err(refusal) => {
                    self.refused.push(refusal.0);
                    self.close(link);
                    return false;
                }
            }
        }
    }

    /// The program has closed a link, or a dial has failed.
    pub fn close(&mut self, link: Link) {
        self.pending.remove(&link);
        let mut reaction = Reaction::default();
        self.protocol.close(link, &mut reaction);
        let (keep, acts) = reaction.into_parts();
        if keep {
            self.journal.push(Entry::Close(link));
        }
        self.acts(acts);
    }

    /// As [`close`](Trial::close), for a link that may be closed already.
    pub fn hang_up(&mut self, link: Link) {
        if self.pending.contains_key(&link) {
            self.close(link);
        }
    }

    pub fn ended(&mut self, peer: &Peer) {
        self.journal.push(Entry::Ended(peer.clone()));
        let mut reaction = Reaction::default();
        self.protocol.ended(peer, &mut reaction);
        self.act(reaction);
    }

    /// What was sent on a link since last asked.
    pub fn heard(&mut self, link: Link) -> Vec<u8> {
        self.sent.remove(&link).unwrap_or_default()
    }

    pub fn missing(&self) -> String {
        names(&self.protocol.missing())
    }

    /// The same links with a new master, to whom what was kept is told again; its acts have been done.
    pub fn moved_to(&mut self, protocol: P) {
        self.protocol = protocol;
        for entry in &self.journal {
            let mut reaction = Reaction::default();
            match entry {
                Entry::Open(link, peer) => self.protocol.open(*link, peer, &mut reaction),
                Entry::Message(link, bytes) => {
                    let took = self.protocol.take(*link, bytes, &mut reaction);
                    assert_eq!(took, Ok(Some(bytes.len())));
                }
                Entry::Close(link) => self.protocol.close(*link, &mut reaction),
                Entry::Ended(peer) => self.protocol.ended(peer, &mut reaction),
            }
        }
    }

    fn act(&mut self, reaction: Reaction) {
        self.acts(reaction.into_parts().1);
    }

    fn acts(&mut self, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Send(link, bytes) => self.sent.entry(link).or_default().extend(bytes),
                Act::Close(link) => {
                    self.pending.remove(&link);
                    self.closed.push(link);
                }
                Act::Dial(link, task, port) => self.dials.push((link, task, port)),
                Act::Say(line) => self.said.push(line),
            }
        }
    }
}

/// Chances that are the same every time (splitmix64).
#[derive(Debug)]
pub(crate) struct Chance(pub u64);

impl Chance {
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

    /// The same bytes in pieces.
    pub fn cut<'a>(&mut self, mut bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(1 + self.below(bytes.len()));
            pieces.push(piece);
            bytes = rest;
        }
        pieces
    }

    /// The same bytes with some of them other ones, left out or twice.
    pub fn spoil(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut spoiled = bytes.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(spoiled.len().max(1)).min(spoiled.len());
            match self.below(4) {
                0 => spoiled.truncate(at),
                1 => spoiled.insert(at, self.next() as u8),
                2 => spoiled.extend_from_within(at..),
                _ => {
                    if let Some(byte) = spoiled.get_mut(at) {
                        *byte = self.next() as u8;
                    }
                }
            }
        }
        spoiled
    }
}
