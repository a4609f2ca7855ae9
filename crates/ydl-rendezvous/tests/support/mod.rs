//! A protocol without sockets: pieces of links in, acts out, and what was kept.
#![allow(dead_code)]

pub mod c10d;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use ydl_rendezvous::{Action, Effects, LinkId, Peer, Protocol};

/// What a new master would find written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayEntry {
    Open(LinkId, u32),
    Message(LinkId, Vec<u8>),
    Close(LinkId),
}

/// Runs a protocol, one piece after the other.
#[derive(Debug)]
pub struct ProtocolRunner<P> {
    pub protocol: P,
    /// What came and was not taken, by link.
    rest: BTreeMap<LinkId, Vec<u8>>,
    /// Whose link it is, and whether that is written down.
    opened: BTreeMap<LinkId, (u32, bool)>,
    pub kept: Vec<ReplayEntry>,
}

pub fn link(number: u64) -> LinkId {
    LinkId::Accepted(number)
}

pub fn peer(index: u32) -> Peer {
    Peer {
        task: format!("worker:{index}").parse().expect("this is a task"),
        attempt: 0,
        host: format!("10.0.0.{index}").into(),
    }
}

impl<P: Protocol> ProtocolRunner<P> {
    pub fn new(protocol: P) -> ProtocolRunner<P> {
        ProtocolRunner {
            protocol,
            rest: BTreeMap::new(),
            opened: BTreeMap::new(),
            kept: Vec::new(),
        }
    }

    pub fn open(&mut self, link: LinkId, worker: u32) -> Vec<Action> {
        let mut effects = Effects::default();
        self.protocol.open(link, &peer(worker), &mut effects);
        self.rest.insert(link, Vec::new());
        self.opened.insert(link, (worker, false));
        self.done(effects, |_| None)
    }

    pub fn is_open(&self, link: LinkId) -> bool {
        self.rest.contains_key(&link)
    }

    /// A piece of what a program says. A link that was closed says nothing any more.
    pub fn say(&mut self, link: LinkId, piece: &[u8]) -> Vec<Action> {
        let Some(rest) = self.rest.get_mut(&link) else {
            return Vec::new();
        };
        rest.extend(piece);
        let mut all = Vec::new();
        // Asked once more when nothing is left, as a desk does.
        while let Some(rest) = self.rest.get(&link).cloned() {
            let mut effects = Effects::default();
            match self.protocol.receive(link, &rest, &mut effects) {
                Ok(Some(length)) => {
                    assert!(0 < length && length <= rest.len(), "{length} bytes taken");
                    assert!(length <= self.protocol.max_message_len());
                    self.rest.insert(link, rest[length..].to_vec());
                    all.extend(self.done(effects, |_| {
                        Some(ReplayEntry::Message(link, rest[..length].to_vec()))
                    }));
                }
                Ok(None) => {
                    let (keep, acts) = effects.into_parts();
                    assert!(!keep && acts.is_empty(), "half a message changes nothing");
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
        if self.rest.remove(&link).is_none() {
            return Vec::new();
        }
        let mut effects = Effects::default();
        self.protocol.close(link, &mut effects);
        self.done(effects, |opened| opened.then_some(ReplayEntry::Close(link)))
    }

    /// Writes down what is to be kept, and forgets links that the protocol closes.
    fn done(
        &mut self,
        effects: Effects,
        kept: impl FnOnce(bool) -> Option<ReplayEntry>,
    ) -> Vec<Action> {
        let (keep, acts) = effects.into_parts();
        if keep && let Some(kept) = kept(true) {
            let (ReplayEntry::Message(link, _)
            | ReplayEntry::Close(link)
            | ReplayEntry::Open(link, _)) = kept;
            if let Some((worker, written @ false)) = self.opened.get_mut(&link) {
                *written = true;
                self.kept.push(ReplayEntry::Open(link, *worker));
            }
            self.kept.push(kept);
        }
        for act in &acts {
            if let Action::Close(link) = act {
                self.rest.remove(link);
            }
        }
        acts
    }

    /// What a new master comes to, given what was written down; and what it would say again.
    pub fn replayed(&self, fresh: P) -> (ProtocolRunner<P>, Vec<Action>) {
        let mut runner = ProtocolRunner::new(fresh);
        let mut acts = Vec::new();
        for kept in &self.kept {
            acts.extend(match kept {
                ReplayEntry::Open(link, worker) => runner.open(*link, *worker),
                ReplayEntry::Message(link, bytes) => runner.say(*link, bytes),
                ReplayEntry::Close(link) => runner.close(*link),
            });
        }
        // Links that ended since, without anything that had to be written down.
        let ended: BTreeSet<LinkId> =
            runner.rest.keys().filter(|link| !self.rest.contains_key(link)).copied().collect();
        for link in ended {
            acts.extend(runner.close(link));
        }
        (runner, acts)
    }
}

/// Bytes out of hex, spaces allowed.
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
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// A small generator of numbers: the same seed gives the same numbers.
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

    /// Below so many.
    pub fn below(&mut self, many: usize) -> usize {
        (self.number() % many.max(1) as u64) as usize
    }

    pub fn one_of<'t, T: ?Sized>(&mut self, of: &[&'t T]) -> &'t T {
        of[self.below(of.len())]
    }

    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| self.number() as u8).collect()
    }

    /// The same bytes in pieces.
    pub fn pieces<'b>(&mut self, mut bytes: &'b [u8]) -> Vec<&'b [u8]> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let most = if self.below(3) == 0 { bytes.len() } else { 9 };
            let (piece, rest) = bytes.split_at(1 + self.below(most.min(bytes.len())));
            pieces.push(piece);
            bytes = rest;
        }
        pieces
    }
}
