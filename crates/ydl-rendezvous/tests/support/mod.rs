//! A protocol without sockets: pieces of links in, acts out, and what was kept.
#![allow(dead_code)]

pub mod c10d;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use ydl_rendezvous::{Act, Link, Peer, Protocol, Reaction};

/// What a new master would find written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    Open(Link, u32),
    Message(Link, Vec<u8>),
    Close(Link),
}

/// Runs a protocol, one piece after the other.
#[derive(Debug)]
pub struct Runner<P> {
    pub protocol: P,
    /// What came and was not taken, by link.
    rest: BTreeMap<Link, Vec<u8>>,
    /// Whose link it is, and whether that is written down.
    opened: BTreeMap<Link, (u32, bool)>,
    pub kept: Vec<Kept>,
}

pub fn link(number: u64) -> Link {
    Link::Accepted(number)
}

pub fn peer(index: u32) -> Peer {
    Peer {
        task: format!("worker:{index}").parse().expect("this is a task"),
        attempt: 0,
        host: format!("10.0.0.{index}").into(),
    }
}

impl<P: Protocol> Runner<P> {
    pub fn new(protocol: P) -> Runner<P> {
        Runner { protocol, rest: BTreeMap::new(), opened: BTreeMap::new(), kept: Vec::new() }
    }

    pub fn open(&mut self, link: Link, worker: u32) -> Vec<Act> {
        let mut reaction = Reaction::default();
        self.protocol.open(link, &peer(worker), &mut reaction);
        self.rest.insert(link, Vec::new());
        self.opened.insert(link, (worker, false));
        self.done(reaction, |_| None)
    }

    pub fn is_open(&self, link: Link) -> bool {
        self.rest.contains_key(&link)
    }

    /// A piece of what a program says. A link that was closed says nothing any more.
    pub fn say(&mut self, link: Link, piece: &[u8]) -> Vec<Act> {
        let Some(rest) = self.rest.get_mut(&link) else {
            return Vec::new();
        };
        rest.extend(piece);
        let mut all = Vec::new();
        // Asked once more when nothing is left, as a desk does.
        while let Some(rest) = self.rest.get(&link).cloned() {
            let mut reaction = Reaction::default();
            match self.protocol.take(link, &rest, &mut reaction) {
                Ok(Some(length)) => {
                    assert!(0 < length && length <= rest.len(), "{length} bytes taken");
                    assert!(length <= self.protocol.message_max());
                    self.rest.insert(link, rest[length..].to_vec());
                    all.extend(
                        self.done(reaction, |_| Some(Kept::Message(link, rest[..length].to_vec()))),
                    );
                }
                Ok(None) => {
                    let (keep, acts) = reaction.into_parts();
                    assert!(!keep && acts.is_empty(), "half a message changes nothing");
                    assert!(rest.len() < self.protocol.message_max());
                    break;
                }
                Err(refusal) => {
                    all.push(Act::Say(refusal.to_string()));
                    all.extend(self.close(link));
                    all.push(Act::Close(link));
                }
            }
        }
        all
    }

    pub fn close(&mut self, link: Link) -> Vec<Act> {
        if self.rest.remove(&link).is_none() {
            return Vec::new();
        }
        let mut reaction = Reaction::default();
        self.protocol.close(link, &mut reaction);
        self.done(reaction, |opened| opened.then_some(Kept::Close(link)))
    }

    /// Writes down what is to be kept, and forgets links that the protocol closes.
    fn done(&mut self, reaction: Reaction, kept: impl FnOnce(bool) -> Option<Kept>) -> Vec<Act> {
        let (keep, acts) = reaction.into_parts();
        if keep && let Some(kept) = kept(true) {
            let (Kept::Message(link, _) | Kept::Close(link) | Kept::Open(link, _)) = kept;
            if let Some((worker, written @ false)) = self.opened.get_mut(&link) {
                *written = true;
                self.kept.push(Kept::Open(link, *worker));
            }
            self.kept.push(kept);
        }
        for act in &acts {
            if let Act::Close(link) = act {
                self.rest.remove(link);
            }
        }
        acts
    }

    /// What a new master comes to, given what was written down; and what it would say again.
    pub fn replayed(&self, fresh: P) -> (Runner<P>, Vec<Act>) {
        let mut runner = Runner::new(fresh);
        let mut acts = Vec::new();
        for kept in &self.kept {
            acts.extend(match kept {
                Kept::Open(link, worker) => runner.open(*link, *worker),
                Kept::Message(link, bytes) => runner.say(*link, bytes),
                Kept::Close(link) => runner.close(*link),
            });
        }
        // Links that ended since, without anything that had to be written down.
        let ended: BTreeSet<Link> =
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
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
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
