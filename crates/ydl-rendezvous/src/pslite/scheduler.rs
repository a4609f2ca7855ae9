//! The scheduler of one round.
//!
//! Who somebody is, is known from his agent: `worker:3` is rank 3 and number 15 whatever he says, in which order they
//! come, and how addresses sort. What he says is held against it, and a link that says otherwise is ended.
//!
//! The address handed out is the one announced, and must be that of the node. A node looks for itself in the list by
//! the host and port it announced, and listens on no other address, so a list with another one would leave it, or those
//! who connect to it, waiting for ever. ydl sets `DMLC_NODE_HOST` to the node's address; a program that announces
//! something else has overridden it, or is not what it seems.

use std::{collections::BTreeMap, net::IpAddr};

use ydl_core::TaskId;

use super::{
    members::{PsMember, PsMembers, place},
    meta::{EMPTY, PsCommand, PsMeta, PsNode},
};
use crate::{
    Effects, LinkId, Peer, Protocol, Rejection,
    zmtp::{self, SocketType, ZmtpEvent, ZmtpSession},
};

/// Nodes send nothing longer than a few hundred bytes to a scheduler.
const MESSAGE_MAX: usize = 4096;

/// ps-lite's scheduler for so many workers and servers.
#[derive(Debug)]
pub struct PsScheduler {
    members: PsMembers,
    lines: BTreeMap<LinkId, PsLink>,
    /// The attempt below which nothing of a task counts any more.
    current: BTreeMap<TaskId, u32>,
    dialed: u64,
}

#[derive(Debug)]
struct PsLink {
    session: ZmtpSession,
    /// Who speaks on a link that was accepted; `None` on one that was dialed, where nothing is said after READY.
    peer: Option<Peer>,
}

impl PsScheduler {
    /// Nobody is there yet.
    pub fn new(workers: u32, servers: u32) -> PsScheduler {
        PsScheduler {
            members: PsMembers::new(workers, servers),
            lines: BTreeMap::new(),
            current: BTreeMap::new(),
            dialed: 0,
        }
    }

    fn check(&self, peer: &Peer) -> Result<(), Rejection> {
        let task = &peer.task;
        if !self.members.expects(task) {
            let what = format!("{task} is neither a server nor a worker of this round");
            return Err(Rejection::new(what));
        }
        if self.current.get(task).is_some_and(|current| peer.attempt < *current) {
            let what = format!("attempt {} of {task} has ended", peer.attempt);
            return Err(Rejection::new(what));
        }
        Ok(())
    }

    fn on_message(
        &mut self,
        peer: &Peer,
        frames: &[&[u8]],
        effects: &mut Effects,
    ) -> Result<(), Rejection> {
        let task = &peer.task;
        let meta = PsMeta::read(frames.first().copied().unwrap_or_default())?;
        let Some(control) = &meta.control else {
            let what = format!("{task} sent data to the scheduler");
            return Err(Rejection::new(what));
        };
        match control.command {
            PsCommand::AddNode => {
                let [node] = &control.nodes[..] else {
                    let what =
                        format!("{task} registered {} nodes, expected 1", control.nodes.len());
                    return Err(Rejection::new(what));
                };
                self.on_announced(peer, node, effects)
            }
            PsCommand::Barrier if meta.request => {
                self.registered(peer)?;
                let echo = (meta.app, meta.customer);
                self.members.reach(task, control.group, echo, effects)?;
                effects.persist();
                Ok(())
            }
            PsCommand::Heartbeat => {
                self.registered(peer)?;
                let id = place(task).map(|(_, id)| id);
                if control.nodes.iter().any(|node| Some(node.id) != id) {
                    return Err(stranger(task));
                }
                self.members.beat(task, effects);
                Ok(())
            }
            // A node says these to itself or to its like.
            PsCommand::Barrier | PsCommand::Terminate | PsCommand::Ack => Ok(()),
        }
    }

    fn registered(&self, peer: &Peer) -> Result<(), Rejection> {
        match self.members.get(&peer.task) {
            Some(member) if member.attempt == peer.attempt => Ok(()),
            _ => {
                let what = format!("{} sent a message before its registration", peer.task);
                Err(Rejection::new(what))
            }
        }
    }

