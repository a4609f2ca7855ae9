//! Runs a protocol without sockets: chunks of bytes in, actions and persisted events out.
#![allow(dead_code)]

pub mod c10d;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use ydl_rendezvous::{Action, Effects, LinkId, Peer, Protocol};

/// A persisted event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayEntry {
    Open(LinkId, u32),
    Message(LinkId, Vec<u8>),
    Close(LinkId),
}

/// Runs a protocol, one chunk after the other.
#[derive(Debug)]
pub struct ProtocolRunner<P> {
    pub protocol: P,
    /// Bytes of incomplete messages, by link.
    pending: BTreeMap<LinkId, Vec<u8>>,
    /// Worker of each link, and whether the open is persisted.
    opened: BTreeMap<LinkId, (u32, bool)>,
    pub persisted: Vec<ReplayEntry>,
}

pub fn link(number: u64) -> LinkId {
    LinkId::Accepted(number)
}

pub fn peer(index: u32) -> Peer {
    Peer {
        task: format!("worker:{index}").parse().expect("a task"),
        attempt: 0,
        host: format!("10.0.0.{index}").into(),
    }
}

impl<P: Protocol> ProtocolRunner<P> {
    pub fn new(protocol: P) -> ProtocolRunner<P> {
        ProtocolRunner {
            protocol,
            pending: BTreeMap::new(),
            opened: BTreeMap::new(),
            persisted: Vec::new(),
        }
    }

    pub fn open(&mut self, link: LinkId, worker: u32) -> Vec<Action> {
        let mut effects = Effects::default();
        self.protocol.open(link, &peer(worker), &mut effects);
        self.pending.insert(link, Vec::new());
        self.opened.insert(link, (worker, false));
        self.apply(effects, |_| None)
    }

    pub fn is_open(&self, link: LinkId) -> bool {
        self.pending.contains_key(&link)
    }

    /// Passes a chunk of a program to the protocol. Ignores closed links.
    pub fn feed(&mut self, link: LinkId, chunk: &[u8]) -> Vec<Action> {
        let Some(rest) = self.pending.get_mut(&link) else {
            return Vec::new();
        };
        rest.extend(chunk);
        let mut all = Vec::new();
        // Called again when no bytes are left, as a `LinkServer` does.
        while let Some(rest) = self.pending.get(&link).cloned() {
            let mut effects = Effects::default();
            match self.protocol.receive(link, &rest, &mut effects) {
                Ok(Some(length)) => {
                    assert!(0 < length && length <= rest.len(), "{length} bytes taken");
                    assert!(length <= self.protocol.max_message_len());
                    self.pending.insert(link, rest[length..].to_vec());
                    all.extend(self.apply(effects, |_| {
                        Some(ReplayEntry::Message(link, rest[..length].to_vec()))
                    }));
                }
                Ok(None) => {
                    let (persist, actions) = effects.into_parts();
                    assert!(!persist && actions.is_empty(), "an incomplete message has no effect");
                    assert!(rest.len() < self.protocol.max_message_len());
                    break;
                }
                Err(rejection) => {
                    all.push(Action::Log(rejection.to_string()));
                    all.extend(self.close(link));
                    all.push(Action::Close(link));
                }
            }
        }
        all
    }

    pub fn close(&mut self, link: LinkId) -> Vec<Action> {
        if self.pending.remove(&link).is_none() {
            return Vec::new();
        }
        let mut effects = Effects::default();
        self.protocol.close(link, &mut effects);
        self.apply(effects, |opened| opened.then_some(ReplayEntry::Close(link)))
    }

    /// Persists an event if required, and drops links that the protocol closes.
    fn apply(
        &mut self,
        effects: Effects,
        persisted: impl FnOnce(bool) -> Option<ReplayEntry>,
    ) -> Vec<Action> {
        let (persist, actions) = effects.into_parts();
        if persist && let Some(persisted) = persisted(true) {
            let (ReplayEntry::Message(link, _)
            | ReplayEntry::Close(link)
            | ReplayEntry::Open(link, _)) = persisted;
            if let Some((worker, written @ false)) = self.opened.get_mut(&link) {
                *written = true;
                self.persisted.push(ReplayEntry::Open(link, *worker));
            }
            self.persisted.push(persisted);
        }
        for action in &actions {
            if let Action::Close(link) = action {
                self.pending.remove(link);
            }
        }
        actions
    }

    /// Replays the persisted events on a new protocol. Returns its runner and the replayed actions.
    pub fn replayed(&self, fresh: P) -> (ProtocolRunner<P>, Vec<Action>) {
        let mut runner = ProtocolRunner::new(fresh);
        let mut actions = Vec::new();
        for persisted in &self.persisted {
            actions.extend(match persisted {
                ReplayEntry::Open(link, worker) => runner.open(*link, *worker),
                ReplayEntry::Message(link, bytes) => runner.feed(*link, bytes),
                ReplayEntry::Close(link) => runner.close(*link),
            });
        }
        // Links that ended since, without a persisted event.
        let ended: BTreeSet<LinkId> = runner
            .pending
            .keys()
            .filter(|link| !self.pending.contains_key(link))
            .copied()
            .collect();
        for link in ended {
            actions.extend(runner.close(link));
        }
        (runner, actions)
    }
}

/// Decodes hex with optional spaces.
pub fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .chars()
        .filter(|letter| !letter.is_whitespace())
        .map(|letter| letter.to_digit(16).expect("hex digits only") as u8)
        .collect();
    assert!(digits.len().is_multiple_of(2));
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{}{byte:02x}", if text.is_empty() { "" } else { " " });
        text
    })
}

pub fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let mut three = [0; 4];
        three[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(three);
        for index in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * index)) as usize & 63];
            text.push(if index <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// Reproducible pseudorandom number generator.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// Returns a number below `many`.
    pub fn below(&mut self, many: usize) -> usize {
        (self.number() % many.max(1) as u64) as usize
    }

    pub fn one_of<'t, T: ?Sized>(&mut self, of: &[&'t T]) -> &'t T {
        of[self.below(of.len())]
    }

    pub fn bytes(&mut self, max: usize) -> Vec<u8> {
        (0..self.below(max + 1)).map(|_| self.number() as u8).collect()
    }

    /// Splits the bytes into random chunks.
    pub fn split<'b>(&mut self, mut bytes: &'b [u8]) -> Vec<&'b [u8]> {
        let mut chunks = Vec::new();
        while !bytes.is_empty() {
            let max = if self.below(3) == 0 { bytes.len() } else { 9 };
            let (chunk, rest) = bytes.split_at(1 + self.below(max.min(bytes.len())));
            chunks.push(chunk);
            bytes = rest;
        }
        chunks
    }
}
