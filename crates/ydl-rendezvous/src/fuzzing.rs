//! Fuzz targets for each protocol, also run on their seeds by a test. Compiled for tests and fuzzers only.
//!
//! The input is a sequence of parts, each with a link number and a length of two bytes: any number of programs send any
//! bytes in any order. Each input must be accepted or rejected quickly and within the memory limits. A replay of the
//! persisted messages must lead to the same state.

mod trackers;

use std::collections::BTreeMap;

use ydl_core::TaskId;

use crate::{Action, Effects, LinkId, Peer, Protocol, c10d, gloo};
pub use trackers::{pslite, tracker};

/// A persisted event.
enum ReplayEntry {
    Open(LinkId),
    Message(LinkId, Vec<u8>),
    Close(LinkId),
}

/// Returns a link of one of three workers.
fn link_of(number: u8) -> LinkId {
    LinkId::Accepted(u64::from(number % 8))
}

fn peer(link: LinkId) -> Peer {
    let (LinkId::Accepted(number) | LinkId::Dialed(number)) = link;
    Peer { task: task(number), attempt: 0, host: "10.0.0.7".into() }
}

fn task(number: u64) -> TaskId {
    format!("worker:{}", number % 3).parse().expect("this is a task")
}

/// Runs a store on links without agents.
struct StoreRun<P> {
    protocol: P,
    pending: BTreeMap<LinkId, Vec<u8>>,
    persisted: Vec<ReplayEntry>,
}

impl<P: Protocol> StoreRun<P> {
    fn new(protocol: P) -> StoreRun<P> {
        StoreRun { protocol, pending: BTreeMap::new(), persisted: Vec::new() }
    }

    fn open(&mut self, link: LinkId) {
        if self.pending.insert(link, Vec::new()).is_none() {
            let mut effects = Effects::default();
            self.protocol.open(link, &peer(link), &mut effects);
            self.persisted.push(ReplayEntry::Open(link));
            self.apply(effects);
        }
    }

    fn feed(&mut self, link: LinkId, piece: &[u8]) {
        let mut bytes = self.pending.remove(&link).unwrap_or_default();
        bytes.extend(piece);
        let mut at = 0;
        loop {
            let mut effects = Effects::default();
            match self.protocol.receive(link, &bytes[at..], &mut effects) {
                Ok(Some(length)) => {
                    assert!(0 < length && length <= bytes.len() - at);
                    let message = bytes[at..at + length].to_vec();
                    at += length;
                    self.pending.insert(link, Vec::new());
                    if self.apply(effects) {
                        self.persisted.push(ReplayEntry::Message(link, message));
                    }
                    if !self.pending.contains_key(&link) {
                        return;
                    }
                }
                Ok(None) => {
                    self.pending.insert(link, bytes.split_off(at));
                    return;
                }
                Err(_) => {
                    assert!(at < bytes.len(), "no input, and it was rejected");
                    self.pending.insert(link, Vec::new());
                    return self.close(link);
                }
            }
        }
    }

    fn close(&mut self, link: LinkId) {
        if self.pending.remove(&link).is_some() {
            let mut effects = Effects::default();
            self.protocol.close(link, &mut effects);
            self.persisted.push(ReplayEntry::Close(link));
            self.apply(effects);
        }
    }

    fn apply(&mut self, effects: Effects) -> bool {
        let (persist, acts) = effects.into_parts();
        for act in acts {
            if let Action::Close(link) = act {
                self.pending.remove(&link);
            }
        }
        persist
    }
}

/// Runs the parts in `bytes`, checks the protocol after each one, and replays the persisted events on a second value.
fn run<P: Protocol>(fresh: impl Fn() -> P, mut bytes: &[u8], check: impl Fn(&P)) -> (P, P) {
    let mut run = StoreRun::new(fresh());
    while let Some(([number, length @ ..], rest)) = bytes.split_first_chunk::<3>() {
        let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
        let (piece, rest) = rest.split_at(length);
        bytes = rest;
        let link = link_of(*number);
        run.open(link);
        match number {
            128.. => run.close(link),
            _ => run.feed(link, piece),
        }
        check(&run.protocol);
    }
    let mut replayed = StoreRun::new(fresh());
    for persisted in run.persisted {
        match persisted {
            ReplayEntry::Open(link) => replayed.open(link),
            ReplayEntry::Message(link, message) => replayed.feed(link, &message),
            ReplayEntry::Close(link) => replayed.close(link),
        }
    }
    (run.protocol, replayed.protocol)
}

/// Fuzzes PyTorch's store.
pub fn c10d(bytes: &[u8]) {
    let limits = c10d::C10dLimits { stored_bytes: 4096, wait_bytes: 4096, response_bytes: 1024 };
    let within = |store: &c10d::C10dStore| {
        let (stored, awaited) = store.bytes();
        // Waits and watches have separate limits.
        assert!(stored <= limits.stored_bytes && awaited <= 2 * limits.wait_bytes);
    };
    let (one, other) = run(|| c10d::C10dStore::new(limits), bytes, within);
    assert_eq!(one.bytes().0, other.bytes().0);
}

/// Fuzzes Horovod's store, and the parsers of endpoints and replies with the whole input.
pub fn gloo(bytes: &[u8]) {
    let limits = gloo::GlooLimits { stored_bytes: 4096, pair_bytes: 0, rank_requests: 4 };
    let members = ["a:0", "a:1", "b:0"].iter().zip(0..);
    let members = members.map(|(slot, number)| gloo::GlooMember {
        task: task(number),
        slot: slot.parse().expect("this is a slot"),
    });
    let world = gloo::World::new(members.collect()).expect("this is a world");
    let fresh = || gloo::GlooStore::new(world.clone(), limits);
    let within = |store: &gloo::GlooStore| {
        assert!(
            store.bytes() <= limits.stored_bytes
                && store.rank_requests().count() <= limits.rank_requests
        );
    };
    let (one, other) = run(fresh, bytes, within);
    assert_eq!(one.bytes(), other.bytes());
    assert!(one.rank_requests().eq(other.rank_requests()));
    assert_eq!(one.missing(), other.missing());
    gloo::NotificationEndpoint::parse(bytes);
    gloo::NotificationEndpoint::from_pickle(bytes);
    let endpoint = gloo::NotificationEndpoint::new(Vec::new(), vec![7; 32]);
    assert!(!matches!(endpoint.parse_reply(bytes), Ok(Some(_))), "the digest cannot match");
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    #[test]
    fn every_fuzzer_seed_is_handled() {
        check("c10d", super::c10d);
        check("gloo", super::gloo);
        check("pslite", super::pslite);
        check("tracker", super::tracker);
    }

    /// Runs each seed and all its prefixes.
    fn check(target: &str, read: fn(&[u8])) {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
        let seeds = fs::read_dir(seeds.join(target)).expect("a folder of seeds");
        let mut count = 0;
        for seed in seeds {
            let bytes = fs::read(seed.expect("a seed").path()).expect("a seed");
            for end in 0..=bytes.len() {
                read(&bytes[..end]);
            }
            count += 1;
        }
        assert!(count > 0, "{target} has no seeds");
    }
}
