//! Rendezvous of the job's framework, which programs reach through their agents.
//!
//! Each round has its own server. Agents use `/v1/links` in numbered sessions. A frame goes over the session that
//! its agent has at that moment, or is dropped: in its next session the agent receives everything again.

use super::inbox::MasterResponse;
use std::collections::{BTreeMap, BTreeSet};
use tokio::{sync::oneshot, time::Instant};
use ydl_core::{AttemptRun, Cluster, ContainerId, Framework, Job, TaskId};
use ydl_net::request::Reply;
use ydl_proto::messages::LINKS_BYTES_MAX;
use ydl_rendezvous::{
    ClientFrame, LinkOutput, LinkRecord, LinkServer, Peer, RetryTimer, ServerFrame,
    link::codec::Codec,
};

/// Maximum size of frames for an agent that does not fetch them. It starts a new session and receives everything again.
const PENDING_MAX: usize = 128 << 20;

/// Rendezvous of the latest round.
#[derive(Debug, Default)]
pub(super) struct RendezvousLinks {
    round: u32,
    server: Option<LinkServer>,
    sessions: BTreeMap<TaskId, AgentSession>,
    /// Tasks with new frames since the last flush.
    dirty: BTreeSet<TaskId>,
    /// Tasks with a rejected connection of their program: each is logged once.
    rejected: BTreeSet<TaskId>,
    /// Time of the next retry, unless programs react before. A new master starts its timers again.
    retry: Option<(RetryTimer, Instant)>,
}

/// Session of an agent.
#[derive(Debug)]
struct AgentSession {
    container: ContainerId,
    round: u32,
    number: u64,
    /// Encoded frames that wait for a request to answer.
    pending: Vec<u8>,
    /// Number of responses with frames so far.
    sent: u64,
    /// GET of the agent that waits for frames.
    waiter: Option<oneshot::Sender<MasterResponse>>,
}

/// Identifies a session of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionId {
    /// Round of the program that uses the links.
    pub round: u32,
    /// Number chosen by the agent, ascending.
    pub number: u64,
}

/// Frame for an agent, bound to a session.
#[derive(Debug)]
pub(super) struct OutgoingFrame {
    task: TaskId,
    /// Number of the session.
    number: u64,
    frame: ServerFrame,
}

impl RendezvousLinks {
    /// Starts a round, which replaces an earlier one. The server is created here and not by the first session:
    /// members may change before, and sessions are not journaled. Tasks that join a running
    /// round have a later number of their own, and its cluster.
    pub(super) fn start_round(&mut self, framework: Framework, cluster: &Cluster) {
        if cluster.round > self.round {
            *self = RendezvousLinks {
                round: cluster.round,
                server: ydl_rendezvous::protocol_for(framework, cluster).map(LinkServer::new),
                ..RendezvousLinks::default()
            };
        }
    }

    /// Replays a journaled record.
    pub(super) fn replay(&mut self, round: u32, record: LinkRecord) {
        if let Some(server) = self.server.as_mut().filter(|_| round == self.round) {
            server.replay(record);
        }
    }

    /// Returns the latest round, to which new records belong.
    pub(super) fn round(&self) -> u32 {
        self.round
    }

    /// Handles changed members of a running round.
    pub(super) fn members_changed(&mut self, cluster: &Cluster) -> Vec<OutgoingFrame> {
        let server = self.server.as_mut().filter(|_| cluster.round == self.round);
        match server.map(|server| server.members_changed(cluster)) {
            Some(output) => self.outgoing(output),
            None => Vec::new(),
        }
    }

