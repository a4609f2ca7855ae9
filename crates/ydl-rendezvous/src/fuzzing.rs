//! Every protocol as a function of bytes: for the targets in `fuzz/`, and for the test that runs their seeds. A build
//! that is neither a test nor a fuzzer has none of this.
//!
//! The bytes are parts, each with the number of its link and two bytes of length before it; so many programs say
//! anything, in any pieces, in any order. Whatever they say must have an answer or a rejection, soon, and without taking
//! more memory than the limits; and a new master that is given what was kept must come to the same.

mod trackers;

use std::collections::BTreeMap;

use ydl_core::TaskId;

use crate::{Action, Effects, LinkId, Peer, Protocol, c10d, gloo};
pub use trackers::{pslite, tracker};

/// What a new master would be given.
enum ReplayEntry {
    Open(LinkId),
    Message(LinkId, Vec<u8>),
    Close(LinkId),
}

/// A link of one of three workers.
fn numbered(number: u8) -> LinkId {
    LinkId::Accepted(u64::from(number % 8))
}

fn peer(link: LinkId) -> Peer {
    let (LinkId::Accepted(number) | LinkId::Dialed(number)) = link;
    Peer { task: task(number), attempt: 0, host: "10.0.0.7".into() }
}

fn task(number: u64) -> TaskId {
    format!("worker:{}", number % 3).parse().expect("this is a task")
}

/// Runs a protocol as a desk would, without its agents.
struct StoreRun<P> {
    protocol: P,
    rest: BTreeMap<LinkId, Vec<u8>>,
    kept: Vec<ReplayEntry>,
}

impl<P: Protocol> StoreRun<P> {
    fn new(protocol: P) -> StoreRun<P> {
        StoreRun { protocol, rest: BTreeMap::new(), kept: Vec::new() }
    }

    fn open(&mut self, link: LinkId) {
        if self.rest.insert(link, Vec::new()).is_none() {
            let mut effects = Effects::default();
            self.protocol.open(link, &peer(link), &mut effects);
            self.kept.push(ReplayEntry::Open(link));
            self.done(effects);
        }
    }

    fn say(&mut self, link: LinkId, piece: &[u8]) {
        let mut bytes = self.rest.remove(&link).unwrap_or_default();
        bytes.extend(piece);
        let mut at = 0;
        loop {
            let mut effects = Effects::default();
            match self.protocol.receive(link, &bytes[at..], &mut effects) {
                Ok(Some(length)) => {
                    assert!(0 < length && length <= bytes.len() - at);
                    let message = bytes[at..at + length].to_vec();
                    at += length;
                    self.rest.insert(link, Vec::new());
                    if self.done(effects) {
                        self.kept.push(ReplayEntry::Message(link, message));
                    }
                    if !self.rest.contains_key(&link) {
                        return;
                    }
                }
                Ok(None) => {
                    self.rest.insert(link, bytes.split_off(at));
                    return;
                }
                Err(_) => {
                    assert!(at < bytes.len(), "nothing was said, and it was refused");
                    self.rest.insert(link, Vec::new());
                    return self.close(link);
                }
            }
        }
    }

    fn close(&mut self, link: LinkId) {
        if self.rest.remove(&link).is_some() {
            let mut effects = Effects::default();
            self.protocol.close(link, &mut effects);
            self.kept.push(ReplayEntry::Close(link));
            self.done(effects);
        }
    }

    fn done(&mut self, effects: Effects) -> bool {
        let (keep, acts) = effects.into_parts();
        for act in acts {
            if let Action::Close(link) = act {
                self.rest.remove(&link);
            }
        }
        keep
    }
}

/// Lets links say what these bytes say, checks after each part, and gives what was kept to another value.
fn run<P: Protocol>(fresh: impl Fn() -> P, mut bytes: &[u8], check: impl Fn(&P)) -> (P, P) {
    let mut run = StoreRun::new(fresh());
    while let Some(([number, length @ ..], rest)) = bytes.split_first_chunk::<3>() {
        let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
        let (piece, rest) = rest.split_at(length);
        bytes = rest;
        let link = numbered(*number);
        run.open(link);
        match number {
            128.. => run.close(link),
            _ => run.say(link, piece),
        }
        check(&run.protocol);
    }
    let mut again = StoreRun::new(fresh());
    for kept in run.kept {
        match kept {
            ReplayEntry::Open(link) => again.open(link),
            ReplayEntry::Message(link, message) => again.say(link, &message),
            ReplayEntry::Close(link) => again.close(link),
        }
    }
    (run.protocol, again.protocol)
}

/// PyTorch's store.
pub fn c10d(bytes: &[u8]) {
    let limits = c10d::C10dLimits { stored_bytes: 4096, awaited_bytes: 4096, answer_bytes: 1024 };
    let within = |store: &c10d::C10dStore| {
        let (stored, awaited) = store.bytes();
        // What is waited for and what is watched are counted each for itself.
        assert!(stored <= limits.stored_bytes && awaited <= 2 * limits.awaited_bytes);
    };
    let (one, other) = run(|| c10d::C10dStore::new(limits), bytes, within);
    assert_eq!(one.bytes().0, other.bytes().0);
}

/// Horovod's store; and, all bytes at once, where a worker listens and what it answers.
pub fn gloo(bytes: &[u8]) {
    let limits = gloo::GlooLimits { stored_bytes: 4096, pair_bytes: 0, asking: 4 };
    let members = ["a:0", "a:1", "b:0"].iter().zip(0..);
    let members = members.map(|(slot, number)| gloo::GlooMember {
        task: task(number),
        slot: slot.parse().expect("this is a slot"),
    });
    let world = gloo::World::new(members.collect()).expect("this is a world");
    let fresh = || gloo::GlooStore::new(world.clone(), limits);
    let within = |store: &gloo::GlooStore| {
        assert!(store.bytes() <= limits.stored_bytes && store.asking().count() <= limits.asking);
    };
    let (one, other) = run(fresh, bytes, within);
    assert_eq!(one.bytes(), other.bytes());
    assert!(one.asking().eq(other.asking()));
    assert_eq!(one.missing(), other.missing());
    gloo::NotificationEndpoint::read(bytes);
    gloo::NotificationEndpoint::unpickled(bytes);
    let worker = gloo::NotificationEndpoint::new(Vec::new(), vec![7; 32]);
    assert!(!matches!(worker.answer(bytes), Ok(Some(_))), "nobody guesses a digest");
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    #[test]
    fn every_seed_of_the_fuzzers_is_answered() {
        check("c10d", super::c10d);
        check("gloo", super::gloo);
        check("pslite", super::pslite);
        check("tracker", super::tracker);
    }

    /// Whole, and cut anywhere.
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
