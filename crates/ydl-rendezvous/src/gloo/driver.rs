//! The driver of an elastic job: decides when the next world starts.
//!
//! The world changes when members leave and when new workers join. The members of the next world are set from outside;
//! the driver chooses the moment. Horovod's processes learn their ranks twice: from their environment when they start,
//! and through a rank request when they meet again. Hence:
//! * A new worker knows the ranks of the world it was started for, and cannot join another. Its requests are held until
//!   that world starts. If the world cannot start because another member has left, the worker is disconnected and must
//!   restart.
//! * The other members train on until all new workers of the next world are present. Then rank 0 is notified and
//!   notifies the others. `notify` repeats the notification until it takes effect.
//! * A world starts when every remaining member of the last one has requested its rank and every new worker is present.
//!
//! Remaining members keep their order and new workers follow, because rank 0 has the state that the others copy. The
//! caller who sets the members ensures that.

mod notify;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ydl_core::{Cluster, TaskId};

use super::{
    http::{self, HttpParseError},
    limits::{GlooLimits, WorldEvent},
    store::GlooStore,
    world::{ProcessSlot, World},
};
use crate::{Effects, LinkId, Peer, Protocol, Rejection, RetryTimer};

/// Maximum number of planned worlds. Each one but the last has new workers of its own.
const PLANS_MAX: usize = 64;

/// A store and its planned worlds.
#[derive(Debug)]
pub struct GlooDriver {
    store: GlooStore,
    limits: GlooLimits,
    /// Members of the current world that have ended.
    departed: BTreeSet<TaskId>,
    /// The next worlds, in order.
    plans: VecDeque<PlannedWorld>,
    planned: u32,
    /// New workers, by the plan they were started for.
    new_workers: BTreeMap<TaskId, u32>,
    links: BTreeMap<LinkId, TaskId>,
    /// Requests of new workers for a world that has not started.
    held: BTreeMap<LinkId, Vec<u8>>,
    held_bytes: usize,
}

#[derive(Debug)]
struct PlannedWorld {
    number: u32,
    world: World,
    /// Rank 0 was notified of the new workers.
    notified: bool,
    /// Number of failed notifications.
    failures: u32,
    /// Number of repeated notifications.
    retries: u32,
}

impl GlooDriver {
    /// Creates a driver for a round that starts with `members`.
    pub fn new(members: &Cluster, limits: GlooLimits) -> GlooDriver {
        GlooDriver {
            store: GlooStore::new(World::of(members), limits),
            limits,
            departed: BTreeSet::new(),
            plans: VecDeque::new(),
            planned: 0,
            new_workers: BTreeMap::new(),
            links: BTreeMap::new(),
            held: BTreeMap::new(),
            held_bytes: 0,
        }
    }

    /// Returns the current world.
    pub fn world(&self) -> &World {
        self.store.world()
    }

    /// Returns true if a task is a member of the current world and has not ended.
    fn is_active(&self, task: &TaskId) -> bool {
        !self.departed.contains(task) && self.world().has(task)
    }

    /// Returns true if each member of a planned world is active or was started for it.
    fn can_start(&self, plan: &PlannedWorld) -> bool {
        let fits = |task: &TaskId| {
            self.is_active(task) || self.new_workers.get(task) == Some(&plan.number)
        };
        plan.world.tasks().keys().all(fits)
    }

    fn has_new_workers(&self, plan: &PlannedWorld) -> bool {
        self.new_workers.values().any(|number| *number == plan.number)
    }

    /// Returns true if all processes of new workers have sent a request.
    fn is_present(&self, world: &World) -> bool {
        let mut held: BTreeMap<&TaskId, usize> = BTreeMap::new();
        for task in self.held.keys().filter_map(|link| self.links.get(link)) {
            *held.entry(task).or_default() += 1;
        }
        let present = |task: &TaskId| held.get(task).copied().unwrap_or_default();
        let mut tasks = world.tasks().iter();
        tasks.all(|(task, processes)| self.is_active(task) || present(task) >= *processes)
    }

    /// Returns true if each remaining member has requested its rank.
    fn all_requested(&self) -> bool {
        let requested: BTreeSet<&ProcessSlot> = self.store.rank_requests().collect();
        let mut members = self.world().members().iter();
        members
            .all(|member| self.departed.contains(&member.task) || requested.contains(&member.slot))
    }

    /// Returns true if no change is pending.
    fn is_stable(&self) -> bool {
        self.plans.is_empty()
            && self.departed.is_empty()
            && self.held.is_empty()
            && self.store.rank_requests().next().is_none()
    }

    /// Starts the next world or notifies rank 0, if possible.
    fn advance(&mut self, effects: &mut Effects) {
        while !self.is_stable() {
            self.drop_plans();
            self.disconnect_outdated(effects);
            let next = self.plans.front();
            let world = next.map_or(self.world(), |plan| &plan.world);
            if next.is_some_and(|plan| !self.can_start(plan)) || !self.is_present(world) {
                return;
            }
            if self.all_requested() {
                let changes = next.is_some();
                self.start_world(effects);
                match changes {
                    true => continue,
                    false => return,
                }
            }
            self.notify(effects);
            return;
        }
    }

    /// Drops plans that cannot start, and those that a later one supersedes.
    fn drop_plans(&mut self) {
        while let Some(plan) = self.plans.front() {
            let last = self.plans.len() == 1;
            let same = plan.world == *self.world() && self.departed.is_empty();
            let superseded = !last && (!self.has_new_workers(plan) || !self.can_start(plan));
            if !same && !superseded && self.plans.len() <= PLANS_MAX {
                return;
            }
            self.plans.pop_front();
        }
    }

