//! The rendezvous of the job's framework, which its programs reach through their agents.
//!
//! A round has a desk of its own. Agents come with a number for each of their connections to this master: what is
//! to be told to one goes over the connection it has at that moment, or nowhere, because on the next one it is told anew.

use super::inbox::Answer;
use crate::{talk::LINKS_BYTES_MAX, wire::request::Reply};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use tokio::sync::oneshot;
use ydl_core::{Cluster, ContainerId, Job, Run, TaskId};
use ydl_rendezvous::{Desk, Down, Kept, Peer, Up, Work, frames::Bytes};

/// What waits for an agent that does not listen; it is told everything anew when it comes again.
const WAITING_MAX: usize = 128 << 20;

/// Of those that are waited for, so many are named.
const NAMED_MAX: usize = 4;

/// A framework's rendezvous, in the newest round that anybody has spoken of.
#[derive(Debug, Default)]
pub(super) struct Links {
    round: u32,
    desk: Option<Desk>,
    /// Who is in that round by now, where that has changed since it began.
    members: Option<Arc<Cluster>>,
    lines: BTreeMap<TaskId, Line>,
    /// Tasks of which something was refused: it is said once.
    refused: BTreeSet<TaskId>,
}

/// An agent's connection.
#[derive(Debug)]
struct Line {
    container: ContainerId,
    number: u64,
    waiting: Vec<u8>,
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
    down: Down,
}

impl Links {
    /// What was written down.
    pub(super) fn replay(&mut self, job: &Job, round: u32, kept: Kept) {
        if round > self.round {
            let task = match &kept {
                Kept::Opened(peer, _) | Kept::Message(peer, ..) | Kept::Closed(peer, _) => {
                    &peer.task
                }
            };
            let mut runs = job.containers().filter_map(|it| job.run_of(it));
            let run = runs.find(|run| run.task == *task && run.cluster.round == round);
            let Some(run) = run else {
                return;
            };
            self.desk(job, &run);
        }
        if let Some(desk) = self.desk.as_mut().filter(|_| round == self.round) {
            desk.replay(kept);
        }
    }

    /// The newest round that anybody has spoken of: what is kept belongs to it.
    pub(super) fn round(&self) -> u32 {
        self.round
    }

    /// The members of a round have changed, and those who stay run on.
    pub(super) fn changed(&mut self, cluster: &Arc<Cluster>) -> Vec<Passed> {
        if cluster.round >= self.round {
            self.members = Some(cluster.clone());
        }
        let desk = self.desk.as_mut().filter(|_| cluster.round == self.round);
        match desk.map(|desk| desk.told(cluster)) {
            Some(work) => self.pass(work),
            None => Vec::new(),
        }
    }

    /// What an agent says: what is to be written down of it, and then to be told.
    pub(super) fn hear(
        &mut self,
        job: &Job,
        container: &ContainerId,
        at: Connection,
        ups: Vec<Up>,
    ) -> Result<(Vec<Kept>, Vec<Passed>), Reply> {
        let run = job.run_of(container).filter(|run| run.round == at.round);
        let run = run.ok_or_else(over)?;
        let peer = peer(&run);
        if self.desk(job, &run).is_none() {
            return Err(over());
        }
        if let Some(Up::Attach(_)) = ups.first() {
            let line = Line {
                container: container.clone(),
                number: at.number,
                waiting: Vec::new(),
                listening: None,
            };
            self.lines.insert(peer.task.clone(), line);
        }
        self.line(&peer.task, container, at)?;
        let (mut keep, mut pass) = (Vec::new(), Vec::new());
        for up in ups {
            let Some(desk) = &mut self.desk else { break };
            let mut work = desk.hear(&peer, up);
            keep.append(&mut work.keep);
            pass.append(&mut self.pass(work));
        }
        Ok((keep, pass))
    }

