//! Rendezvous of the job's framework, which programs reach through their agents.
//!
//! Each round has its own server. Agents number their connections to this master. A frame goes over the
//! connection that the agent has at that moment, or is dropped: on its next connection the agent receives
//! everything again.

use super::inbox::Answer;
use std::collections::{BTreeMap, BTreeSet};
use tokio::{sync::oneshot, time::Instant};
use ydl_core::{Cluster, ContainerId, Framework, Job, Run, TaskId};
use ydl_net::request::Reply;
use ydl_proto::messages::LINKS_BYTES_MAX;
use ydl_rendezvous::{
    ClientFrame, LinkOutput, LinkRecord, LinkServer, Peer, RetryTimer, ServerFrame,
    link::codec::Codec,
};

/// Maximum size of frames for an agent that does not fetch them. It reconnects and receives everything again.
const WAITING_MAX: usize = 128 << 20;

/// Rendezvous of the latest round.
#[derive(Debug, Default)]
pub(super) struct Links {
    round: u32,
    server: Option<LinkServer>,
    lines: BTreeMap<TaskId, Line>,
    /// Tasks with new frames since the last flush.
    stirred: BTreeSet<TaskId>,
    /// Tasks with a rejected connection: each is logged once.
    refused: BTreeSet<TaskId>,
    /// Time of the next retry, unless programs react before. A new master starts its timers again.
    reminder: Option<(RetryTimer, Instant)>,
}

/// Connection of an agent.
#[derive(Debug)]
struct Line {
    container: ContainerId,
    round: u32,
    number: u64,
    waiting: Vec<u8>,
    /// Number of responses with frames so far.
    told: u64,
    listening: Option<oneshot::Sender<Answer>>,
}

/// Identifies a connection of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Round of the program that uses the links.
    pub round: u32,
    /// Number chosen by the agent, ascending.
    pub number: u64,
}

/// Frame for an agent, bound to a connection.
#[derive(Debug)]
pub(super) struct Passed {
    task: TaskId,
    number: u64,
    down: ServerFrame,
}

impl Links {
    /// Starts a round, which replaces an earlier one. The server is created here and not on the first
    /// connection: members may change before, and connections are not journaled. Tasks that join a running
    /// round have a later number of their own, and its cluster.
    pub(super) fn begun(&mut self, framework: Framework, cluster: &Cluster) {
        if cluster.round > self.round {
            *self = Links {
                round: cluster.round,
                server: ydl_rendezvous::protocol_for(framework, cluster).map(LinkServer::new),
                ..Links::default()
            };
        }
    }

    /// Replays a journaled record.
    pub(super) fn replay(&mut self, round: u32, kept: LinkRecord) {
        if let Some(server) = self.server.as_mut().filter(|_| round == self.round) {
            server.replay(kept);
        }
    }

    /// Returns the latest round, to which new records belong.
    pub(super) fn round(&self) -> u32 {
        self.round
    }

    /// Handles changed members of a running round.
    pub(super) fn changed(&mut self, cluster: &Cluster) -> Vec<Passed> {
        let server = self.server.as_mut().filter(|_| cluster.round == self.round);
        match server.map(|server| server.members_changed(cluster)) {
            Some(output) => self.pass(output),
            None => Vec::new(),
        }
    }

    /// Handles frames of an agent. Returns records for the journal and the resulting frames.
    pub(super) fn hear(
        &mut self,
        job: &Job,
        container: &ContainerId,
        at: Connection,
        ups: Vec<ClientFrame>,
    ) -> Result<(Vec<LinkRecord>, Vec<Passed>), Reply> {
        let run = job.run_in(container).filter(|run| run.round == at.round);
        let run = run.ok_or_else(over)?;
        let peer = peer(&run);
        // A sidecar is in no round, whatever round it was started in.
        let is_in = run.cluster.endpoint(&run.task).is_some();
        if self.server.is_none() || run.cluster.round != self.round || !is_in {
            return Err(over());
        }
        if let Some(ClientFrame::Attach(_)) = ups.first() {
            if let Some(line) = self.lines.get(&peer.task)
                && (&line.container, line.round) == (container, at.round)
                && at.number < line.number
            {
                // The agent replaced this connection by a newer one, which this frame would end.
                return Err(unknown());
            }
            let line = Line {
                container: container.clone(),
                round: at.round,
                number: at.number,
                waiting: Vec::new(),
                told: 0,
                listening: None,
            };
            self.lines.insert(peer.task.clone(), line);
        }
        self.line(&peer.task, container, at)?;
        let (mut keep, mut pass) = (Vec::new(), Vec::new());
        for up in ups {
            let Some(server) = &mut self.server else { break };
            let mut output = server.receive(&peer, up);
            keep.append(&mut output.records);
            pass.append(&mut self.pass(output));
        }
        Ok((keep, pass))
    }

    /// Repeats frames that programs did not react to, when it is time. Returns records for the journal and the
    /// frames.
    pub(super) fn remind(&mut self, now: Instant) -> (Vec<LinkRecord>, Vec<Passed>) {
        let Some(server) = &mut self.server else {
            return Default::default();
        };
        let Some(reminder) = server.retry_timer() else {
            self.reminder = None;
            return Default::default();
        };
        match self.reminder {
            Some((known, at)) if known == reminder && now >= at => {}
            Some((known, _)) if known == reminder => return Default::default(),
            _ => {
                self.reminder = Some((reminder, now + reminder.delay));
                return Default::default();
            }
        }
        self.reminder = None;
        let mut output = server.retry(reminder);
        let keep = std::mem::take(&mut output.records);
        (keep, self.pass(output))
    }

