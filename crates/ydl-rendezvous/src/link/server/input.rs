//! Input bytes of links: assembles messages, passes them to the protocol and acknowledges persisted ones.

use super::{LinkOutput, LinkRecord, LinkServer};
use crate::{
    link::frame::{ConnId, ServerFrame},
    protocol::{Effects, LinkId, Peer, Rejection},
};

impl LinkServer {
    /// Handles bytes that start at `offset` of their stream. Skips those that were received before.
    pub(super) fn receive_data(
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
}