    fn on_announced(
        &mut self,
        peer: &Peer,
        node: &PsNode,
        effects: &mut Effects,
    ) -> Result<(), Rejection> {
        let task = &peer.task;
        let refused = |what: String| Err(Rejection::new(what));
        let expected = place(task);
        if expected.map(|(role, _)| role) != Some(node.role)
            || node.id != EMPTY && expected.map(|(_, id)| id) != Some(node.id)
        {
            return Err(stranger(task));
        }
        if !same_host(&node.host, &peer.host) {
            return refused(format!(
                "{task} registered an address other than `{}`, its node's address",
                peer.host
            ));
        }
        let Some(port) = u16::try_from(node.port).ok().filter(|port| *port > 0) else {
            return refused(format!("{task} registered the invalid port `{}`", node.port));
        };
        if let Some(known) = self.members.get(task).filter(|known| known.attempt == peer.attempt) {
            // Another customer in the same process shares its number, and has nothing to be told.
            if known.port == port {
                return Ok(());
            }
            return refused(format!("{task} registered a second port"));
        }
        if let Some(other) = self.members.holds(&node.host, port, task) {
            return refused(format!("{task} registered the port of {other}"));
        }
        effects.persist();
        // Its earlier attempt, if it was there, is over: so much is known of who has a new one.
        self.over(task, peer.attempt, effects);
        let line = LinkId::Dialed(self.dialed);
        self.dialed += 1;
        effects.dial(line, task.clone(), port);
        let member = PsMember::new(peer.attempt, node.host.clone(), port, line);
        self.members.join(task.clone(), member, effects);
        Ok(())
    }

    /// Forgets what belongs to attempts of a task before this one.
    fn over(&mut self, task: &TaskId, attempt: u32, effects: &mut Effects) {
        let current = self.current.entry(task.clone()).or_default();
        *current = attempt.max(*current);
        let current = *current;
        let old = self.members.get(task).filter(|member| member.attempt < current);
        if let Some(line) = old.map(|member| member.line) {
            self.members.leave(task);
            if self.lines.remove(&line).is_some() {
                effects.close(line);
            }
        }
        let past = |peer: &Peer| peer.task == *task && peer.attempt < current;
        self.lines.retain(|_, line| !line.peer.as_ref().is_some_and(past));
    }
}

fn stranger(task: &TaskId) -> Rejection {
    Rejection::new(format!("{task} identified itself as another node"))
}

fn same_host(announced: &str, known: &str) -> bool {
    let address = |text: &str| text.parse::<IpAddr>().ok();
    announced == known || address(announced).is_some_and(|one| address(known) == Some(one))
}

impl Protocol for PsScheduler {
    fn max_message_len(&self) -> usize {
        // With the flags and lengths of its frames.
        MESSAGE_MAX + 1024
    }

    fn open(&mut self, link: LinkId, peer: &Peer, effects: &mut Effects) {
        let (theirs, peer) = match link {
            LinkId::Accepted(_) => {
                effects.send(link, zmtp::opening(SocketType::Router, b""));
                (SocketType::Dealer, Some(peer.clone()))
            }
            // Its node has gone while it was dialed.
            LinkId::Dialed(_) if self.members.at(link).is_none() => return effects.close(link),
            LinkId::Dialed(_) => {
                effects.send(link, zmtp::opening(SocketType::Dealer, b"ps1"));
                (SocketType::Router, None)
            }
        };
        let session = ZmtpSession::with(theirs);
        self.lines.insert(link, PsLink { session, peer });
    }

    fn receive(
        &mut self,
        link: LinkId,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<Option<usize>, Rejection> {
        let Some(mut line) = self.lines.remove(&link) else {
            return Err(Rejection::new("input on a closed link"));
        };
        let took = self.receive_on(link, &mut line, bytes, effects);
        self.lines.insert(link, line);
        took
    }

    fn close(&mut self, link: LinkId, effects: &mut Effects) {
        self.lines.remove(&link);
        if let Some((task, port)) = self.members.unreachable(link) {
            effects.persist();
            effects.log(format!("cannot connect to {task} on its registered port {port}"));
        }
    }

    fn attempt_ended(&mut self, peer: &Peer, effects: &mut Effects) {
        self.over(&peer.task, peer.attempt.saturating_add(1), effects);
    }

    fn missing(&self) -> Vec<TaskId> {
        self.members.missing()
    }
}

impl PsScheduler {
    fn receive_on(
        &mut self,
        link: LinkId,
        line: &mut PsLink,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<Option<usize>, Rejection> {
        if let Some(peer) = &line.peer {
            self.check(peer)?;
        }
        let Some((length, heard)) = line.session.receive(bytes, MESSAGE_MAX)? else {
            return Ok(None);
        };
        match (heard, &line.peer) {
            (ZmtpEvent::Greeting, _) => effects.persist(),
            (ZmtpEvent::Ready { identity }, Some(peer)) => {
                let own = place(&peer.task).map(|(_, id)| format!("ps{id}"));
                if !identity.is_empty() && own.as_ref().map(String::as_bytes) != Some(identity) {
                    return Err(stranger(&peer.task));
                }
                effects.persist();
            }
            (ZmtpEvent::Ready { .. }, None) => {
                effects.persist();
                self.members.ready(link, effects);
            }
            (ZmtpEvent::Message(frames), Some(peer)) => self.on_message(peer, &frames, effects)?,
            (ZmtpEvent::Message(_), None) => {
                return Err(Rejection::new("unexpected message on a link to a ps-lite node"));
            }
            (ZmtpEvent::Command, _) => {}
        }
        Ok(Some(length))
    }
}