    /// Registers an agent that waits for frames.
    pub(super) fn listen(
        &mut self,
        job: &Job,
        container: &ContainerId,
        at: Connection,
        answer: oneshot::Sender<Answer>,
    ) -> Result<(), (oneshot::Sender<Answer>, Reply)> {
        let Some(task) = job.task_in_container(container) else {
            return Err((answer, over()));
        };
        match self.line(&task, container, at) {
            Ok(line) => {
                line.listening = Some(answer);
                line.tell();
                Ok(())
            }
            Err(reply) => Err((answer, reply)),
        }
    }

    /// Queues a frame for its agent, once its cause is durable.
    pub(super) fn deliver(&mut self, passed: &Passed) {
        let line = self.lines.get_mut(&passed.task);
        let Some(line) = line.filter(|line| line.number == passed.number) else {
            return;
        };
        passed.down.encode(&mut line.waiting);
        if line.waiting.len() > WAITING_MAX {
            self.lines.remove(&passed.task);
            return;
        }
        self.stirred.insert(passed.task.clone());
    }

    /// Answers an agent after its frames became durable, with the frames that wait for it.
    pub(super) fn answer(&mut self, task: &TaskId, number: u64, answer: oneshot::Sender<Answer>) {
        let line = self.lines.get_mut(task);
        match line.filter(|line| line.number == number) {
            Some(line) => line.answer(answer),
            // The attempt is over, or the agent reconnected.
            None => drop(answer.send(Reply::empty().into())),
        }
    }

    /// Sends pending frames to all waiting agents.
    pub(super) fn tell(&mut self) {
        for task in std::mem::take(&mut self.stirred) {
            if let Some(line) = self.lines.get_mut(&task) {
                line.tell();
            }
        }
    }

    /// Returns true if the members of a round changed before this attempt could join. Ask before reporting its
    /// end.
    pub(super) fn is_outdated(&self, run: &Run) -> bool {
        let server = self.server.as_ref();
        let server = server.filter(|_| run.cluster.round == self.round);
        server.is_some_and(|server| server.is_outdated(&peer(run)))
    }

    /// Handles the end of an attempt.
    pub(super) fn ended(&mut self, run: &Run) -> Vec<Passed> {
        if run.cluster.round != self.round {
            return Vec::new();
        }
        let Some(server) = &mut self.server else {
            return Vec::new();
        };
        let output = server.attempt_ended(&peer(run));
        self.lines.remove(&run.task);
        self.pass(output)
    }

    /// Returns the tasks that programs wait for.
    pub(super) fn missing(&self) -> Vec<TaskId> {
        let server = self.server.as_ref();
        server.map(|server| server.missing()).unwrap_or_default()
    }

    fn line(
        &mut self,
        task: &TaskId,
        container: &ContainerId,
        at: Connection,
    ) -> Result<&mut Line, Reply> {
        let line = self.lines.get_mut(task);
        line.filter(|line| line.number == at.number && line.container == *container)
            .ok_or_else(unknown)
    }

    fn pass(&mut self, output: LinkOutput) -> Vec<Passed> {
        for line in output.log {
            tracing::info!("rendezvous: {line}");
        }
        for (peer, why) in output.rejected {
            if self.refused.insert(peer.task.clone()) {
                tracing::warn!("a connection of `{}` was ended: {why}", peer.task);
            }
        }
        let connected = |(task, down): (TaskId, ServerFrame)| {
            let number = self.lines.get(&task)?.number;
            Some(Passed { task, number, down })
        };
        output.frames.into_iter().filter_map(connected).collect()
    }
}

impl Line {
    fn tell(&mut self) {
        if !self.waiting.is_empty()
            && let Some(answer) = self.listening.take()
        {
            self.answer(answer);
        }
    }

    /// Answers with pending frames. If the response is lost, the connection is broken and the agent reconnects.
    fn answer(&mut self, answer: oneshot::Sender<Answer>) {
        if self.waiting.is_empty() {
            let _ = answer.send(Reply::empty().into());
            return;
        }
        let frames = split(&mut self.waiting);
        self.told += 1;
        let body = [&self.told.to_be_bytes(), &frames[..]].concat();
        let reply = Reply::new("application/octet-stream", body);
        if answer.send(reply.into()).is_err() {
            // The agent no longer waits: its next request gets the frames.
            self.told -= 1;
            self.waiting.splice(..0, frames);
        }
    }
}

/// Takes whole frames up to the size limit of a response, at least one.
fn split(waiting: &mut Vec<u8>) -> Vec<u8> {
    if waiting.len() <= LINKS_BYTES_MAX {
        return std::mem::take(waiting);
    }
    let mut rest = &waiting[..];
    let mut end = 0;
    while ServerFrame::decode(&mut rest).is_ok() {
        let next = waiting.len() - rest.len();
        if end > 0 && next > LINKS_BYTES_MAX {
            break;
        }
        end = next;
    }
    let later = waiting.split_off(end);
    std::mem::replace(waiting, later)
}

/// Returns the program's peer identity.
fn peer(run: &Run) -> Peer {
    let endpoint = run.cluster.endpoint(&run.task);
    let host = endpoint.map_or("127.0.0.1", |endpoint| endpoint.host.as_str());
    Peer { task: run.task.clone(), attempt: run.attempt, host: host.into() }
}

fn unknown() -> Reply {
    Reply::error(409, "this connection is not known here", None)
}

fn over() -> Reply {
    Reply::error(410, "this round is over", None)
}

#[cfg(test)]
mod tests;
