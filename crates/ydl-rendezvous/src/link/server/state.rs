//! State of one link on the master.

use std::collections::VecDeque;

use crate::{
    link::frame::{ConnId, Seq, ServerFrame},
    protocol::Peer,
};

/// Position of one link in both directions, and its unacknowledged output.
#[derive(Debug)]
pub(super) struct LinkState {
    pub(super) peer: Peer,
    pub(super) conn: ConnId,
    /// Bytes that the program wrote, as far as they are complete messages.
    pub(super) consumed: u64,
    /// End of the last persisted message.
    pub(super) persisted: u64,
    /// Bytes of an incomplete message.
    pub(super) partial: Vec<u8>,
    pub(super) last_seq: Seq,
    pub(super) unacked: VecDeque<(Seq, OutputItem)>,
    pub(super) unacked_bytes: usize,
    /// The master has closed the link.
    pub(super) closed: bool,
}

#[derive(Clone, Debug)]
pub(super) enum OutputItem {
    Data(Vec<u8>),
    Close,
}

impl LinkState {
    pub(super) fn new(peer: &Peer, conn: ConnId) -> LinkState {
        LinkState {
            peer: peer.clone(),
            conn,
            consumed: 0,
            persisted: 0,
            partial: Vec::new(),
            last_seq: Seq::default(),
            unacked: VecDeque::new(),
            unacked_bytes: 0,
            closed: false,
        }
    }

    /// Returns the offset of the next expected byte.
    pub(super) fn received(&self) -> u64 {
        self.consumed + self.partial.len() as u64
    }

    pub(super) fn skip_to(&mut self, consumed: u64) {
        self.consumed = consumed;
        self.partial.clear();
    }

    /// Queues an output item until it is acknowledged, and returns its frame.
    pub(super) fn push(&mut self, item: OutputItem) -> ServerFrame {
        self.last_seq = match self.last_seq {
            last if last.consumed == self.consumed => Seq { index: last.index + 1, ..last },
            _ => Seq { consumed: self.consumed, index: 1 },
        };
        if let OutputItem::Data(bytes) = &item {
            self.unacked_bytes += bytes.len();
        }
        let frame = self.frame(self.last_seq, &item);
        self.unacked.push_back((self.last_seq, item));
        frame
    }

    pub(super) fn frame(&self, seq: Seq, item: &OutputItem) -> ServerFrame {
        match item {
            OutputItem::Data(bytes) => ServerFrame::Data(self.conn, Some(seq), bytes.clone()),
            OutputItem::Close => ServerFrame::Close(self.conn, seq),
        }
    }

    /// Drops the output up to `seq` and returns the number of bytes dropped.
    pub(super) fn ack(&mut self, seq: Seq) -> usize {
        let before = self.unacked_bytes;
        while self.unacked.front().is_some_and(|(first, _)| *first <= seq) {
            if let Some((_, OutputItem::Data(bytes))) = self.unacked.pop_front() {
                self.unacked_bytes -= bytes.len();
            }
        }
        self.last_seq = self.last_seq.max(seq);
        before - self.unacked_bytes
    }
}
