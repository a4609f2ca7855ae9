//! The master's end of the links of one protocol.
//!
//! Assembles messages from the bytes that agents send, passes them to the protocol and turns its actions into a
//! [`LinkOutput`]. The master's event loop handles outputs in order: it persists the records of an output, and sends
//! frames only when all earlier records are durable. So a new master has every state that a response depended on.
//! Frames go over the session that is attached when the output is produced, or are dropped: the next session resends
//! what is missing.
//!
//! * `input`: bytes of links. `actions`: actions of the protocol, and the ends of links.
//! * `attach`: new links and sessions. `state`: state of a link. `output`: records and frames for the master.

mod actions;
mod attach;
mod input;
mod output;
mod state;

pub use output::{LinkOutput, LinkRecord};

use state::LinkState;
use std::collections::{BTreeMap, BTreeSet};

use ydl_core::{Cluster, TaskId};

use super::frame::{ClientFrame, ConnId, Seq, ServerFrame};
use crate::protocol::{Action, Effects, LinkId, Peer, Protocol, Rejection, RetryTimer};

/// Maximum number of connections of one attempt: more than any framework opens, and few enough to be harmless.
const MAX_CONNECTIONS: usize = 4096;

/// Maximum number of unacknowledged output bytes of a task, over all its links. A short request can have a long
/// response, and a task can have many links.
const MAX_UNACKED_BYTES: usize = 64 << 20;

/// A protocol and its links.
#[derive(Debug)]
pub struct LinkServer {
    protocol: Box<dyn Protocol>,
    links: BTreeMap<LinkId, LinkState>,
    ids: BTreeMap<(TaskId, u32, ConnId), LinkId>,
    /// Requested dials without a result.
    dials: BTreeMap<LinkId, (TaskId, u16)>,
    /// Unacknowledged output bytes of each task.
    unacked: BTreeMap<TaskId, usize>,
    /// The attempt of each task that has sent a frame to this server. Only these are subject to limits: during a replay
    /// nothing is acknowledged, and ends of links may be missing, so limits would reject valid links.
    live: BTreeMap<TaskId, u32>,
    /// Links that may have exceeded the limit of unacknowledged bytes.
    slow: BTreeSet<LinkId>,
    /// The latest ended attempt of each task.
    ended: BTreeMap<TaskId, u32>,
    accepted: u64,
}

impl LinkServer {
    /// Creates a server for a new protocol.
    pub fn new(protocol: Box<dyn Protocol>) -> LinkServer {
        LinkServer {
            protocol,
            links: BTreeMap::new(),
            ids: BTreeMap::new(),
            dials: BTreeMap::new(),
            unacked: BTreeMap::new(),
            live: BTreeMap::new(),
            slow: BTreeSet::new(),
            ended: BTreeMap::new(),
            accepted: 0,
        }
    }

    /// Returns true if the attempt was started for a set of members that has changed since. Call it before
    /// [`attempt_ended`](Self::attempt_ended).
    pub fn is_outdated(&self, peer: &Peer) -> bool {
        !self.has_ended(peer) && self.protocol.is_outdated(&peer.task)
    }

    /// Returns the tasks that waiting programs are waiting for.
    pub fn missing(&self) -> Vec<TaskId> {
        self.protocol.missing()
    }

    /// Replays a record of an earlier master. No action runs again; output that an agent has not acknowledged is sent
    /// when it attaches.
    pub fn replay(&mut self, record: LinkRecord) {
        let mut output = LinkOutput::default();
        match record {
            LinkRecord::Opened(peer, conn) => {
                self.find_or_open(&peer, conn, &mut output);
            }
            LinkRecord::Message(peer, conn, offset, bytes) => {
                let Some(link) = self.find_or_open(&peer, conn, &mut output) else {
                    return;
                };
                if let Some(state) = self.links.get_mut(&link) {
                    state.skip_to(offset);
                }
                self.consume(link, &bytes, &mut output);
            }
            LinkRecord::Closed(peer, conn) => match self.find(&peer, conn) {
                // The agent may not know that its frames arrived, and may resend everything.
                Some(link) if self.push_close(link).is_some() => {
                    self.notify_closed(link, &peer, conn, &mut output);
                }
                _ => self.closed(&peer, conn, &mut output),
            },
            LinkRecord::RetryDue => self.run_retry(&mut output),
        }
    }

    /// Handles a frame from the agent of a task attempt.
    pub fn receive(&mut self, peer: &Peer, frame: ClientFrame) -> LinkOutput {
        let mut output = LinkOutput::default();
        if self.has_ended(peer) {
            return output;
        }
        self.live.insert(peer.task.clone(), peer.attempt);
        match frame {
            ClientFrame::Attach(all) => self.attach(peer, &all, &mut output),
            ClientFrame::Open(conn) => {
                if self.find_or_open(peer, conn, &mut output).is_none() {
                    output.send(peer, ServerFrame::Release(conn));
                }
            }
            ClientFrame::Data(conn, offset, bytes) => {
                self.receive_data(peer, conn, offset, &bytes, &mut output);
            }
            ClientFrame::Ack(conn, seq) => {
                if let Some(link) = self.find(peer, conn) {
                    self.acked(link, seq);
                }
            }
            ClientFrame::Closed(conn, length) => {
                if let Some(link) = self.find(peer, conn)
                    && self.links[&link].received() < length
                {
                    let why = Rejection::new("bytes are missing from the stream");
                    self.reject(link, why, &mut output);
                }
                self.closed(peer, conn, &mut output);
                output.send(peer, ServerFrame::Release(conn));
            }
        }
        self.reject_slow_readers(&mut output);
        output
    }

