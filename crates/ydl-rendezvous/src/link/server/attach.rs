//! Sessions of agents: opens links, and resumes them in another session or on another master.

use std::collections::BTreeSet;

use ydl_core::TaskId;

use super::{LinkOutput, LinkRecord, LinkServer, LinkState, MAX_CONNECTIONS};
use crate::{
    link::frame::{ConnId, ConnState, ServerFrame},
    protocol::{Effects, LinkId, Peer, Rejection},
};

impl LinkServer {
    /// Returns the link of a connection. Opens it if it is new.
    pub(super) fn find_or_open(
        &mut self,
        peer: &Peer,
        conn: ConnId,
        output: &mut LinkOutput,
    ) -> Option<LinkId> {
        if let Some(link) = self.find(peer, conn) {
            return Some(link);
        }
        let link = match conn {
            ConnId::Inbound(_) => {
                if self.is_live(peer) && self.links_of(peer).len() >= MAX_CONNECTIONS {
                    let why = format!("more than {MAX_CONNECTIONS} connections");
                    output.rejected.push((peer.clone(), Rejection(why)));
                    return None;
                }
                self.accepted += 1;
                LinkId::Accepted(self.accepted)
            }
            // Only requested dials are valid.
            ConnId::Outbound(number) => {
                let link = LinkId::Dialed(number);
                let (task, _) = self.dials.get(&link)?;
                if *task != peer.task {
                    return None;
                }
                self.dials.remove(&link);
                link
            }
        };
        self.links.insert(link, LinkState::new(peer, conn));
        let key = (peer.task.clone(), peer.attempt, conn);
        self.ids.insert(key, link);
        let mut effects = Effects::default();
        self.protocol.open(link, peer, &mut effects);
        let (persist, actions) = effects.into_parts();
        if persist {
            output.records.push(LinkRecord::Opened(peer.clone(), conn));
        }
        self.apply(actions, Some(link), persist, output);
        Some(link)
    }

    /// Attaches an agent and reconciles its connections with the links of this server.
    pub(super) fn attach(&mut self, peer: &Peer, all: &[ConnState], output: &mut LinkOutput) {
        let present: BTreeSet<ConnId> = all.iter().map(|one| one.conn).collect();
        for link in self.links_of(peer) {
            let conn = self.links[&link].conn;
            if !present.contains(&conn) {
                self.closed(peer, conn, output);
            }
        }
        for one in all {
            let mut opening = LinkOutput::default();
            let Some(link) = self.find_or_open(peer, one.conn, &mut opening) else {
                output.rejected.append(&mut opening.rejected);
                output.send(peer, ServerFrame::Release(one.conn));
                continue;
            };
            // Do not send output of the open twice: `resume` sends all unacknowledged output of this link.
            let own = |(task, frame): &(TaskId, ServerFrame)| {
                *task == peer.task
                    && matches!(frame, ServerFrame::Data(conn, ..) | ServerFrame::Close(conn, _) if *conn == one.conn)
            };
            opening.frames.retain(|frame| !own(frame));
            output.append(opening);
            self.resume(link, peer, one, output);
        }
        for (link, (task, port)) in &self.dials {
            if let (LinkId::Dialed(number), true) = (link, *task == peer.task) {
                output.send(peer, ServerFrame::Dial(ConnId::Outbound(*number), *port));
            }
        }
    }

    /// Resends the unacknowledged output of a link and reports its persisted input.
    fn resume(
        &mut self,
        link: LinkId,
        peer: &Peer,
        conn_state: &ConnState,
        output: &mut LinkOutput,
    ) {
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        let acked = state.ack(conn_state.acked);
        self.subtract_unacked(&peer.task, acked);
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        if state.closed {
            for (seq, item) in &state.unacked {
                output.send(peer, state.frame(*seq, item));
            }
            if state.unacked.is_empty() {
                output.send(peer, ServerFrame::Release(conn_state.conn));
                self.remove(link);
            }
            return;
        }
        // An earlier master answered these reads; they are not in the journal.
        if conn_state.acked.consumed > state.consumed {
            state.skip_to(conn_state.acked.consumed);
        }
        if state.received() < conn_state.buffered_from {
            let why = Rejection::new("bytes acknowledged by an earlier master are lost");
            self.reject(link, why, output);
            return;
        }
        output.send(peer, ServerFrame::Ack(conn_state.conn, state.persisted));
        for (seq, item) in &state.unacked {
            output.send(peer, state.frame(*seq, item));
        }
    }
}
