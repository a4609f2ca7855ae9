//! The master's half of the links of one protocol.
//!
//! Pieces become messages, messages become work: first what is to be written down, then what is to be said. Who runs a
//! desk does both in the order in which it was given them, and says nothing before everything that came earlier is
//! written down: then whatever a program has heard, a new master knows. What is to be said to an agent goes over the
//! connection that is attached when the work is given, or nowhere: on the next one the agent is told what it has not heard.

mod line;
mod work;

pub use work::{Kept, Work};

use line::{Line, Said};
use std::collections::{BTreeMap, BTreeSet};

use ydl_core::{Cluster, TaskId};

use crate::{
    frames::{Attached, Call, Down, Mark, Up},
    protocol::{Act, Link, Peer, Protocol, Reaction, Refusal, Reminder},
};

/// Connections of one attempt. More than any framework opens, and few enough to be harmless.
const CALLS_MAX: usize = 4096;

/// What was said to the programs of a task that do not read, over all their links: a short question can have a long
/// answer, and there can be many links.
const UNSETTLED_MAX: usize = 64 << 20;

/// A protocol and its links.
#[derive(Debug)]
pub struct Desk {
    protocol: Box<dyn Protocol>,
    lines: BTreeMap<Link, Line>,
    links: BTreeMap<(TaskId, u32, Call), Link>,
    /// Asked for and not yet there.
    dials: BTreeMap<Link, (TaskId, u16)>,
    /// So many bytes were said to each task and are not settled.
    unsettled: BTreeMap<TaskId, usize>,
    /// The attempt of each task that was heard by this very desk. Limits are for these alone: of one that is only known
    /// from what was written down nothing is ever settled, and its links stay though they may have ended.
    live: BTreeMap<TaskId, u32>,
    /// Links that may have been told more than is read.
    deaf: BTreeSet<Link>,
    /// The latest attempt of each task that has ended.
    over: BTreeMap<TaskId, u32>,
    accepted: u64,
}

impl Desk {
    /// With a protocol that has heard nothing yet.
    pub fn new(protocol: Box<dyn Protocol>) -> Desk {
        Desk {
            protocol,
            lines: BTreeMap::new(),
            links: BTreeMap::new(),
            dials: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            live: BTreeMap::new(),
            deaf: BTreeSet::new(),
            over: BTreeMap::new(),
            accepted: 0,
        }
    }

    /// Whether that attempt was started to join members who are not the same any more. To be asked before its end is told.
    pub fn is_outdated(&self, peer: &Peer) -> bool {
        !self.is_over(peer) && self.protocol.is_outdated(&peer.task)
    }

    /// Whom those who wait are waiting for.
    pub fn missing(&self) -> Vec<TaskId> {
        self.protocol.missing()
    }

    /// What a master that is no more has written down. Nothing of it is done again; what was said then is said to those
    /// who have not heard it, when they come.
    pub fn replay(&mut self, kept: Kept) {
        let mut work = Work::default();
        match kept {
            Kept::Opened(peer, call) => {
                self.link(&peer, call, &mut work);
            }
            Kept::Message(peer, call, at, bytes) => {
                let Some(link) = self.link(&peer, call, &mut work) else {
                    return;
                };
                if let Some(line) = self.lines.get_mut(&link) {
                    line.skip_to(at);
                }
                self.receive(link, &bytes, &mut work);
            }
            Kept::Closed(peer, call) => match self.find(&peer, call) {
                // Whether its agent knows that this was heard is not known: it may say everything again.
                Some(link) if self.end(link).is_some() => {
                    self.tell_closed(link, &peer, call, &mut work);
                }
                _ => self.closed(&peer, call, &mut work),
            },
            Kept::Reminded => self.reminded(&mut work),
        }
    }

    /// What an agent says, for an attempt of a task.
    pub fn hear(&mut self, peer: &Peer, up: Up) -> Work {
        let mut work = Work::default();
        if self.is_over(peer) {
            return work;
        }
        self.live.insert(peer.task.clone(), peer.attempt);
        match up {
            Up::Attach(all) => self.attach(peer, &all, &mut work),
            Up::Open(call) => {
                if self.link(peer, call, &mut work).is_none() {
                    work.tell(peer, Down::Gone(call));
                }
            }
            Up::Bytes(call, at, bytes) => self.bytes(peer, call, at, &bytes, &mut work),
            Up::Settled(call, mark) => {
                if let Some(link) = self.find(peer, call) {
                    self.settled(link, mark);
                }
            }
            Up::Closed(call, at) => {
                if let Some(link) = self.find(peer, call)
                    && self.lines[&link].heard() < at
                {
                    let why = Refusal::new("a part of what was said is missing");
                    self.refuse(link, why, &mut work);
                }
                self.closed(peer, call, &mut work);
                work.tell(peer, Down::Gone(call));
            }
        }
        self.refuse_the_deaf(&mut work);
        work
    }

