//! The nodes that are there, what each has been told, and who waits at a barrier for whom.

use std::collections::{BTreeMap, BTreeSet};

use ydl_core::{RoleName, TaskId};

use super::meta::{EMPTY, PsCommand, PsControl, PsMeta, PsNode, PsRole};
use crate::{Effects, LinkId, Rejection, zmtp};

pub(super) const WORKER: &str = "worker";
pub(super) const SERVER: &str = "server";
/// The barrier of everybody; the first one ends the gathering.
const EVERYBODY: u8 = 7;
/// What may wait for a node that was dialed and has not yet answered.
const QUEUE_MAX: usize = 64;

/// A node that has said where it listens.
#[derive(Debug)]
pub(super) struct PsMember {
    pub attempt: u32,
    pub host: String,
    pub port: u16,
    /// What it is told goes over this link.
    pub line: LinkId,
    /// It has answered on that link, so messages may be sent.
    ready: bool,
    queue: Vec<Vec<u8>>,
    /// It has been told of all the others.
    told: bool,
    recovered: bool,
}

impl PsMember {
    pub fn new(attempt: u32, host: String, port: u16, line: LinkId) -> PsMember {
        PsMember {
            attempt,
            host,
            port,
            line,
            ready: false,
            queue: Vec::new(),
            told: false,
            recovered: false,
        }
    }
}

#[derive(Debug)]
pub(super) struct PsMembers {
    workers: u32,
    servers: u32,
    here: BTreeMap<TaskId, PsMember>,
    /// Who has reached which barrier. At most one entry for each of the seven groups.
    barriers: BTreeMap<u8, BTreeSet<TaskId>>,
    /// Everybody has once passed a barrier together. Who comes later is told that he is a replacement, and skips the
    /// barriers that the others have behind them.
    started: bool,
    timestamp: i32,
}

/// The role of a task and the number that ps-lite knows it by, which depends on nothing but its name.
pub(super) fn place(task: &TaskId) -> Option<(PsRole, i32)> {
    let index = i32::try_from(task.index).ok()?.checked_mul(2)?;
    match task.role.as_str() {
        SERVER => Some((PsRole::Server, index.checked_add(8)?)),
        WORKER => Some((PsRole::Worker, index.checked_add(9)?)),
        _ => None,
    }
}

impl PsMembers {
    pub fn new(workers: u32, servers: u32) -> PsMembers {
        PsMembers {
            workers,
            servers,
            here: BTreeMap::new(),
            barriers: BTreeMap::new(),
            started: false,
            timestamp: 0,
        }
    }

    pub fn expects(&self, task: &TaskId) -> bool {
        let of_role = match task.role.as_str() {
            SERVER => self.servers,
            WORKER => self.workers,
            _ => 0,
        };
        task.index < of_role && place(task).is_some()
    }

    pub fn get(&self, task: &TaskId) -> Option<&PsMember> {
        self.here.get(task)
    }

    pub fn at(&self, line: LinkId) -> Option<&TaskId> {
        let found = self.here.iter().find(|(_, member)| member.line == line);
        found.map(|(task, _)| task)
    }

    /// Another node that listens there: a node finds itself in a list by host and port.
    pub fn holds(&self, host: &str, port: u16, but: &TaskId) -> Option<&TaskId> {
        let same = |member: &PsMember| member.host == host && member.port == port;
        let mut others = self.here.iter().filter(|(task, _)| *task != but);
        others.find(|(_, member)| same(member)).map(|(task, _)| task)
    }

    pub fn join(&mut self, task: TaskId, mut member: PsMember, effects: &mut Effects) {
        member.recovered = self.started;
        self.here.insert(task, member);
        self.settle(effects);
    }

    /// Whether it was there. A barrier that it had reached stays reached, because its replacement skips those of the
    /// start; but until the first one is passed nobody is a replacement.
    pub fn leave(&mut self, task: &TaskId) -> bool {
        if !self.started {
            for reached in self.barriers.values_mut() {
                reached.remove(task);
            }
            self.barriers.retain(|_, reached| !reached.is_empty());
        }
        self.here.remove(task).is_some()
    }

    /// The dialed link to a node works.
    pub fn ready(&mut self, line: LinkId, effects: &mut Effects) {
        if let Some(member) = self.here.values_mut().find(|member| member.line == line) {
            member.ready = true;
            for message in member.queue.drain(..) {
                effects.send(line, message);
            }
        }
    }

    /// The dialed link to a node has ended. If nobody had answered on it, nobody will: whose it was, and for which port.
    pub fn unreachable(&mut self, line: LinkId) -> Option<(TaskId, u16)> {
        let (task, member) = self.here.iter().find(|(_, member)| member.line == line)?;
        if member.ready {
            return None;
        }
        let gone = (task.clone(), member.port);
        self.leave(&gone.0);
        Some(gone)
    }

    /// Once everybody is there, or is there again: who is new is told of all, and the others of who is new. A list is
    /// held back while somebody is missing, because ps-lite gives up when it has something to send and nobody to send
    /// it to.
    fn settle(&mut self, effects: &mut Effects) {
        if self.here.len() as u64 != u64::from(self.workers) + u64::from(self.servers) {
            return;
        }
        let everybody = self.list(|_| true);
        let new = self.list(|member| !member.told);
        let [everybody, new] = [everybody, new].map(|nodes| {
            let control = PsControl { command: PsCommand::AddNode, nodes, group: 0 };
            self.message(control, None, EMPTY)
        });
        let tasks: Vec<TaskId> = self.here.keys().cloned().collect();
        for task in tasks {
            let Some(member) = self.here.get_mut(&task) else {
                continue;
            };
            let told = std::mem::replace(&mut member.told, true);
            self.tell(&task, if told { &new } else { &everybody }, effects);
        }
    }