    /// Handles the end of a task attempt and of all its links. Produces no records: the master has its own, and calls
    /// this again at the same position of a replay. For the same reason no other link is rejected here, which would
    /// need a record; that happens with the next frame.
    pub fn attempt_ended(&mut self, peer: &Peer) -> LinkOutput {
        let mut output = LinkOutput::default();
        if self.has_ended(peer) {
            return output;
        }
        self.ended.insert(peer.task.clone(), peer.attempt);
        let mut effects = Effects::default();
        for link in self.links_of(peer) {
            if !self.remove(link).is_some_and(|state| state.closed) {
                self.protocol.close(link, &mut effects);
            }
        }
        self.dials.retain(|_, (task, _)| *task != peer.task);
        self.protocol.attempt_ended(peer, &mut effects);
        let (_, mut actions) = effects.into_parts();
        // The program cannot be dialed any more.
        actions.retain(|action| !matches!(action, Action::Dial(_, task, _) if *task == peer.task));
        self.apply(actions, None, true, &mut output);
        output
    }

    /// Handles new members of the round. Produces no records, as for the end of an attempt.
    pub fn members_changed(&mut self, members: &Cluster) -> LinkOutput {
        let mut output = LinkOutput::default();
        let mut effects = Effects::default();
        self.protocol.members_changed(members, &mut effects);
        let (_, actions) = effects.into_parts();
        self.apply(actions, None, true, &mut output);
        output
    }

    /// Returns the protocol's retry timer. The master has the clock.
    pub fn retry_timer(&self) -> Option<RetryTimer> {
        self.protocol.retry_timer()
    }

    /// Handles the expiry of a retry timer. Does nothing if the timer has changed meanwhile.
    pub fn retry(&mut self, timer: RetryTimer) -> LinkOutput {
        let mut output = LinkOutput::default();
        if self.retry_timer() == Some(timer) {
            output.records.push(LinkRecord::RetryDue);
            self.run_retry(&mut output);
        }
        output
    }

    fn run_retry(&mut self, output: &mut LinkOutput) {
        let mut effects = Effects::default();
        self.protocol.retry(&mut effects);
        let (_, actions) = effects.into_parts();
        self.apply(actions, None, true, output);
    }

    fn is_live(&self, peer: &Peer) -> bool {
        self.live.get(&peer.task) == Some(&peer.attempt)
    }

    fn has_ended(&self, peer: &Peer) -> bool {
        let ended = self.ended.get(&peer.task);
        ended.is_some_and(|ended| peer.attempt <= *ended)
    }

    fn find(&self, peer: &Peer, conn: ConnId) -> Option<LinkId> {
        let key = (peer.task.clone(), peer.attempt, conn);
        self.ids.get(&key).copied()
    }

    fn links_of(&self, peer: &Peer) -> Vec<LinkId> {
        let from = (peer.task.clone(), peer.attempt, ConnId::Inbound(0));
        let to = (peer.task.clone(), peer.attempt, ConnId::Outbound(u64::MAX));
        self.ids.range(from..=to).map(|(_, link)| *link).collect()
    }

    fn remove(&mut self, link: LinkId) -> Option<LinkState> {
        let state = self.links.remove(&link)?;
        let key = (state.peer.task.clone(), state.peer.attempt, state.conn);
        self.ids.remove(&key);
        self.subtract_unacked(&state.peer.task, state.unacked_bytes);
        Some(state)
    }

    fn subtract_unacked(&mut self, task: &TaskId, bytes: usize) {
        if let Some(all) = self.unacked.get_mut(task) {
            *all -= bytes;
            if *all == 0 {
                self.unacked.remove(task);
            }
        }
    }

    fn acked(&mut self, link: LinkId, seq: Seq) {
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        let (acked, task) = (state.ack(seq), state.peer.task.clone());
        let done = state.closed && state.unacked.is_empty();
        self.subtract_unacked(&task, acked);
        if done {
            self.remove(link);
        }
    }

    /// Handles a link that the program closed, or a dial that failed.
    fn closed(&mut self, peer: &Peer, conn: ConnId, output: &mut LinkOutput) {
        let link = match (self.find(peer, conn), conn) {
            (Some(link), _) => {
                if self.remove(link).is_some_and(|state| state.closed) {
                    return;
                }
                link
            }
            (None, ConnId::Outbound(number)) => {
                let link = LinkId::Dialed(number);
                let requested = self.dials.get(&link);
                if requested.is_none_or(|(task, _)| *task != peer.task) {
                    return;
                }
                self.dials.remove(&link);
                link
            }
            (None, ConnId::Inbound(_)) => return,
        };
        self.notify_closed(link, peer, conn, output);
    }
}