    /// An attempt of a task is over, and all its links with it. Nothing is to be written down of it: who runs a desk
    /// knows of it, and says it again to a desk that is replayed, in its place among what was kept. Hence no link of
    /// another is refused here, which would have to be written down: that is done when something is heard next.
    pub fn ended(&mut self, peer: &Peer) -> Work {
        let mut work = Work::default();
        if self.is_over(peer) {
            return work;
        }
        self.over.insert(peer.task.clone(), peer.attempt);
        let mut reaction = Reaction::default();
        for link in self.links_of(peer) {
            if !self.remove(link).is_some_and(|line| line.closed) {
                self.protocol.close(link, &mut reaction);
            }
        }
        self.dials.retain(|_, (task, _)| *task != peer.task);
        self.protocol.ended(peer, &mut reaction);
        let (_, mut acts) = reaction.into_parts();
        // Nobody is there to be dialed.
        acts.retain(|act| !matches!(act, Act::Dial(_, task, _) if *task == peer.task));
        self.act(acts, None, true, &mut work);
        work
    }

    /// Others are members of the round from now on. As of an end, nothing is to be written down of it.
    pub fn told(&mut self, members: &Cluster) -> Work {
        let mut work = Work::default();
        let mut reaction = Reaction::default();
        self.protocol.told(members, &mut reaction);
        let (_, acts) = reaction.into_parts();
        self.act(acts, None, true, &mut work);
        work
    }

    /// What is to be said again unless it is heeded. Who runs a desk has the clock.
    pub fn reminder(&self) -> Option<Reminder> {
        self.protocol.reminder()
    }

    /// It is time to say that again. Nothing follows where it was heeded meanwhile, or said again already.
    pub fn remind(&mut self, reminder: Reminder) -> Work {
        let mut work = Work::default();
        if self.reminder() == Some(reminder) {
            work.keep.push(Kept::Reminded);
            self.reminded(&mut work);
        }
        work
    }

    fn reminded(&mut self, work: &mut Work) {
        let mut reaction = Reaction::default();
        self.protocol.remind(&mut reaction);
        let (_, acts) = reaction.into_parts();
        self.act(acts, None, true, work);
    }

    fn is_live(&self, peer: &Peer) -> bool {
        self.live.get(&peer.task) == Some(&peer.attempt)
    }

    fn is_over(&self, peer: &Peer) -> bool {
        let over = self.over.get(&peer.task);
        over.is_some_and(|over| peer.attempt <= *over)
    }

    fn find(&self, peer: &Peer, call: Call) -> Option<Link> {
        let key = (peer.task.clone(), peer.attempt, call);
        self.links.get(&key).copied()
    }

    fn links_of(&self, peer: &Peer) -> Vec<Link> {
        let from = (peer.task.clone(), peer.attempt, Call::In(0));
        let to = (peer.task.clone(), peer.attempt, Call::Out(u64::MAX));
        self.links.range(from..=to).map(|(_, link)| *link).collect()
    }

    fn remove(&mut self, link: Link) -> Option<Line> {
        let line = self.lines.remove(&link)?;
        let key = (line.peer.task.clone(), line.peer.attempt, line.call);
        self.links.remove(&key);
        self.free(&line.peer.task, line.unsettled_bytes);
        Some(line)
    }

    /// So much less is unsettled.
    fn free(&mut self, task: &TaskId, bytes: usize) {
        if let Some(all) = self.unsettled.get_mut(task) {
            *all -= bytes;
            if *all == 0 {
                self.unsettled.remove(task);
            }
        }
    }