    /// Without the scheduler itself. A node that reads it there would connect to that address anew; it reaches us at
    /// a port of its own agent, which no list for all could name, and the link that it has is as good.
    fn list(&self, which: impl Fn(&PsMember) -> bool) -> Vec<PsNode> {
        let members = self.here.iter().filter(|(_, member)| which(member));
        let nodes = members.filter_map(|(task, member)| {
            let (role, id) = place(task)?;
            Some(PsNode {
                role,
                id,
                host: member.host.clone(),
                port: member.port.into(),
                is_recovery: member.recovered,
                customer: 0,
            })
        });
        nodes.collect()
    }

    /// The same bytes for all who get it: ps-lite tells messages apart by receiver and timestamp.
    fn message(&mut self, control: PsControl, app: Option<i32>, customer: i32) -> Vec<u8> {
        let meta = PsMeta {
            control: Some(control),
            request: false,
            app,
            timestamp: Some(self.timestamp),
            customer,
        };
        self.timestamp = self.timestamp.wrapping_add(1) & i32::MAX;
        zmtp::message(&meta.write())
    }

    fn tell(&mut self, task: &TaskId, message: &[u8], effects: &mut Effects) {
        let Some(member) = self.here.get_mut(task) else {
            return;
        };
        if member.ready {
            effects.send(member.line, message);
        } else if member.queue.len() < QUEUE_MAX {
            member.queue.push(message.to_vec());
        } else {
            effects.close(member.line);
            effects.log(format!("{task} does not respond on port {}", member.port));
            self.leave(task);
        }
    }

    /// A sign of life is answered and leaves nothing behind, not even a number.
    pub fn beat(&self, task: &TaskId, effects: &mut Effects) {
        let Some(member) = self.here.get(task).filter(|member| member.ready) else {
            return;
        };
        let scheduler = PsNode {
            role: PsRole::Scheduler,
            id: 1,
            host: String::new(),
            port: 0,
            is_recovery: false,
            customer: 0,
        };
        let meta = PsMeta {
            control: Some(PsControl {
                command: PsCommand::Heartbeat,
                nodes: vec![scheduler],
                group: 0,
            }),
            request: false,
            app: None,
            timestamp: Some(0),
            customer: EMPTY,
        };
        effects.send(member.line, zmtp::message(&meta.write()));
    }

    /// A node has reached a barrier. The scheduler, where it belongs to the group, is always there already.
    pub fn reach(
        &mut self,
        task: &TaskId,
        group: i32,
        (app, customer): (Option<i32>, i32),
        effects: &mut Effects,
    ) -> Result<(), Rejection> {
        let group = u8::try_from(group).unwrap_or(0);
        if group > EVERYBODY || !belongs(&task.role, group) {
            let what =
                format!("{task} entered a barrier of group {group}, to which it does not belong");
            return Err(Rejection::new(what));
        }
        if !self.here.get(task).is_some_and(|member| member.told) {
            let what = format!("{task} entered a barrier before all nodes registered");
            return Err(Rejection::new(what));
        }
        let reached = self.barriers.entry(group).or_default();
        reached.insert(task.clone());
        let count = |bit: u8, of: u32| if group & bit == 0 { 0 } else { u64::from(of) };
        if reached.len() as u64 != count(2, self.servers) + count(4, self.workers) {
            return Ok(());
        }
        self.barriers.remove(&group);
        self.started |= group == EVERYBODY;
        let control =
            PsControl { command: PsCommand::Barrier, nodes: Vec::new(), group: group.into() };
        let message = self.message(control, app, customer);
        for task in self.of(group) {
            self.tell(&task, &message, effects);
        }
        Ok(())
    }

    fn of(&self, group: u8) -> Vec<TaskId> {
        let roles = [(SERVER, self.servers), (WORKER, self.workers)];
        let roles = roles.map(|(role, count)| (RoleName::from(role), count));
        let members = roles.into_iter().filter(|(role, _)| belongs(role, group));
        let tasks = members.flat_map(|(role, count)| {
            (0..count).map(move |index| TaskId { role: role.clone(), index })
        });
        tasks.collect()
    }

    fn absent(&self, group: u8) -> impl Iterator<Item = TaskId> {
        let reached = self.barriers.get(&group);
        let absent = move |task: &TaskId| reached.is_none_or(|reached| !reached.contains(task));
        self.of(group).into_iter().filter(absent)
    }

    /// Those who have not said where they listen; when all have, those who are not where others wait, unless they wait
    /// themselves.
    pub fn missing(&self) -> Vec<TaskId> {
        let everybody = self.of(EVERYBODY).into_iter();
        let unknown: Vec<TaskId> = everybody.filter(|task| !self.here.contains_key(task)).collect();
        if !unknown.is_empty() {
            return unknown;
        }
        let waiting: BTreeSet<&TaskId> = self.barriers.values().flatten().collect();
        let absent = self.barriers.keys().flat_map(|group| self.absent(*group));
        let missing: BTreeSet<TaskId> = absent.filter(|task| !waiting.contains(task)).collect();
        missing.into_iter().collect()
    }
}

fn belongs(role: &RoleName, group: u8) -> bool {
    match role.as_str() {
        SERVER => group & 2 != 0,
        WORKER => group & 4 != 0,
        _ => false,
    }
}
