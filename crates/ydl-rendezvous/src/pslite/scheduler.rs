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
    members::{Member, Members, place},
    meta::{Command, EMPTY, Meta, Node},
};
use crate::{
    Link, Peer, Protocol, Reaction, Refusal,
    zmtp::{self, Heard, Session, Socket},
};

/// Nodes send nothing longer than a few hundred bytes to a scheduler.
const MESSAGE_MAX: usize = 4096;

/// ps-lite's scheduler for so many workers and servers.
#[derive(Debug)]
pub struct Scheduler {
    members: Members,
    lines: BTreeMap<Link, Line>,
    /// The attempt below which nothing of a task counts any more.
    current: BTreeMap<TaskId, u32>,
    dialed: u64,
}

#[derive(Debug)]
struct Line {
    session: Session,
    /// Who speaks on a link that was accepted; `None` on one that was dialed, where nothing is said after READY.
    peer: Option<Peer>,
}

impl Scheduler {
    /// Nobody is there yet.
    pub fn new(workers: u32, servers: u32) -> Scheduler {
        Scheduler {
            members: Members::new(workers, servers),
            lines: BTreeMap::new(),
            current: BTreeMap::new(),
            dialed: 0,
        }
    }

    fn check(&self, peer: &Peer) -> Result<(), Refusal> {
        let task = &peer.task;
        if !self.members.expects(task) {
            let what = format!("{task} is neither a server nor a worker of this round");
            return Err(Refusal::new(what));
        }
        if self.current.get(task).is_some_and(|current| peer.attempt < *current) {
            let what = format!("attempt {} of {task} is over", peer.attempt);
            return Err(Refusal::new(what));
        }
        Ok(())
    }

    fn on_message(
        &mut self,
        peer: &Peer,
        frames: &[&[u8]],
        reaction: &mut Reaction,
    ) -> Result<(), Refusal> {
        let task = &peer.task;
        let meta = Meta::read(frames.first().copied().unwrap_or_default())?;
        let Some(control) = &meta.control else {
            let what = format!("{task} sends data to the scheduler");
            return Err(Refusal::new(what));
        };
        match control.command {
            Command::AddNode => {
                let [node] = &control.nodes[..] else {
                    let what = format!("{task} announces {} nodes", control.nodes.len());
                    return Err(Refusal::new(what));
                };
                self.on_announced(peer, node, reaction)
            }
            Command::Barrier if meta.request => {
                self.registered(peer)?;
                let echo = (meta.app, meta.customer);
                self.members.reach(task, control.group, echo, reaction)?;
                reaction.keep();
                Ok(())
            }
            Command::Heartbeat => {
                self.registered(peer)?;
                let id = place(task).map(|(_, id)| id);
                if control.nodes.iter().any(|node| Some(node.id) != id) {
                    return Err(stranger(task));
                }
                self.members.beat(task, reaction);
                Ok(())
            }
            // A node says these to itself or to its like.
            Command::Barrier | Command::Terminate | Command::Ack => Ok(()),
        }
    }

    fn registered(&self, peer: &Peer) -> Result<(), Refusal> {
        match self.members.get(&peer.task) {
            Some(member) if member.attempt == peer.attempt => Ok(()),
            _ => {
                let what = format!("{} speaks before it has said where it listens", peer.task);
                Err(Refusal::new(what))
            }
        }
    }

    fn on_announced(
        &mut self,
        peer: &Peer,
        node: &Node,
        reaction: &mut Reaction,
    ) -> Result<(), Refusal> {
        let task = &peer.task;
        let refused = |what: String| Err(Refusal::new(what));
        let expected = place(task);
        if expected.map(|(role, _)| role) != Some(node.role)
            || node.id != EMPTY && expected.map(|(_, id)| id) != Some(node.id)
        {
            return Err(stranger(task));
        }
        if !same_host(&node.host, &peer.host) {
            return refused(format!(
                "{task} announces another address than `{}`, that of its node",
                peer.host
            ));
        }
        let Some(port) = u16::try_from(node.port).ok().filter(|port| *port > 0) else {
            return refused(format!("{task} announces the port `{}`", node.port));
        };
        if let Some(known) = self.members.get(task).filter(|known| known.attempt == peer.attempt) {
            // Another customer in the same process shares its number, and has nothing to be told.
            if known.port == port {
                return Ok(());
            }
            return refused(format!("{task} announces a second port"));
        }
        if let Some(other) = self.members.holds(&node.host, port, task) {
            return refused(format!("{task} announces the port of {other}"));
        }
        reaction.keep();
        // Its earlier attempt, if it was there, is over: so much is known of who has a new one.
        self.over(task, peer.attempt, reaction);
        let line = Link::Dialed(self.dialed);
        self.dialed += 1;
        reaction.dial(line, task.clone(), port);
        let member = Member::new(peer.attempt, node.host.clone(), port, line);
        self.members.join(task.clone(), member, reaction);
        Ok(())
    }

