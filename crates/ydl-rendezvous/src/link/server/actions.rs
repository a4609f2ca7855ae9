//! Actions of the protocol, and the ends of links.

use super::{LinkOutput, LinkRecord, LinkServer, MAX_UNACKED_BYTES, state::OutputItem};
use crate::{
    link::frame::{ConnId, ServerFrame},
    protocol::{Action, Effects, LinkId, Peer, Rejection},
};

impl LinkServer {
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

    /// Applies actions. `persisted`: the cause is in the journal, so a replay produces the same output. Other output gets
    /// a position only on the link that caused it (`own`), whose program's bytes are resent to a new master. On other
    /// links it is sent once and never resent.
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
