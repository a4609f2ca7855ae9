//! The driver's side of a job: when the next world begins, and with whom.
//!
//! The world changes when members go, by themselves or because others decided so, and when newcomers come. Who is to be
//! in the next one is told from outside; this is about the moment. Horovod's processes learn their numbers at two times:
//! from their environment when they start, and by asking when they meet again. Hence:
//! * A newcomer has the numbers of the world for which it was started, and can be in no other. What it says is held until
//!   that world begins; if the world cannot begin any more, because somebody else has gone, it is sent away to start
//!   again.
//! * The others train on until all newcomers of the next world are there. Then rank 0 is told, and tells them. `announce` sees to it
//!   that it heeds it.
//! * A world begins when everybody who is left of the last one has asked for its number, and every newcomer is there.
//!
//! Those who stay keep their order, and newcomers follow: rank 0 has the state that the others get. That is for whoever
//! says who is in a world to see to.

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

/// Worlds that are waited for. Each one but the last has newcomers of its own.
const PLANS_MAX: usize = 64;

/// A store, and the worlds that it is to have next.
#[derive(Debug)]
pub struct GlooDriver {
    store: GlooStore,
    limits: GlooLimits,
    /// Members of the world of now whose program has ended.
    gone: BTreeSet<TaskId>,
    /// The next worlds, in their order.
    plans: VecDeque<PlannedWorld>,
    planned: u32,
    /// For which plan newcomers were started.
    newcomers: BTreeMap<TaskId, u32>,
    links: BTreeMap<LinkId, TaskId>,
    /// What newcomers say before their world begins.
    held: BTreeMap<LinkId, Vec<u8>>,
    held_bytes: usize,
}

#[derive(Debug)]
struct PlannedWorld {
    number: u32,
    world: World,
    /// Rank 0 was told that newcomers are there.
    announced: bool,
    /// So often it could not be told.
    untold: u32,
    /// So often it was told again because it had not heeded it.
    repeated: u32,
}

impl GlooDriver {
    /// For a round that begins with these members.
    pub fn new(members: &Cluster, limits: GlooLimits) -> GlooDriver {
        GlooDriver {
            store: GlooStore::new(World::of(members), limits),
            limits,
            gone: BTreeSet::new(),
            plans: VecDeque::new(),
            planned: 0,
            newcomers: BTreeMap::new(),
            links: BTreeMap::new(),
            held: BTreeMap::new(),
            held_bytes: 0,
        }
    }

    /// The world of now.
    pub fn world(&self) -> &World {
        self.store.world()
    }

    /// Whether a task has been in this world from its beginning, and is still.
    fn lives(&self, task: &TaskId) -> bool {
        !self.gone.contains(task) && self.world().has(task)
    }

    /// Whether everybody in a world lives, or was started for it.
    fn can_be(&self, plan: &PlannedWorld) -> bool {
        let fits =
            |task: &TaskId| self.lives(task) || self.newcomers.get(task) == Some(&plan.number);
        plan.world.tasks().keys().all(fits)
    }

    fn has_newcomers(&self, plan: &PlannedWorld) -> bool {
        self.newcomers.values().any(|number| *number == plan.number)
    }

    /// Whether all processes of those who do not live are there.
    fn is_there(&self, world: &World) -> bool {
        let mut held: BTreeMap<&TaskId, usize> = BTreeMap::new();
        for task in self.held.keys().filter_map(|link| self.links.get(link)) {
            *held.entry(task).or_default() += 1;
        }
        let there = |task: &TaskId| held.get(task).copied().unwrap_or_default();
        let mut tasks = world.tasks().iter();
        tasks.all(|(task, processes)| self.lives(task) || there(task) >= *processes)
    }

    /// Whether everybody who is left has asked for its number.
    fn all_ask(&self) -> bool {
        let asking: BTreeSet<&ProcessSlot> = self.store.asking().collect();
        let mut members = self.world().members().iter();
        members.all(|member| self.gone.contains(&member.task) || asking.contains(&member.slot))
    }

    /// Whether everybody is there and nobody wants another world, as in most jobs at most times.
    fn is_settled(&self) -> bool {
        self.plans.is_empty()
            && self.gone.is_empty()
            && self.held.is_empty()
            && self.store.asking().next().is_none()
    }

    /// Does whatever can be done now.
    fn step(&mut self, effects: &mut Effects) {
        while !self.is_settled() {
            self.forget_plans();
            self.send_away(effects);
            let next = self.plans.front();
            let world = next.map_or(self.world(), |plan| &plan.world);
            if next.is_some_and(|plan| !self.can_be(plan)) || !self.is_there(world) {
                return;
            }
            if self.all_ask() {
                let changes = next.is_some();
                self.begin(effects);
                match changes {
                    true => continue,
                    false => return,
                }
            }
            self.announce(effects);
            return;
        }
    }