    /// Forgets what belongs to attempts of a task before this one.
    fn over(&mut self, task: &TaskId, attempt: u32, reaction: &mut Reaction) {
        let current = self.current.entry(task.clone()).or_default();
        *current = attempt.max(*current);
        let current = *current;
        let old = self.members.get(task).filter(|member| member.attempt < current);
        if let Some(line) = old.map(|member| member.line) {
            self.members.leave(task);
            if self.lines.remove(&line).is_some() {
                reaction.close(line);
            }
        }
        let past = |peer: &Peer| peer.task == *task && peer.attempt < current;
        self.lines.retain(|_, line| !line.peer.as_ref().is_some_and(past));
    }
}

fn stranger(task: &TaskId) -> Refusal {
    Refusal::new(format!("{task} says that it is another"))
}

fn same_host(announced: &str, known: &str) -> bool {
    let address = |text: &str| text.parse::<IpAddr>().ok();
    announced == known || address(announced).is_some_and(|one| address(known) == Some(one))
}

impl Protocol for Scheduler {
    fn message_max(&self) -> usize {
        // With the flags and lengths of its frames.
        MESSAGE_MAX + 1024
    }

    fn open(&mut self, link: Link, peer: &Peer, reaction: &mut Reaction) {
        let (theirs, peer) = match link {
            Link::Accepted(_) => {
                reaction.send(link, zmtp::opening(Socket::Router, b""));
                (Socket::Dealer, Some(peer.clone()))
            }
            // Its node has gone while it was dialed.
            Link::Dialed(_) if self.members.at(link).is_none() => return reaction.close(link),
            Link::Dialed(_) => {
                reaction.send(link, zmtp::opening(Socket::Dealer, b"ps1"));
                (Socket::Router, None)
            }
        };
        let session = Session::with(theirs);
        self.lines.insert(link, Line { session, peer });
    }

    fn take(
        &mut self,
        link: Link,
        bytes: &[u8],
        reaction: &mut Reaction,
    ) -> Result<Option<usize>, Refusal> {
        let Some(mut line) = self.lines.remove(&link) else {
            return Err(Refusal::new("a link speaks that is over"));
        };
        let took = self.take_on(link, &mut line, bytes, reaction);
        self.lines.insert(link, line);
        took
    }

    fn close(&mut self, link: Link, reaction: &mut Reaction) {
        self.lines.remove(&link);
        if let Some((task, port)) = self.members.unreachable(link) {
            reaction.keep();
            reaction.say(format!("{task} announced port {port}, but nothing answers there"));
        }
    }

    fn ended(&mut self, peer: &Peer, reaction: &mut Reaction) {
        self.over(&peer.task, peer.attempt.saturating_add(1), reaction);
    }

    fn missing(&self) -> Vec<TaskId> {
        self.members.missing()
    }
}

impl Scheduler {
    fn take_on(
        &mut self,
        link: Link,
        line: &mut Line,
        bytes: &[u8],
        reaction: &mut Reaction,
    ) -> Result<Option<usize>, Refusal> {
        if let Some(peer) = &line.peer {
            self.check(peer)?;
        }
        let Some((length, heard)) = line.session.take(bytes, MESSAGE_MAX)? else {
            return Ok(None);
        };
        match (heard, &line.peer) {
            (Heard::Greeting, _) => reaction.keep(),
            (Heard::Ready { identity }, Some(peer)) => {
                let own = place(&peer.task).map(|(_, id)| format!("ps{id}"));
                if !identity.is_empty() && own.as_ref().map(String::as_bytes) != Some(identity) {
                    return Err(stranger(&peer.task));
                }
                reaction.keep();
            }
            (Heard::Ready { .. }, None) => {
                reaction.keep();
                self.members.ready(link, reaction);
            }
            (Heard::Message(frames), Some(peer)) => self.on_message(peer, &frames, reaction)?,
            (Heard::Message(_), None) => {
                return Err(Refusal::new("a ps-lite node answers where it only listens"));
            }
            (Heard::Aside, _) => {}
        }
        Ok(Some(length))
    }
}
