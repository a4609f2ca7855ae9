//! Registered nodes, their pending messages, and barriers.

use std::collections::{BTreeMap, BTreeSet};

use ydl_core::{RoleName, TaskId};

use super::meta::{EMPTY, PsCommand, PsControl, PsMeta, PsNode, PsRole};
use crate::{Effects, LinkId, Rejection, zmtp};

pub(super) const WORKER: &str = "worker";
pub(super) const SERVER: &str = "server";
/// Barrier group of all nodes. The first such barrier completes the start of the job.
const ALL_NODES: u8 = 7;
/// Maximum number of messages queued for a node that has not accepted its connection.
const QUEUE_MAX: usize = 64;

/// A registered node.
#[derive(Debug)]
pub(super) struct PsMember {
    pub attempt: u32,
    pub host: String,
    pub port: u16,
    /// Link for messages to the node.
    pub link: LinkId,
    /// The ZMTP handshake on the link is complete.
    ready: bool,
    queue: Vec<Vec<u8>>,
    /// The node has received the list of all nodes.
    informed: bool,
    replacement: bool,
}

impl PsMember {
    pub(crate) fn new(attempt: u32, host: String, port: u16, link: LinkId) -> PsMember {
        PsMember {
            attempt,
            host,
            port,
            link,
            ready: false,
            queue: Vec::new(),
            informed: false,
            replacement: false,
        }
    }
}

#[derive(Debug)]
pub(super) struct PsMembers {
    workers: u32,
    servers: u32,
    registered: BTreeMap<TaskId, PsMember>,
    /// Nodes that wait at each barrier, by group. At most seven entries.
    barriers: BTreeMap<u8, BTreeSet<TaskId>>,
    /// All nodes have passed a barrier together. Later nodes are replacements and skip the barriers of the start.
    started: bool,
    timestamp: i32,
}

/// Returns the role and the ps-lite id of a task. Depends only on its name.
pub(super) fn node_identity(task: &TaskId) -> Option<(PsRole, i32)> {
    let index = i32::try_from(task.index).ok()?.checked_mul(2)?;
    match task.role.as_str() {
        SERVER => Some((PsRole::Server, index.checked_add(8)?)),
        WORKER => Some((PsRole::Worker, index.checked_add(9)?)),
        _ => None,
    }
}

impl PsMembers {
    pub(crate) fn new(workers: u32, servers: u32) -> PsMembers {
        PsMembers {
            workers,
            servers,
            registered: BTreeMap::new(),
            barriers: BTreeMap::new(),
            started: false,
            timestamp: 0,
        }
    }

    pub(crate) fn expects(&self, task: &TaskId) -> bool {
        let of_role = match task.role.as_str() {
            SERVER => self.servers,
            WORKER => self.workers,
            _ => 0,
        };
        task.index < of_role && node_identity(task).is_some()
    }

    pub(crate) fn get(&self, task: &TaskId) -> Option<&PsMember> {
        self.registered.get(task)
    }

    pub(crate) fn at(&self, link: LinkId) -> Option<&TaskId> {
        let found = self.registered.iter().find(|(_, member)| member.link == link);
        found.map(|(task, _)| task)
    }

    /// Returns another node with this address. Addresses must be unique: a node finds itself in the list by host and
    /// port.
    pub(crate) fn address_owner(&self, host: &str, port: u16, except: &TaskId) -> Option<&TaskId> {
        let same = |member: &PsMember| member.host == host && member.port == port;
        let mut others = self.registered.iter().filter(|(task, _)| *task != except);
        others.find(|(_, member)| same(member)).map(|(task, _)| task)
    }

    pub(crate) fn join(&mut self, task: TaskId, mut member: PsMember, effects: &mut Effects) {
        member.replacement = self.started;
        self.registered.insert(task, member);
        self.announce(effects);
    }

    /// Removes a node. Returns true if it was registered. A barrier that it reached stays reached, because its
    /// replacement skips the barriers of the start. Before the first barrier there are no replacements, so its entries
    /// are removed.
    pub(crate) fn leave(&mut self, task: &TaskId) -> bool {
        if !self.started {
            for reached in self.barriers.values_mut() {
                reached.remove(task);
            }
            self.barriers.retain(|_, reached| !reached.is_empty());
        }
        self.registered.remove(task).is_some()
    }