    /// An agent waits for what it is to be told.
    pub(super) fn listen(
        &mut self,
        job: &Job,
        container: &ContainerId,
        at: Connection,
        answer: oneshot::Sender<Answer>,
    ) -> Result<(), (oneshot::Sender<Answer>, Reply)> {
        let Some(task) = job.task_of(container) else {
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

    /// Tells an agent what it was to be told, now that what led to it is safe.
    pub(super) fn deliver(&mut self, passed: &Passed) {
        let line = self.lines.get_mut(&passed.task);
        let Some(line) = line.filter(|line| line.number == passed.number) else {
            return;
        };
        passed.down.write(&mut line.waiting);
        if line.waiting.len() > WAITING_MAX {
            self.lines.remove(&passed.task);
            return;
        }
        line.tell();
    }

    /// An attempt is over.
    pub(super) fn ended(&mut self, run: &Run) -> Vec<Passed> {
        if run.cluster.round != self.round {
            return Vec::new();
        }
        let Some(desk) = &mut self.desk else {
            return Vec::new();
        };
        let work = desk.ended(&peer(run));
        self.lines.remove(&run.task);
        self.pass(work)
    }

    /// Whom programs wait for, in words.
    pub(super) fn why(&self) -> Option<String> {
        let missing = self.desk.as_ref()?.missing();
        let named: Vec<_> = missing
            .iter()
            .take(NAMED_MAX)
            .map(TaskId::to_string)
            .collect();
        let more = missing.len().saturating_sub(NAMED_MAX);
        match (named.is_empty(), more) {
            (true, _) => None,
            (false, 0) => Some(format!("programs wait for {}", named.join(", "))),
            (false, more) => Some(format!(
                "programs wait for {} and {more} more",
                named.join(", ")
            )),
        }
    }

    /// The desk of that round. A newer round ends an older one; nothing of an older one counts. Who has joined a round
    /// that goes on has a later number of its own, and its cluster that of the round.
    fn desk(&mut self, job: &Job, run: &Run) -> Option<&mut Desk> {
        let round = run.cluster.round;
        if round > self.round {
            let members = self.members.take().filter(|members| members.round == round);
            let cluster = members.as_ref().unwrap_or(&run.cluster);
            let protocol = ydl_rendezvous::serve(job.spec().framework, cluster);
            *self = Links {
                round,
                desk: protocol.map(Desk::new),
                members,
                ..Links::default()
            };
        }
        self.desk.as_mut().filter(|_| round == self.round)
    }

    fn line(
        &mut self,
        task: &TaskId,
        container: &ContainerId,
        at: Connection,
    ) -> Result<&mut Line, Reply> {
        let line = self.lines.get_mut(task);
        line.filter(|line| line.number == at.number && line.container == *container)
            .ok_or_else(|| Reply::error(409, "this connection is not known here", None))
    }

    fn pass(&mut self, work: Work) -> Vec<Passed> {
        for line in work.say {
            tracing::info!("rendezvous: {line}");
        }
        for (peer, why) in work.refused {
            if self.refused.insert(peer.task.clone()) {
                tracing::warn!("a connection of `{}` was ended: {why}", peer.task);
            }
        }
        let connected = |(task, down): (TaskId, Down)| {
            let number = self.lines.get(&task)?.number;
            Some(Passed { task, number, down })
        };
        work.down.into_iter().filter_map(connected).collect()
    }
}

impl Line {
    fn tell(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        if let Some(answer) = self.listening.take() {
            let rest = split(&mut self.waiting);
            let reply = Reply::new("application/octet-stream", rest);
            // If this does not arrive, the connection is broken, and the agent comes with another.
            let _ = answer.send(reply.into());
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
    while Down::read(&mut rest).is_ok() {
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
    Peer {
        task: run.task.clone(),
        attempt: run.attempt,
        host: host.into(),
    }
}

fn over() -> Reply {
    Reply::error(410, "this round is over", None)
}