    /// Handles frames of an agent. Returns records for the journal and the resulting frames.
    pub(super) fn receive(
        &mut self,
        job: &Job,
        container: &ContainerId,
        session_id: SessionId,
        frames: Vec<ClientFrame>,
    ) -> Result<(Vec<LinkRecord>, Vec<OutgoingFrame>), Reply> {
        let run = job.run_in(container).filter(|run| run.round == session_id.round);
        let run = run.ok_or_else(round_over)?;
        let peer = peer(&run);
        // A sidecar is in no round, whatever round it was started in.
        let is_in = run.cluster.endpoint(&run.task).is_some();
        if self.server.is_none() || run.cluster.round != self.round || !is_in {
            return Err(round_over());
        }
        if let Some(ClientFrame::Attach(_)) = frames.first() {
            if let Some(session) = self.sessions.get(&peer.task)
                && (&session.container, session.round) == (container, session_id.round)
                && session_id.number < session.number
            {
                // The agent replaced this session by a newer one, which this frame would end.
                return Err(unknown_session());
            }
            let session = AgentSession {
                container: container.clone(),
                round: session_id.round,
                number: session_id.number,
                pending: Vec::new(),
                sent: 0,
                waiter: None,
            };
            self.sessions.insert(peer.task.clone(), session);
        }
        self.session(&peer.task, container, session_id)?;
        let (mut records, mut frames_out) = (Vec::new(), Vec::new());
        for frame in frames {
            let Some(server) = &mut self.server else { break };
            let mut output = server.receive(&peer, frame);
            records.append(&mut output.records);
            frames_out.append(&mut self.outgoing(output));
        }
        Ok((records, frames_out))
    }

    /// Repeats frames that programs did not react to, when it is time. Returns records for the journal and the
    /// frames.
    pub(super) fn retry_due(&mut self, now: Instant) -> (Vec<LinkRecord>, Vec<OutgoingFrame>) {
        let Some(server) = &mut self.server else {
            return Default::default();
        };
        let Some(retry) = server.retry_timer() else {
            self.retry = None;
            return Default::default();
        };
        match self.retry {
            Some((known, at)) if known == retry && now >= at => {}
            Some((known, _)) if known == retry => return Default::default(),
            _ => {
                self.retry = Some((retry, now + retry.delay));
                return Default::default();
            }
        }
        self.retry = None;
        let mut output = server.retry(retry);
        let records = std::mem::take(&mut output.records);
        (records, self.outgoing(output))
    }

    /// Registers the GET of an agent that waits for frames.
    pub(super) fn listen(
        &mut self,
        job: &Job,
        container: &ContainerId,
        session_id: SessionId,
        respond_to: oneshot::Sender<MasterResponse>,
    ) -> Result<(), (oneshot::Sender<MasterResponse>, Reply)> {
        let Some(task) = job.task_in_container(container) else {
            return Err((respond_to, round_over()));
        };
        match self.session(&task, container, session_id) {
            Ok(session) => {
                session.waiter = Some(respond_to);
                session.flush();
                Ok(())
            }
            Err(reply) => Err((respond_to, reply)),
        }
    }

    /// Queues a frame for its agent. Its cause must be durable.
    pub(super) fn enqueue(&mut self, outgoing: &OutgoingFrame) {
        let session = self.sessions.get_mut(&outgoing.task);
        let Some(session) = session.filter(|session| session.number == outgoing.number) else {
            return;
        };
        outgoing.frame.encode(&mut session.pending);
        if session.pending.len() > PENDING_MAX {
            self.sessions.remove(&outgoing.task);
            return;
        }
        self.dirty.insert(outgoing.task.clone());
    }

    /// Answers the POST of an agent, whose frames must be durable, with the frames that wait for it.
    pub(super) fn respond(
        &mut self,
        task: &TaskId,
        number: u64,
        respond_to: oneshot::Sender<MasterResponse>,
    ) {
        let session = self.sessions.get_mut(task);
        match session.filter(|session| session.number == number) {
            Some(session) => session.respond(respond_to),
            // The attempt is over, or the agent has another session.
            None => drop(respond_to.send(Reply::empty().into())),
        }
    }

    /// Sends pending frames to all waiting agents.
    pub(super) fn flush(&mut self) {
        for task in std::mem::take(&mut self.dirty) {
            if let Some(session) = self.sessions.get_mut(&task) {
                session.flush();
            }
        }
    }