    /// Handles a completed handshake: sends the queued messages.
    pub(crate) fn ready(&mut self, link: LinkId, effects: &mut Effects) {
        if let Some(member) = self.registered.values_mut().find(|member| member.link == link) {
            member.ready = true;
            for message in member.queue.drain(..) {
                effects.send(link, message);
            }
        }
    }

    /// Handles the end of a dialed link. If its handshake was not complete, removes the node and returns its task and
    /// port.
    pub(crate) fn unreachable(&mut self, link: LinkId) -> Option<(TaskId, u16)> {
        let (task, member) = self.registered.iter().find(|(_, member)| member.link == link)?;
        if member.ready {
            return None;
        }
        let gone = (task.clone(), member.port);
        self.leave(&gone.0);
        Some(gone)
    }

    /// Sends the node lists once all nodes are registered: new nodes receive all nodes, the others the new ones. Lists
    /// are held back while a node is missing, because ps-lite aborts when it has a message for a missing node.
    fn announce(&mut self, effects: &mut Effects) {
        if self.registered.len() as u64 != u64::from(self.workers) + u64::from(self.servers) {
            return;
        }
        let all = self.list(|_| true);
        let new = self.list(|member| !member.informed);
        let [all, new] = [all, new].map(|nodes| {
            let control = PsControl { command: PsCommand::AddNode, nodes, group: 0 };
            self.message(control, None, EMPTY)
        });
        let tasks: Vec<TaskId> = self.registered.keys().cloned().collect();
        for task in tasks {
            let Some(member) = self.registered.get_mut(&task) else {
                continue;
            };
            let informed = std::mem::replace(&mut member.informed, true);
            self.send(&task, if informed { &new } else { &all }, effects);
        }
    }

    /// Returns the selected nodes, without the scheduler. A listed scheduler would make nodes connect to that address,
    /// but each node reaches it on a port of its own agent, over the link that it has already.
    fn list(&self, select: impl Fn(&PsMember) -> bool) -> Vec<PsNode> {
        let members = self.registered.iter().filter(|(_, member)| select(member));
        let nodes = members.filter_map(|(task, member)| {
            let (role, id) = node_identity(task)?;
            Some(PsNode {
                role,
                id,
                host: member.host.clone(),
                port: member.port.into(),
                is_recovery: member.replacement,
                customer: 0,
            })
        });
        nodes.collect()
    }

    /// Encodes a message. All receivers get the same bytes: ps-lite identifies messages by receiver and timestamp.
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

    fn send(&mut self, task: &TaskId, message: &[u8], effects: &mut Effects) {
        let Some(member) = self.registered.get_mut(task) else {
            return;
        };
        if member.ready {
            effects.send(member.link, message);
        } else if member.queue.len() < QUEUE_MAX {
            member.queue.push(message.to_vec());
        } else {
            effects.close(member.link);
            effects.log(format!("{task} does not respond on port {}", member.port));
            self.leave(task);
        }
    }

    /// Responds to a heartbeat. Changes no state, not even the timestamp.
    pub(crate) fn heartbeat(&self, task: &TaskId, effects: &mut Effects) {
        let Some(member) = self.registered.get(task).filter(|member| member.ready) else {
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
        effects.send(member.link, zmtp::message(&meta.write()));
    }

    /// Handles a node that reaches a barrier. The scheduler itself always counts as present.
    pub(crate) fn reach_barrier(
        &mut self,
        task: &TaskId,
        group: i32,
        (app, customer): (Option<i32>, i32),
        effects: &mut Effects,
    ) -> Result<(), Rejection> {
        let group = u8::try_from(group).unwrap_or(0);
        if group > ALL_NODES || !belongs(&task.role, group) {
            let what =
                format!("{task} entered a barrier of group {group}, to which it does not belong");
            return Err(Rejection::new(what));
        }
        if !self.registered.get(task).is_some_and(|member| member.informed) {
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
        self.started |= group == ALL_NODES;
        let control =
            PsControl { command: PsCommand::Barrier, nodes: Vec::new(), group: group.into() };
        let message = self.message(control, app, customer);
        for task in self.of(group) {
            self.send(&task, &message, effects);
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

    /// Returns the nodes that have not registered. If all have, returns those missing at a barrier, except nodes that
    /// wait at another barrier.
    pub(crate) fn missing(&self) -> Vec<TaskId> {
        let all = self.of(ALL_NODES).into_iter();
        let unregistered: Vec<TaskId> =
            all.filter(|task| !self.registered.contains_key(task)).collect();
        if !unregistered.is_empty() {
            return unregistered;
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