    /// The link of that name, opened if it is new.
    fn link(&mut self, peer: &Peer, call: Call, work: &mut Work) -> Option<Link> {
        if let Some(link) = self.find(peer, call) {
            return Some(link);
        }
        let link = match call {
            Call::In(_) => {
                if self.is_live(peer) && self.links_of(peer).len() >= CALLS_MAX {
                    let why = format!("it has {CALLS_MAX} connections already");
                    work.refused.push((peer.clone(), Refusal(why)));
                    return None;
                }
                self.accepted += 1;
                Link::Accepted(self.accepted)
            }
            // Nothing else was asked for.
            Call::Out(number) => {
                let link = Link::Dialed(number);
                let (task, _) = self.dials.get(&link)?;
                if *task != peer.task {
                    return None;
                }
                self.dials.remove(&link);
                link
            }
        };
        self.lines.insert(link, Line::new(peer, call));
        let key = (peer.task.clone(), peer.attempt, call);
        self.links.insert(key, link);
        let mut reaction = Reaction::default();
        self.protocol.open(link, peer, &mut reaction);
        let (keep, acts) = reaction.into_parts();
        if keep {
            work.keep.push(Kept::Opened(peer.clone(), call));
        }
        self.act(acts, Some(link), keep, work);
        Some(link)
    }

    /// An agent that comes, or comes again: what it has and this side has not, and the other way round.
    fn attach(&mut self, peer: &Peer, all: &[Attached], work: &mut Work) {
        let there: BTreeSet<Call> = all.iter().map(|one| one.call).collect();
        for link in self.links_of(peer) {
            let call = self.lines[&link].call;
            if !there.contains(&call) {
                self.closed(peer, call, work);
            }
        }
        for one in all {
            let mut opening = Work::default();
            let Some(link) = self.link(peer, one.call, &mut opening) else {
                work.refused.append(&mut opening.refused);
                work.tell(peer, Down::Gone(one.call));
                continue;
            };
            // What opening has said on this very link is among the unsettled, and may be with the program already.
            let again = |(task, down): &(TaskId, Down)| {
                *task == peer.task
                    && matches!(down, Down::Bytes(call, ..) | Down::Close(call, _) if *call == one.call)
            };
            opening.down.retain(|down| !again(down));
            work.append(opening);
            let Some(line) = self.lines.get_mut(&link) else {
                continue;
            };
            let settled = line.settle(one.settled);
            self.free(&peer.task, settled);
            let Some(line) = self.lines.get_mut(&link) else {
                continue;
            };
            if line.closed {
                for (mark, said) in &line.unsettled {
                    work.tell(peer, line.down(*mark, said));
                }
                if line.unsettled.is_empty() {
                    work.tell(peer, Down::Gone(one.call));
                    self.remove(link);
                }
                continue;
            }
            if one.settled.taken > line.taken {
                line.skip_to(one.settled.taken);
            }
            if line.heard() < one.floor {
                let why = Refusal::new("what was taken of it is not known any more");
                self.refuse(link, why, work);
                continue;
            }
            work.tell(peer, Down::Taken(one.call, line.kept));
            for (mark, said) in &line.unsettled {
                work.tell(peer, line.down(*mark, said));
            }
        }
        for (link, (task, port)) in &self.dials {
            if let (Link::Dialed(number), true) = (link, *task == peer.task) {
                work.tell(peer, Down::Dial(Call::Out(*number), *port));
            }
        }
    }

    fn bytes(&mut self, peer: &Peer, call: Call, at: u64, bytes: &[u8], work: &mut Work) {
        let Some(link) = self.find(peer, call) else {
            return work.tell(peer, Down::Gone(call));
        };
        let line = &self.lines[&link];
        if line.closed {
            return;
        }
        let Some(known) = line.heard().checked_sub(at) else {
            let why = Refusal::new("a part of what was said is missing");
            return self.refuse(link, why, work);
        };
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        if let Some(new) = bytes.get(known..) {
            self.receive(link, new, work);
        }
    }

    fn receive(&mut self, link: Link, bytes: &[u8], work: &mut Work) {
        let Some(line) = self.lines.get_mut(&link) else {
            return;
        };
        let mut piece = std::mem::take(&mut line.piece);
        piece.extend_from_slice(bytes);
        let mut done = 0;
        loop {
            let mut reaction = Reaction::default();
            let taken = match self.protocol.take(link, &piece[done..], &mut reaction) {
                Ok(Some(length)) => length,
                Ok(None) => break,
                Err(why) => return self.refuse(link, why, work),
            };
            let (keep, acts) = reaction.into_parts();
            let Some(line) = self.lines.get_mut(&link) else {
                return;
            };
            let at = line.taken;
            line.taken += taken as u64;
            if keep {
                line.kept = line.taken;
                let message = piece[done..done + taken].to_vec();
                let (peer, call) = (line.peer.clone(), line.call);
                work.tell(&peer, Down::Taken(call, line.kept));
                work.keep.push(Kept::Message(peer, call, at, message));
            }
            done += taken;
            self.act(acts, Some(link), keep, work);
            // At once: many short questions with long answers can come together.
            self.refuse_the_deaf(work);
            if self.lines.get(&link).is_none_or(|line| line.closed) {
                return;
            }
        }
        piece.drain(..done);
        if piece.len() > self.protocol.message_max() {
            let why = format!("a message of more than {} bytes", self.protocol.message_max());
            return self.refuse(link, Refusal(why), work);
        }
        if let Some(line) = self.lines.get_mut(&link) {
            line.piece = piece;
        }
    }

