//! Input bytes of links, and the actions of the protocol.

use super::{LinkOutput, LinkRecord, LinkServer, MAX_UNACKED_BYTES, state::OutputItem};
use crate::{
    link::frame::{ConnId, ServerFrame},
    protocol::{Action, Effects, LinkId, Peer, Rejection},
};

impl LinkServer {
    /// Handles bytes that start at `offset` of their stream. Skips those that were received before.
    pub(super) fn data(
        &mut self,
        peer: &Peer,
        conn: ConnId,
        offset: u64,
        bytes: &[u8],
        output: &mut LinkOutput,
    ) {
        let Some(link) = self.find(peer, conn) else {
            return output.send(peer, ServerFrame::Release(conn));
        };
        let state = &self.links[&link];
        if state.closed {
            return;
        }
        let Some(received) = state.received().checked_sub(offset) else {
            let why = Rejection::new("bytes are missing from the stream");
            return self.reject(link, why, output);
        };
        let received = usize::try_from(received).unwrap_or(usize::MAX);
        if let Some(new) = bytes.get(received..) {
            self.consume(link, new, output);
        }
    }

    /// Passes all complete messages to the protocol, and buffers the rest.
    pub(super) fn consume(&mut self, link: LinkId, bytes: &[u8], output: &mut LinkOutput) {
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        let mut input = std::mem::take(&mut state.partial);
        input.extend_from_slice(bytes);
        let mut done = 0;
        loop {
            let mut effects = Effects::default();
            let length = match self.protocol.receive(link, &input[done..], &mut effects) {
                Ok(Some(length)) => length,
                Ok(None) => break,
                Err(why) => return self.reject(link, why, output),
            };
            let (persist, actions) = effects.into_parts();
            let Some(state) = self.links.get_mut(&link) else {
                return;
            };
            let offset = state.consumed;
            state.consumed += length as u64;
            if persist {
                state.persisted = state.consumed;
                let message = input[done..done + length].to_vec();
                let (peer, conn) = (state.peer.clone(), state.conn);
                output.send(&peer, ServerFrame::Ack(conn, state.persisted));
                output.records.push(LinkRecord::Message(peer, conn, offset, message));
            }
            done += length;
            self.apply(actions, Some(link), persist, output);
            // After each message: many short requests with long responses can arrive together.
            self.reject_slow_readers(output);
            if self.links.get(&link).is_none_or(|state| state.closed) {
                return;
            }
        }
        input.drain(..done);
        let max = self.protocol.max_message_len();
        if input.len() > max {
            let why = format!("message longer than {max} bytes");
            return self.reject(link, Rejection(why), output);
        }
        if let Some(state) = self.links.get_mut(&link) {
            state.partial = input;
        }
    }

    /// Tells the protocol that a link ended.
    pub(super) fn notify_closed(
        &mut self,
        link: LinkId,
        peer: &Peer,
        conn: ConnId,
        output: &mut LinkOutput,
    ) {
        let mut effects = Effects::default();
        self.protocol.close(link, &mut effects);
        let (persist, actions) = effects.into_parts();
        if persist {
            output.records.push(LinkRecord::Closed(peer.clone(), conn));
        }
        self.apply(actions, None, persist, output);
    }

    /// Queues the close of a link. Returns `None` if it is closed already.
    pub(super) fn push_close(&mut self, link: LinkId) -> Option<(Peer, ConnId, ServerFrame)> {
        let state = self.links.get_mut(&link).filter(|state| !state.closed)?;
        state.closed = true;
        state.partial = Vec::new();
        Some((state.peer.clone(), state.conn, state.push(OutputItem::Close)))
    }

    /// Closes a link because of its input.
    pub(super) fn reject(&mut self, link: LinkId, why: Rejection, output: &mut LinkOutput) {
        let Some((peer, conn, frame)) = self.push_close(link) else {
            return;
        };
        output.send(&peer, frame);
        output.rejected.push((peer.clone(), why));
        self.notify_closed(link, &peer, conn, output);
    }

    /// Closes links of tasks that do not read their output.
    pub(super) fn reject_slow_readers(&mut self, output: &mut LinkOutput) {
        while let Some(link) = self.slow.pop_first() {
            let task = self.links.get(&link).map(|state| &state.peer.task);
            let unacked = task.and_then(|task| self.unacked.get(task));
            if unacked.is_some_and(|all| *all > MAX_UNACKED_BYTES) {
                let why = Rejection::new("the client does not read its responses");
                self.reject(link, why, output);
            }
        }
    }

    /// Applies actions. `persisted`: a replay produces them again. Output that a replay does not produce, on a link
    /// other than `own`, is sent once and has no position: positions must be the same after a replay.
    pub(super) fn apply(
        &mut self,
        actions: Vec<Action>,
        own: Option<LinkId>,
        persisted: bool,
        output: &mut LinkOutput,
    ) {
        for action in actions {
            match action {
                Action::Send(link, bytes) => {
                    let Some(state) = self.links.get_mut(&link).filter(|state| !state.closed)
                    else {
                        continue;
                    };
                    let (task, attempt) = (state.peer.task.clone(), state.peer.attempt);
                    let before = state.unacked_bytes;
                    let frame = if persisted || own == Some(link) {
                        state.push(OutputItem::Data(bytes))
                    } else {
                        ServerFrame::Data(state.conn, None, bytes)
                    };
                    let added = state.unacked_bytes - before;
                    output.frames.push((task.clone(), frame));
                    let live = self.live.get(&task) == Some(&attempt);
                    let all = self.unacked.entry(task).or_default();
                    *all += added;
                    if *all > MAX_UNACKED_BYTES && live {
                        self.slow.insert(link);
                    }
                }
                Action::Close(link) => {
                    if let Some((peer, _, frame)) = self.push_close(link) {
                        output.send(&peer, frame);
                    }
                }
                Action::Dial(link, task, port) => {
                    if let LinkId::Dialed(number) = link {
                        self.dials.insert(link, (task.clone(), port));
                        let conn = ConnId::Outbound(number);
                        output.frames.push((task, ServerFrame::Dial(conn, port)));
                    }
                }
                Action::Log(line) => output.log.push(line),
            }
        }
    }
}
