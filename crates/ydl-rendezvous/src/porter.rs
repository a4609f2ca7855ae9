//! The agent's half: what programs said is held until the master has it for good.

use std::collections::{BTreeMap, BTreeSet};

use crate::frames::{Attached, Call, Down, Mark, Up};

/// Of what is held so much is said at once: less than a master takes in one body.
const PIECE: usize = 256 << 10;

/// Something to be done with a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Errand {
    /// Write that to it, after what was to be written before.
    Write(Call, Vec<u8>),
    /// Close it when everything is written. It will not be named again.
    Close(Call),
    /// Connect to the program on that port.
    Dial(Call, u16),
}

/// The connections of an agent's programs.
#[derive(Debug, Default)]
pub struct Porter {
    calls: BTreeMap<Call, Held>,
    /// Asked for, and neither there nor failed.
    dialing: BTreeSet<Call>,
    opened: u64,
    held: usize,
}

#[derive(Debug, Default)]
struct Held {
    /// The first byte that is held.
    floor: u64,
    bytes: Vec<u8>,
    settled: Mark,
    /// The program says nothing more.
    over: bool,
}

impl Held {
    fn end(&self) -> u64 {
        self.floor + self.bytes.len() as u64
    }

    /// How many bytes need not be held any more.
    fn drop_to(&mut self, floor: u64) -> usize {
        let known = floor.min(self.end()).saturating_sub(self.floor);
        self.floor += known;
        // No more than there are.
        let known = known as usize;
        self.bytes.drain(..known);
        known
    }
}

impl Porter {
    /// A program has connected.
    pub fn accept(&mut self) -> (Call, Up) {
        self.opened += 1;
        let call = Call::In(self.opened);
        self.calls.insert(call, Held::default());
        (call, Up::Open(call))
    }

    /// A program was connected to, as the master asked.
    pub fn dialed(&mut self, call: Call) -> Up {
        self.dialing.remove(&call);
        self.calls.insert(call, Held::default());
        Up::Open(call)
    }

    /// How many bytes are held.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Whether there is no connection at all.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Whether there is such a connection.
    pub fn knows(&self, call: Call) -> bool {
        self.calls.contains_key(&call)
    }

    /// What a program said.
    pub fn read(&mut self, call: Call, bytes: &[u8]) -> Option<Up> {
        let held = self.calls.get_mut(&call)?;
        let at = held.end();
        held.bytes.extend_from_slice(bytes);
        self.held += bytes.len();
        Some(Up::Bytes(call, at, bytes.to_vec()))
    }

    /// A program says nothing more, or could not be connected to.
    pub fn close(&mut self, call: Call) -> Up {
        self.dialing.remove(&call);
        let held = self.calls.entry(call).or_default();
        held.over = true;
        Up::Closed(call, held.end())
    }

    /// What is said first to a master, be it the same or another.
    pub fn attach(&self) -> Vec<Up> {
        let all = self.calls.iter().map(|(call, held)| Attached {
            call: *call,
            floor: held.floor,
            settled: held.settled,
        });
        let mut ups = vec![Up::Attach(all.collect())];
        for (call, held) in &self.calls {
            let mut at = held.floor;
            for piece in held.bytes.chunks(PIECE) {
                ups.push(Up::Bytes(*call, at, piece.to_vec()));
                at += piece.len() as u64;
            }
            if held.over {
                ups.push(Up::Closed(*call, held.end()));
            }
        }
        ups
    }

    /// What the master says, and what is said to it in return.
    pub fn hear(&mut self, down: Down) -> (Option<Errand>, Option<Up>) {
        match down {
            Down::Bytes(call, mark, bytes) => {
                let Some(held) = self.calls.get_mut(&call) else {
                    return (None, None);
                };
                let Some(mark) = mark else {
                    return (Some(Errand::Write(call, bytes)), None);
                };
                if mark <= held.settled {
                    return (None, None);
                }
                // From here on it is as good as with the program: they live and die together.
                held.settled = mark;
                self.held -= held.drop_to(mark.taken);
                (Some(Errand::Write(call, bytes)), Some(Up::Settled(call, mark)))
            }
            Down::Close(call, mark) => match self.forget(call) {
                true => (Some(Errand::Close(call)), Some(Up::Settled(call, mark))),
                false => (None, None),
            },
            Down::Dial(call, port) => {
                let new = !self.calls.contains_key(&call) && self.dialing.insert(call);
                (new.then_some(Errand::Dial(call, port)), None)
            }
            Down::Taken(call, floor) => {
                if let Some(held) = self.calls.get_mut(&call) {
                    self.held -= held.drop_to(floor);
                }
                (None, None)
            }
            Down::Gone(call) => {
                let known = self.forget(call);
                (known.then_some(Errand::Close(call)), None)
            }
        }
    }

    fn forget(&mut self, call: Call) -> bool {
        let held = self.calls.remove(&call);
        self.held -= held.as_ref().map_or(0, |held| held.bytes.len());
        held.is_some()
    }
}
