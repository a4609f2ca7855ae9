//! The scheduler of one round.
//!
//! The agent identifies a node: `worker:3` has rank 3 and id 15, whatever the program claims, in whatever order nodes
//! connect and however their addresses sort. A link with a different claim is closed.
//!
//! Nodes receive the addresses that other nodes registered. A registered address must be that of the node's host. A
//! node looks itself up in the list by its registered host and port, and listens on no other address: with any other
//! address in the list, it or its peers would wait forever. ydl sets `DMLC_NODE_HOST` to the address of the host. A
//! program that registers another one has overridden it.

use std::{collections::BTreeMap, net::IpAddr};

use ydl_core::TaskId;

use super::{
    members::{PsMember, PsMembers, node_identity},
    meta::{EMPTY, PsCommand, PsMeta, PsNode},
};
use crate::{
    Effects, LinkId, Peer, Protocol, Rejection,
    zmtp::{self, SocketType, ZmtpEvent, ZmtpSession},
};

/// Maximum length of a message to the scheduler. Nodes send a few hundred bytes.
const MESSAGE_MAX: usize = 4096;

/// ps-lite's scheduler.
#[derive(Debug)]
pub struct PsScheduler {
    members: PsMembers,
    links: BTreeMap<LinkId, PsLink>,
    /// Current attempt of each task. Earlier ones are ignored.
    current: BTreeMap<TaskId, u32>,
    dialed: u64,
}

#[derive(Debug)]
struct PsLink {
    session: ZmtpSession,
    /// The client of an accepted link. `None` for a dialed link, which carries no messages from the node.
    peer: Option<Peer>,
}

impl PsScheduler {
    /// Creates a scheduler for a number of workers and servers.
    pub fn new(workers: u32, servers: u32) -> PsScheduler {
        PsScheduler {
            members: PsMembers::new(workers, servers),
            links: BTreeMap::new(),
            current: BTreeMap::new(),
            dialed: 0,
        }
    }

    fn check_peer(&self, peer: &Peer) -> Result<(), Rejection> {
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
        let meta = PsMeta::parse(frames.first().copied().unwrap_or_default())?;
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
                self.on_registration(peer, node, effects)
            }
            PsCommand::Barrier if meta.request => {
                self.check_registered(peer)?;
                let echo = (meta.app, meta.customer);
                self.members.reach_barrier(task, control.group, echo, effects)?;
                effects.persist();
                Ok(())
            }
            PsCommand::Heartbeat => {
                self.check_registered(peer)?;
                let id = node_identity(task).map(|(_, id)| id);
                if control.nodes.iter().any(|node| Some(node.id) != id) {
                    return Err(wrong_identity(task));
                }
                self.members.heartbeat(task, effects);
                Ok(())
            }
            // Nodes send these to themselves or to each other.
            PsCommand::Barrier | PsCommand::Terminate | PsCommand::Ack => Ok(()),
        }
    }

    fn check_registered(&self, peer: &Peer) -> Result<(), Rejection> {
        match self.members.get(&peer.task) {
            Some(member) if member.attempt == peer.attempt => Ok(()),
            _ => {
                let what = format!("{} sent a message before its registration", peer.task);
                Err(Rejection::new(what))
            }
        }
    }

    fn on_registration(
        &mut self,
        peer: &Peer,
        node: &PsNode,
        effects: &mut Effects,
    ) -> Result<(), Rejection> {
        let task = &peer.task;
        let rejected = |what: String| Err(Rejection::new(what));
        let expected = node_identity(task);
        if expected.map(|(role, _)| role) != Some(node.role)
            || node.id != EMPTY && expected.map(|(_, id)| id) != Some(node.id)
        {
            return Err(wrong_identity(task));
        }
        if !same_host(&node.host, &peer.host) {
            return rejected(format!(
                "{task} registered an address other than `{}`, its node's address",
                peer.host
            ));
        }
        let Some(port) = u16::try_from(node.port).ok().filter(|port| *port > 0) else {
            return rejected(format!("{task} registered the invalid port `{}`", node.port));
        };
        if let Some(known) = self.members.get(task).filter(|known| known.attempt == peer.attempt) {
            // Another customer in the same process shares its id and needs no response.
            if known.port == port {
                return Ok(());
            }
            return rejected(format!("{task} registered a second port"));
        }
        if let Some(other) = self.members.address_owner(&node.host, port, task) {
            return rejected(format!("{task} registered the port of {other}"));
        }
        effects.persist();
        // A new attempt ends the earlier ones.
        self.end_attempts(task, peer.attempt, effects);
        let link = LinkId::Dialed(self.dialed);
        self.dialed += 1;
        effects.dial(link, task.clone(), port);
        let member = PsMember::new(peer.attempt, node.host.clone(), port, link);
        self.members.join(task.clone(), member, effects);
        Ok(())
    }

    /// Drops the state of attempts of a task before this one.
    fn end_attempts(&mut self, task: &TaskId, attempt: u32, effects: &mut Effects) {
        let current = self.current.entry(task.clone()).or_default();
        *current = attempt.max(*current);
        let current = *current;
        let old = self.members.get(task).filter(|member| member.attempt < current);
        if let Some(link) = old.map(|member| member.link) {
            self.members.leave(task);
            if self.links.remove(&link).is_some() {
                effects.close(link);
            }
        }
        let is_past = |peer: &Peer| peer.task == *task && peer.attempt < current;
        self.links.retain(|_, state| !state.peer.as_ref().is_some_and(is_past));
    }
}