    /// Plans that cannot be any more, and those that a later one makes needless.
    fn forget_plans(&mut self) {
        while let Some(plan) = self.plans.front() {
            let last = self.plans.len() == 1;
            let same = plan.world == *self.world() && self.gone.is_empty();
            let needless = !last && (!self.has_newcomers(plan) || !self.can_be(plan));
            if !same && !needless && self.plans.len() <= PLANS_MAX {
                return;
            }
            self.plans.pop_front();
        }
    }

    /// Newcomers whose world will not be. They have its numbers, and must start again to learn others.
    fn send_away(&mut self, effects: &mut Effects) {
        let away: Vec<LinkId> = self
            .held
            .keys()
            .filter(|link| {
                let task = self.links.get(link);
                task.is_some_and(|task| self.is_outdated(task))
            })
            .copied()
            .collect();
        for link in away {
            if let Some(task) = self.links.get(&link) {
                effects.log(format!("{task} must restart: the world has changed since it started"));
            }
            effects.close(link);
            self.close(link, effects);
        }
    }

    /// The next world, or the same once more.
    fn begin(&mut self, effects: &mut Effects) {
        let world = match self.plans.pop_front() {
            Some(plan) => {
                self.newcomers.retain(|_, number| *number != plan.number);
                plan.world
            }
            None => self.world().clone(),
        };
        effects.log(format!("world started with {} processes", world.members().len()));
        self.gone.clear();
        self.store.hear(WorldEvent::Started(world), effects);
        for (link, bytes) in std::mem::take(&mut self.held) {
            let task = self.links.get(&link);
            if !task.is_some_and(|task| self.lives(task)) {
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
        let length = match http::read(bytes) {
            Ok(request) => request.length,
            Err(HttpParseError::Incomplete(_)) => return Ok(None),
            Err(HttpParseError::Invalid(rejection)) => return Err(rejection),
        };
        if self.is_outdated(task) {
            return Err(Rejection::new("the world of this worker no longer exists"));
        }
        // They meet in one of the next worlds, or in the same once more.
        let worlds = self.plans.iter().map(|plan| &plan.world);
        let worlds = worlds.chain([self.world()]);
        let largest = worlds.map(|world| world.members().len()).max();
        let held_max = self.limits.stored(largest.unwrap_or_default());
        if self.held.len() >= self.limits.asking || self.held_bytes + length > held_max {
            return Err(Rejection::new("too many pending requests of new workers"));
        }
        self.held_bytes += length;
        self.held.insert(link, bytes[..length].to_vec());
        effects.persist();
        self.step(effects);
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
        if let Some(task) = task.filter(|task| !self.lives(task)) {
            return self.hold(link, &task, bytes, effects);
        }
        let taken = self.store.receive(link, bytes, effects)?;
        if taken.is_some() && effects.is_persistent() {
            self.step(effects);
        }
        Ok(taken)
    }

    fn close(&mut self, link: LinkId, effects: &mut Effects) {
        self.links.remove(&link);
        if let Some(bytes) = self.held.remove(&link) {
            self.held_bytes -= bytes.len();
            effects.persist();
        }
        self.store.close(link, effects);
        if let (LinkId::Dialed(_), true) = (link, effects.is_persistent()) {
            self.untold(effects);
        }
    }

    fn attempt_ended(&mut self, peer: &Peer, effects: &mut Effects) {
        self.newcomers.remove(&peer.task);
        if self.world().has(&peer.task) {
            self.gone.insert(peer.task.clone());
        }
        self.store.attempt_ended(peer, effects);
        self.step(effects);
    }

    fn members_changed(&mut self, members: &Cluster, effects: &mut Effects) {
        let world = World::of(members);
        self.planned += 1;
        let tasks = world.tasks().keys();
        let newcomers: Vec<&TaskId> = tasks.filter(|task| !self.lives(task)).collect();
        for task in newcomers {
            self.newcomers.entry(task.clone()).or_insert(self.planned);
        }
        self.plans.push_back(PlannedWorld {
            number: self.planned,
            world,
            announced: false,
            untold: 0,
            repeated: 0,
        });
        self.step(effects);
    }

    fn retry_timer(&self) -> Option<RetryTimer> {
        self.unheeded()
    }

    fn retry(&mut self, effects: &mut Effects) {
        effects.persist();
        self.announce_again(effects);
    }

    fn is_outdated(&self, task: &TaskId) -> bool {
        let started = self.newcomers.get(task);
        started.is_some_and(|number| self.plans.iter().all(|plan| plan.number != *number))
    }

    fn missing(&self) -> Vec<TaskId> {
        let mut missing = self.store.missing();
        missing.retain(|task| self.lives(task));
        if let (Some(plan), Some(_)) = (self.plans.front(), self.store.asking().next()) {
            let held: BTreeSet<&TaskId> =
                self.held.keys().filter_map(|link| self.links.get(link)).collect();
            let tasks = plan.world.tasks().keys();
            let newcomers = tasks.filter(|task| !self.lives(task) && !held.contains(task));
            missing.extend(newcomers.cloned());
        }
        missing
    }
}