    /// Returns true if the members of a round changed before this attempt could join. Ask before reporting its
    /// end.
    pub(super) fn is_outdated(&self, run: &AttemptRun) -> bool {
        let server = self.server.as_ref();
        let server = server.filter(|_| run.cluster.round == self.round);
        server.is_some_and(|server| server.is_outdated(&peer(run)))
    }

    /// Handles the end of an attempt.
    pub(super) fn attempt_ended(&mut self, run: &AttemptRun) -> Vec<OutgoingFrame> {
        if run.cluster.round != self.round {
            return Vec::new();
        }
        let Some(server) = &mut self.server else {
            return Vec::new();
        };
        let output = server.attempt_ended(&peer(run));
        self.sessions.remove(&run.task);
        self.outgoing(output)
    }

    /// Returns the tasks that programs wait for.
    pub(super) fn missing(&self) -> Vec<TaskId> {
        let server = self.server.as_ref();
        server.map(|server| server.missing()).unwrap_or_default()
    }

    fn session(
        &mut self,
        task: &TaskId,
        container: &ContainerId,
        session_id: SessionId,
    ) -> Result<&mut AgentSession, Reply> {
        let session = self.sessions.get_mut(task);
        session
            .filter(|session| {
                session.number == session_id.number && session.container == *container
            })
            .ok_or_else(unknown_session)
    }

    fn outgoing(&mut self, output: LinkOutput) -> Vec<OutgoingFrame> {
        for line in output.log {
            tracing::info!("rendezvous: {line}");
        }
        for (peer, why) in output.rejected {
            if self.rejected.insert(peer.task.clone()) {
                tracing::warn!("closed a connection of `{}`: {why}", peer.task);
            }
        }
        let connected = |(task, frame): (TaskId, ServerFrame)| {
            let number = self.sessions.get(&task)?.number;
            Some(OutgoingFrame { task, number, frame })
        };
        output.frames.into_iter().filter_map(connected).collect()
    }
}

impl AgentSession {
    fn flush(&mut self) {
        if !self.pending.is_empty()
            && let Some(respond_to) = self.waiter.take()
        {
            self.respond(respond_to);
        }
    }

    /// Answers with pending frames. If the response is lost, the agent starts a new session.
    fn respond(&mut self, respond_to: oneshot::Sender<MasterResponse>) {
        if self.pending.is_empty() {
            let _ = respond_to.send(Reply::empty().into());
            return;
        }
        let frames = split(&mut self.pending);
        self.sent += 1;
        let body = [&self.sent.to_be_bytes(), &frames[..]].concat();
        let reply = Reply::new("application/octet-stream", body);
        if respond_to.send(reply.into()).is_err() {
            // The agent no longer waits: its next request gets the frames.
            self.sent -= 1;
            self.pending.splice(..0, frames);
        }
    }
}

/// Takes whole frames up to the size limit of a response, at least one.
fn split(pending: &mut Vec<u8>) -> Vec<u8> {
    if pending.len() <= LINKS_BYTES_MAX {
        return std::mem::take(pending);
    }
    let mut rest = &pending[..];
    let mut end = 0;
    while ServerFrame::decode(&mut rest).is_ok() {
        let next = pending.len() - rest.len();
        if end > 0 && next > LINKS_BYTES_MAX {
            break;
        }
        end = next;
    }
    let later = pending.split_off(end);
    std::mem::replace(pending, later)
}

/// Returns the program's peer identity.
fn peer(run: &AttemptRun) -> Peer {
    let endpoint = run.cluster.endpoint(&run.task);
    let host = endpoint.map_or("127.0.0.1", |endpoint| endpoint.host.as_str());
    Peer { task: run.task.clone(), attempt: run.attempt, host: host.into() }
}

fn unknown_session() -> Reply {
    Reply::error(409, "unknown session", None)
}

fn round_over() -> Reply {
    Reply::error(410, "this round is over", None)
}

#[cfg(test)]
mod tests;