fn wrong_identity(task: &TaskId) -> Rejection {
    Rejection::new(format!("{task} identified itself as another node"))
}

fn same_host(registered: &str, known: &str) -> bool {
    let address = |text: &str| text.parse::<IpAddr>().ok();
    registered == known || address(registered).is_some_and(|one| address(known) == Some(one))
}

impl Protocol for PsScheduler {
    fn max_message_len(&self) -> usize {
        // Includes the flags and lengths of its frames.
        MESSAGE_MAX + 1024
    }

    fn open(&mut self, link: LinkId, peer: &Peer, effects: &mut Effects) {
        let (peer_socket, peer) = match link {
            LinkId::Accepted(_) => {
                effects.send(link, zmtp::handshake(SocketType::Router, b""));
                (SocketType::Dealer, Some(peer.clone()))
            }
            // The node ended during the dial.
            LinkId::Dialed(_) if self.members.at(link).is_none() => return effects.close(link),
            LinkId::Dialed(_) => {
                effects.send(link, zmtp::handshake(SocketType::Dealer, b"ps1"));
                (SocketType::Router, None)
            }
        };
        let session = ZmtpSession::new(peer_socket);
        self.links.insert(link, PsLink { session, peer });
    }

    fn receive(
        &mut self,
        link: LinkId,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<Option<usize>, Rejection> {
        let Some(mut state) = self.links.remove(&link) else {
            return Err(Rejection::new("input on a closed link"));
        };
        let result = self.receive_on(link, &mut state, bytes, effects);
        self.links.insert(link, state);
        result
    }

    fn close(&mut self, link: LinkId, effects: &mut Effects) {
        self.links.remove(&link);
        if let Some((task, port)) = self.members.unreachable(link) {
            effects.persist();
            effects.log(format!("cannot connect to {task} on its registered port {port}"));
        }
    }

    fn attempt_ended(&mut self, peer: &Peer, effects: &mut Effects) {
        self.end_attempts(&peer.task, peer.attempt.saturating_add(1), effects);
    }

    fn missing(&self) -> Vec<TaskId> {
        self.members.missing()
    }
}

impl PsScheduler {
    fn receive_on(
        &mut self,
        link: LinkId,
        state: &mut PsLink,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<Option<usize>, Rejection> {
        if let Some(peer) = &state.peer {
            self.check_peer(peer)?;
        }
        let Some((length, event)) = state.session.receive(bytes, MESSAGE_MAX)? else {
            return Ok(None);
        };
        match (event, &state.peer) {
            (ZmtpEvent::Greeting, _) => effects.persist(),
            (ZmtpEvent::Ready { identity }, Some(peer)) => {
                let own = node_identity(&peer.task).map(|(_, id)| format!("ps{id}"));
                if !identity.is_empty() && own.as_ref().map(String::as_bytes) != Some(identity) {
                    return Err(wrong_identity(&peer.task));
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
