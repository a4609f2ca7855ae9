//! One link, as the master counts on it.

use std::collections::VecDeque;

use crate::{
    frames::{Call, Down, Mark},
    protocol::Peer,
};

#[derive(Debug)]
pub(super) struct Line {
    pub(super) peer: Peer,
    pub(super) call: Call,
    /// Bytes of whole messages.
    pub(super) taken: u64,
    /// Where the last message that is written down ends.
    pub(super) kept: u64,
    /// What follows, of a message that is not whole.
    pub(super) piece: Vec<u8>,
    pub(super) last: Mark,
    pub(super) unsettled: VecDeque<(Mark, Said)>,
    pub(super) unsettled_bytes: usize,
    /// The protocol has said its last word.
    pub(super) closed: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Said {
    Bytes(Vec<u8>),
    Close,
}

impl Line {
    pub(super) fn new(peer: &Peer, call: Call) -> Line {
        Line {
            peer: peer.clone(),
            call,
            taken: 0,
            kept: 0,
            piece: Vec::new(),
            last: Mark::default(),
            unsettled: VecDeque::new(),
            unsettled_bytes: 0,
            closed: false,
        }
    }

    /// The byte that is expected next.
    pub(super) fn heard(&self) -> u64 {
        self.taken + self.piece.len() as u64
    }

    pub(super) fn skip_to(&mut self, taken: u64) {
        self.taken = taken;
        self.piece.clear();
    }

    /// Something that is said until it is settled.
    pub(super) fn say(&mut self, said: Said) -> Down {
        self.last = match self.last {
            last if last.taken == self.taken => Mark { index: last.index + 1, ..last },
            _ => Mark { taken: self.taken, index: 1 },
        };
        if let Said::Bytes(bytes) = &said {
            self.unsettled_bytes += bytes.len();
        }
        let down = self.down(self.last, &said);
        self.unsettled.push_back((self.last, said));
        down
    }

    pub(super) fn down(&self, mark: Mark, said: &Said) -> Down {
        match said {
            Said::Bytes(bytes) => Down::Bytes(self.call, Some(mark), bytes.clone()),
            Said::Close => Down::Close(self.call, mark),
        }
    }

    /// How many bytes need not be said again.
    pub(super) fn settle(&mut self, mark: Mark) -> usize {
        let before = self.unsettled_bytes;
        while self.unsettled.front().is_some_and(|(first, _)| *first <= mark) {
            if let Some((_, Said::Bytes(bytes))) = self.unsettled.pop_front() {
                self.unsettled_bytes -= bytes.len();
            }
        }
        self.last = self.last.max(mark);
        before - self.unsettled_bytes
    }
}