    /// Disconnects new workers of dropped plans. They must restart to learn other ranks.
    fn disconnect_outdated(&mut self, effects: &mut Effects) {
        let outdated: Vec<LinkId> = self
            .held
            .keys()
            .filter(|link| {
                let task = self.links.get(link);
                task.is_some_and(|task| self.is_outdated(task))
            })
            .copied()
            .collect();
        for link in outdated {
            if let Some(task) = self.links.get(&link) {
                effects.log(format!("{task} must restart: the world has changed since it started"));
            }
            effects.close(link);
            self.close(link, effects);
        }
    }

    /// Starts the next world, or the current one again.
    fn start_world(&mut self, effects: &mut Effects) {
        let world = match self.plans.pop_front() {
            Some(plan) => {
                self.new_workers.retain(|_, number| *number != plan.number);
                plan.world
            }
            None => self.world().clone(),
        };
        effects.log(format!("world of size {} started", world.members().len()));
        self.departed.clear();
        self.store.handle(WorldEvent::Started(world), effects);
        for (link, bytes) in std::mem::take(&mut self.held) {
            let task = self.links.get(&link);
            if !task.is_some_and(|task| self.is_active(task)) {
                self.held.insert(link, bytes);
                continue;
            }
            self.held_bytes -= bytes.len();
            if let Err(why) = self.store.receive(link, &bytes, effects) {
                effects.log(format!("rejected a request of a new worker: {why}"));
                effects.close(link);
                self.close(link, effects);
            }
        }
    }

    fn hold(
        &mut self,
        link: LinkId,
        task: &TaskId,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<Option<usize>, Rejection> {
        if self.held.contains_key(&link) {
            return Err(Rejection::new("second request before the response to the first"));
        }
        let length = match http::parse(bytes) {
            Ok(request) => request.length,
            Err(HttpParseError::Incomplete(_)) => return Ok(None),
            Err(HttpParseError::Invalid(rejection)) => return Err(rejection),
        };
        if self.is_outdated(task) {
            return Err(Rejection::new("the world of this worker no longer exists"));
        }
        // The request is for a planned world, or for the current one again.
        let worlds = self.plans.iter().map(|plan| &plan.world);
        let worlds = worlds.chain([self.world()]);
        let largest = worlds.map(|world| world.members().len()).max();
        let held_max = self.limits.stored_bytes_for(largest.unwrap_or_default());
        if self.held.len() >= self.limits.rank_requests || self.held_bytes + length > held_max {
            return Err(Rejection::new("too many pending requests of new workers"));
        }
        self.held_bytes += length;
        self.held.insert(link, bytes[..length].to_vec());
        effects.persist();
        self.advance(effects);
        Ok(Some(length))
    }
}

impl Protocol for GlooDriver {
    fn max_message_len(&self) -> usize {
        self.store.max_message_len()
    }

    fn open(&mut self, link: LinkId, peer: &Peer, effects: &mut Effects) {
        if let LinkId::Accepted(_) = link {
            self.links.insert(link, peer.task.clone());
        }
        self.store.open(link, peer, effects);
    }

    fn receive(
        &mut self,
        link: LinkId,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<Option<usize>, Rejection> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let task = self.links.get(&link).cloned();
        if let Some(task) = task.filter(|task| !self.is_active(task)) {
            return self.hold(link, &task, bytes, effects);
        }
        let length = self.store.receive(link, bytes, effects)?;
        if length.is_some() && effects.is_persistent() {
            self.advance(effects);
        }
        Ok(length)
    }

    fn close(&mut self, link: LinkId, effects: &mut Effects) {
        self.links.remove(&link);
        if let Some(bytes) = self.held.remove(&link) {
            self.held_bytes -= bytes.len();
            effects.persist();
        }
        self.store.close(link, effects);
        if let (LinkId::Dialed(_), true) = (link, effects.is_persistent()) {
            self.notification_failed(effects);
        }
    }

    fn attempt_ended(&mut self, peer: &Peer, effects: &mut Effects) {
        self.new_workers.remove(&peer.task);
        if self.world().has(&peer.task) {
            self.departed.insert(peer.task.clone());
        }
        self.store.attempt_ended(peer, effects);
        self.advance(effects);
    }

    fn members_changed(&mut self, members: &Cluster, effects: &mut Effects) {
        let world = World::of(members);
        self.planned += 1;
        let tasks = world.tasks().keys();
        let new_workers: Vec<&TaskId> = tasks.filter(|task| !self.is_active(task)).collect();
        for task in new_workers {
            self.new_workers.entry(task.clone()).or_insert(self.planned);
        }
        self.plans.push_back(PlannedWorld {
            number: self.planned,
            world,
            notified: false,
            failures: 0,
            retries: 0,
        });
        self.advance(effects);
    }

    fn retry_timer(&self) -> Option<RetryTimer> {
        self.pending_retry()
    }

    fn retry(&mut self, effects: &mut Effects) {
        effects.persist();
        self.notify_again(effects);
    }

    fn is_outdated(&self, task: &TaskId) -> bool {
        let started = self.new_workers.get(task);
        started.is_some_and(|number| self.plans.iter().all(|plan| plan.number != *number))
    }

    fn missing(&self) -> Vec<TaskId> {
        let mut missing = self.store.missing();
        missing.retain(|task| self.is_active(task));
        if let (Some(plan), Some(_)) = (self.plans.front(), self.store.rank_requests().next()) {
            let held: BTreeSet<&TaskId> =
                self.held.keys().filter_map(|link| self.links.get(link)).collect();
            let tasks = plan.world.tasks().keys();
            let new_workers = tasks.filter(|task| !self.is_active(task) && !held.contains(task));
            missing.extend(new_workers.cloned());
        }
        missing
    }
}