    fn settled(&mut self, link: Link, mark: Mark) {
        let Some(line) = self.lines.get_mut(&link) else {
            return;
        };
        let (settled, task) = (line.settle(mark), line.peer.task.clone());
        let is_over = line.closed && line.unsettled.is_empty();
        self.free(&task, settled);
        if is_over {
            self.remove(link);
        }
    }

    /// A link that the program has ended, or that never came to be.
    fn closed(&mut self, peer: &Peer, call: Call, work: &mut Work) {
        let link = match (self.find(peer, call), call) {
            (Some(link), _) => {
                if self.remove(link).is_some_and(|line| line.closed) {
                    return;
                }
                link
            }
            (None, Call::Out(number)) => {
                let link = Link::Dialed(number);
                let asked = self.dials.get(&link);
                if asked.is_none_or(|(task, _)| *task != peer.task) {
                    return;
                }
                self.dials.remove(&link);
                link
            }
            (None, Call::In(_)) => return,
        };
        self.tell_closed(link, peer, call, work);
    }

    fn tell_closed(&mut self, link: Link, peer: &Peer, call: Call, work: &mut Work) {
        let mut reaction = Reaction::default();
        self.protocol.close(link, &mut reaction);
        let (keep, acts) = reaction.into_parts();
        if keep {
            work.keep.push(Kept::Closed(peer.clone(), call));
        }
        self.act(acts, None, keep, work);
    }

    /// The last word on a link, if it has not been said: whose it is, and what is to be told.
    fn end(&mut self, link: Link) -> Option<(Peer, Call, Down)> {
        let line = self.lines.get_mut(&link).filter(|line| !line.closed)?;
        line.closed = true;
        line.piece = Vec::new();
        Some((line.peer.clone(), line.call, line.say(Said::Close)))
    }

    /// A link that is ended because of what came over it.
    fn refuse(&mut self, link: Link, why: Refusal, work: &mut Work) {
        let Some((peer, call, down)) = self.end(link) else {
            return;
        };
        work.tell(&peer, down);
        work.refused.push((peer.clone(), why));
        self.tell_closed(link, &peer, call, work);
    }

    /// Links of those who do not read what they are told.
    fn refuse_the_deaf(&mut self, work: &mut Work) {
        while let Some(link) = self.deaf.pop_first() {
            let task = self.lines.get(&link).map(|line| &line.peer.task);
            let unsettled = task.and_then(|task| self.unsettled.get(task));
            if unsettled.is_some_and(|all| *all > UNSETTLED_MAX) {
                let why = Refusal::new("it does not read what it is told");
                self.refuse(link, why, work);
            }
        }
    }

    /// `kept`: it would follow again from what is written down. What would not, on the link of another, is said once and
    /// has no mark: marks must come out the same the second time.
    fn act(&mut self, acts: Vec<Act>, own: Option<Link>, kept: bool, work: &mut Work) {
        for act in acts {
            match act {
                Act::Send(link, bytes) => {
                    let Some(line) = self.lines.get_mut(&link).filter(|line| !line.closed) else {
                        continue;
                    };
                    let (task, attempt) = (line.peer.task.clone(), line.peer.attempt);
                    let before = line.unsettled_bytes;
                    let down = if kept || own == Some(link) {
                        line.say(Said::Bytes(bytes))
                    } else {
                        Down::Bytes(line.call, None, bytes)
                    };
                    let said = line.unsettled_bytes - before;
                    work.down.push((task.clone(), down));
                    let live = self.live.get(&task) == Some(&attempt);
                    let all = self.unsettled.entry(task).or_default();
                    *all += said;
                    if *all > UNSETTLED_MAX && live {
                        self.deaf.insert(link);
                    }
                }
                Act::Close(link) => {
                    if let Some((peer, _, down)) = self.end(link) {
                        work.tell(&peer, down);
                    }
                }
                Act::Dial(link, task, port) => {
                    if let Link::Dialed(number) = link {
                        self.dials.insert(link, (task.clone(), port));
                        work.down.push((task, Down::Dial(Call::Out(number), port)));
                    }
                }
                Act::Say(line) => work.say.push(line),
            }
        }
    }
}
