//! The rendezvous of the job's framework, which its programs reach through their agents.
//!
//! A round has a server of its own. Agents come with a number for each of their connections to this master: what is
//! to be told to one goes over the connection it has at that moment, or nowhere, because on the next one it is told anew.

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

/// What waits for an agent that does not listen; it is told everything anew when it comes again.
const WAITING_MAX: usize = 128 << 20;

/// A framework's rendezvous, in the newest round.
#[derive(Debug, Default)]
pub(super) struct Links {
    round: u32,
    server: Option<LinkServer>,
    lines: BTreeMap<TaskId, Line>,
    /// Those for whom something waits since they were last told.
    stirred: BTreeSet<TaskId>,
    /// Tasks of which something was refused: it is said once.
    refused: BTreeSet<TaskId>,
    /// What is said again at that moment unless it is heeded before. A new master counts from its own beginning.
    reminder: Option<(RetryTimer, Instant)>,
}

/// An agent's connection.
#[derive(Debug)]
struct Line {
    container: ContainerId,
    round: u32,
    number: u64,
    waiting: Vec<u8>,
    /// So many answers with something in them were given.
    told: u64,
    listening: Option<oneshot::Sender<Answer>>,
}

/// Which connection of an agent it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The round of the program whose links they are.
    pub round: u32,
    /// Chosen by the agent, ascending.
    pub number: u64,
}

/// Something to be told to an agent over that connection.
#[derive(Debug)]
pub(super) struct Passed {
    task: TaskId,
    number: u64,
    down: ServerFrame,
}

impl Links {
    /// A round has begun. A newer one ends an older one, and nothing of an older one counts. Its server is made at this
    /// moment, not when the first of its agents comes: who is in it may change before, and agents' coming is not written
    /// down. Who joins a round that goes on has a later number of its own, and its cluster that of the round.
    pub(super) fn begun(&mut self, framework: Framework, cluster: &Cluster) {
        if cluster.round > self.round {
            *self = Links {
                round: cluster.round,
                server: ydl_rendezvous::protocol_for(framework, cluster).map(LinkServer::new),
                ..Links::default()
            };
        }
    }

    /// What was written down.
    pub(super) fn replay(&mut self, round: u32, kept: LinkRecord) {
        if let Some(server) = self.server.as_mut().filter(|_| round == self.round) {
            server.replay(kept);
        }
    }

    /// The newest round: what is kept belongs to it.
    pub(super) fn round(&self) -> u32 {
        self.round
    }

    /// The members of a round have changed, and those who stay run on.
    pub(super) fn changed(&mut self, cluster: &Cluster) -> Vec<Passed> {
        let server = self.server.as_mut().filter(|_| cluster.round == self.round);
        match server.map(|server| server.members_changed(cluster)) {
            Some(output) => self.pass(output),
            None => Vec::new(),
        }
    }

    /// What an agent says: what is to be written down of it, and then to be told.
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
        // What stands beside the job is in no round, whatever round there was when it was started.
        let is_in = run.cluster.endpoint(&run.task).is_some();
        if self.server.is_none() || run.cluster.round != self.round || !is_in {
            return Err(over());
        }
        if let Some(ClientFrame::Attach(_)) = ups.first() {
            if let Some(line) = self.lines.get(&peer.task)
                && (&line.container, line.round) == (container, at.round)
                && at.number < line.number
            {
                // The agent has given it up for a newer one, which this would end.
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

    /// What programs have not heeded is said again when it is time: what is to be written down, and then to be told.
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

    /// An agent waits for what it is to be told.
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

    /// Something that an agent is to be told, now that what led to it is safe.
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

    /// What an agent said is safe, and it is told so, with what waits for it.
    pub(super) fn answer(&mut self, task: &TaskId, number: u64, answer: oneshot::Sender<Answer>) {
        let line = self.lines.get_mut(task);
        match line.filter(|line| line.number == number) {
            Some(line) => line.answer(answer),
            // Its attempt is over, or it has come with another connection.
            None => drop(answer.send(Reply::empty().into())),
        }
    }

    /// Tells all who listen what waits for them.
    pub(super) fn tell(&mut self) {
        for task in std::mem::take(&mut self.stirred) {
            if let Some(line) = self.lines.get_mut(&task) {
                line.tell();
            }
        }
    }

    /// Whether the members of a round had changed before an attempt that was started for them could join. To be asked before
    /// its end is told.
    pub(super) fn is_outdated(&self, run: &Run) -> bool {
        let server = self.server.as_ref();
        let server = server.filter(|_| run.cluster.round == self.round);
        server.is_some_and(|server| server.is_outdated(&peer(run)))
    }

    /// An attempt is over.
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

    /// Whom programs wait for, if they do.
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

    /// Answers with what waits. If that is sent and does not arrive, the connection is broken, and the agent comes with
    /// another.
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
            // Nobody waits for it any more, and who listens next is told.
            self.told -= 1;
            self.waiting.splice(..0, frames);
        }
    }
}

/// As many whole frames as one answer carries: all, unless that is too much.
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

/// Whose program it is, as others know it.
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
