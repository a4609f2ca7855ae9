//! Rounds: who waits for whom, and what happens when somebody does not come.

use super::{Job, Mutant, Place, Task, TaskKey, doubt::Accused, timers::Timer};
use crate::{
    action::Action,
    cluster::{Cluster, RoleMembers},
    history::{HistoryKind, RestartCause},
    spec::RestartScope,
    time::Time,
};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    vec::Vec,
};

/// A round that has not begun.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Gathering {
    pub(super) members: BTreeSet<TaskKey>,
    /// The sum of its members' shares.
    pub(super) share: Share,
    /// The same of each role.
    pub(super) shares: BTreeMap<usize, Share>,
    /// Since when anybody asks for what the round cannot do without.
    pub(super) asking_since: Option<Time>,
    /// Since when some hold containers while others ask.
    pub(super) holding_since: Option<Time>,
    /// When a member was last ready that was not before, or is not any more.
    pub(super) changed: Time,
    /// It takes over from a round that was given up: it begins, where its roles are elastic, as soon as those who ran
    /// are ready again.
    pub(super) hurried: bool,
    /// Whose failure has broken the round before, while it may turn out that the cluster was the cause.
    pub(super) accused: Option<Accused>,
    /// How often it gave everything back.
    pub(super) tries: u32,
    /// Its members were added to this role while the others run. When they are all there, everybody in scope
    /// starts again with them; when they cannot be had, the role goes back to its old size.
    pub(super) newcomers: Option<(usize, RestartScope)>,
}

/// What tasks add to the numbers of a gathering.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    /// How many there are.
    pub(super) members: u32,
    /// How many are ready.
    pub(super) ready: u32,
    /// How many wait for a container.
    pub(super) asked: u32,
    /// How many have a container that they can keep.
    pub(super) holds: u32,
    /// How many are stopped for the round.
    pub(super) rewinding: u32,
    /// How many are to be rid of a container first.
    pub(super) parting: u32,
}

impl Share {
    /// The same with one task's share changed.
    pub(super) fn with(self, was: Share, is: Share) -> Share {
        Share {
            members: self.members + is.members - was.members,
            ready: self.ready + is.ready - was.ready,
            asked: self.asked + is.asked - was.asked,
            holds: self.holds + is.holds - was.holds,
            rewinding: self.rewinding + is.rewinding - was.rewinding,
            parting: self.parting + is.parting - was.parting,
        }
    }
}

impl Job {
    pub(super) fn enter_gathering(&mut self, key: TaskKey, round: u32) {
        let task = self.task_mut(key);
        task.gathering = Some(round);
        let share = task.place.share();
        let gathering = self.gatherings.entry(round).or_default();
        gathering.members.insert(key);
        self.recount(round, key.role, Share::default(), share);
    }

    pub(super) fn leave_gathering(&mut self, key: TaskKey) {
        let task = self.task_mut(key);
        let Some(round) = task.gathering.take() else {
            return;
        };
        let share = task.place.share();
        let Some(gathering) = self.gatherings.get_mut(&round) else {
            return;
        };
        gathering.members.remove(&key);
        if gathering.members.is_empty() {
            self.forget_gathering(round);
        } else {
            self.recount(round, key.role, share, Share::default());
        }
    }

    pub(super) fn forget_gathering(&mut self, round: u32) -> Option<Gathering> {
        self.timers.arm(Timer::Gathering(round), None);
        self.gatherings.remove(&round)
    }

    /// A member's share has changed.
    pub(super) fn recount(&mut self, round: u32, role: usize, was: Share, is: Share) {
        let now = self.now;
        let Some(gathering) = self.gatherings.get_mut(&round) else {
            return;
        };
        gathering.share = gathering.share.with(was, is);
        let of_role = gathering.shares.entry(role).or_default();
        *of_role = of_role.with(was, is);
        if of_role.members == 0 {
            gathering.shares.remove(&role);
        }
        if was.ready != is.ready {
            gathering.changed = now;
        }
        self.recount_waits(round);
    }

    /// Rounds that wait for all their members, or for enough of them; those that nobody waits for left aside.
    fn awaited(&self) -> impl Iterator<Item = &Gathering> {
        let gatherings = self.gatherings.values();
        gatherings.filter(|gathering| {
            let newcomers = gathering.newcomers;
            newcomers.is_none_or(|(role, _)| self.range(role).is_none())
        })
    }

    /// How many tasks that wait for each other are ready, and of how many.
    pub(super) fn gathered(&self) -> (u32, u32) {
        self.awaited().fold((0, 0), |(ready, of), gathering| {
            let members = gathering.members.len() as u32;
            (ready + gathering.share.ready, of + members)
        })
    }

    /// Whom those who are ready wait for. Of elastic roles more is to be said.
    pub(super) fn not_ready(&self) -> Vec<TaskKey> {
        let members = self.awaited().flat_map(|gathering| &gathering.members);
        let fixed = members.filter(|key| self.range(key.role).is_none());
        let is_ready = |key: &TaskKey| matches!(self.task(*key).place, Place::Ready { .. });
        fixed.copied().filter(|key| !is_ready(key)).collect()
    }

    /// Begins every round whose members are all ready, once everybody they must know is there as well.
    pub(super) fn start_gathered(&mut self, out: &mut Vec<Action>) {
        if self.doubt.is_some() {
            return;
        }
        let lenient = u32::from(self.mutant.is(Mutant::StartsWithoutTheLast));
        loop {
            let absent = self.absent();
            let complete = |gathering: &Gathering| {
                let ready = gathering.share.ready;
                let members = gathering.share.members;
                let all = ready > 0 && ready + lenient >= members;
                if let Some((role, _)) = gathering.newcomers {
                    let enough = all || self.is_enough(gathering);
                    let known = !self.is_told(role)
                        || (absent <= lenient && self.is_large_enough(Some(role), ready));
                    return enough && known && self.is_welcome(gathering);
                }
                // Those without whom it begins are not waited for.
                let without = match self.is_enough(gathering) {
                    true => members - ready,
                    false => 0,
                };
                let known = absent.saturating_sub(without) <= lenient;
                let begins = (all || without > 0) && known && self.is_large_enough(None, 0);
                begins && self.has_let_go(gathering)
            };
            let mut gatherings = self.gatherings.iter();
            let Some((&round, _)) = gatherings.find(|(_, gathering)| complete(gathering)) else {
                self.hurry_no_more();
                return;
            };
            if let Some(gathering) = self.forget_gathering(round) {
                self.begin_round(round, gathering, out);
            }
        }
    }

    /// How many tasks have no address that others could be told, newcomers left aside.
    fn absent(&self) -> u32 {
        let gatherings = self.gatherings.values();
        let newcomers = gatherings.filter(|gathering| gathering.newcomers.is_some());
        let apart: u32 =
            newcomers.map(|gathering| gathering.members.len() as u32 - gathering.share.ready).sum();
        let roles = self.spec.roles.iter().zip(&self.roles);
        let known = roles.filter(|(spec, _)| !spec.is_sidecar());
        let (wanted, there) = known
            .fold((0, 0), |(wanted, there), (_, role)| (wanted + role.want, there + role.there()));
        (wanted - there).saturating_sub(apart)
    }

    /// Whether the tasks of a role start together with others.
    pub(super) fn gathers(&self, role: usize) -> bool {
        self.spec.gang.together && !self.spec.roles[role].is_sidecar()
    }

    fn begin_round(&mut self, round: u32, gathering: Gathering, out: &mut Vec<Action>) {
        for key in &gathering.members {
            self.task_mut(*key).gathering = None;
        }
        let (ready, late) = self.who_is_ready(&gathering);
        let because = ready.first().copied();
        if let Some((role, _)) = gathering.newcomers
            && self.is_told(role)
        {
            self.set_aside(late, out);
            self.admit(role, ready, out);
            return;
        }
        match (gathering.newcomers, because) {
            (Some((role, RestartScope::Role)), Some(because)) => {
                self.new_round(Some(role), (because, RestartCause::TaskJoined), out);
                return;
            }
            (Some((_, RestartScope::Job)), Some(because)) => {
                self.new_round(None, (because, RestartCause::TaskJoined), out);
                return;
            }
            (Some((_, RestartScope::Task)) | None, _) | (_, None) => {}
        }
        self.newest = self.newest.max(round);
        self.set_aside(late, out);
        let tasks = ready.len() as u32;
        self.record(HistoryKind::RoundStarted { round, tasks }, out);
        let cluster = Arc::new(self.cluster(round));
        self.say_over(out);
        out.push(Action::RoundStarted(cluster.clone()));
        for key in ready {
            self.start(key, cluster.clone(), out);
        }
    }

    /// Starts a task that nobody waits for.
    pub(super) fn start_alone(&mut self, key: TaskKey, out: &mut Vec<Action>) {
        let cluster = if self.gathers(key.role) {
            Arc::new(self.cluster(self.task(key).round))
        } else {
            self.bare.clone()
        };
        self.start(key, cluster, out);
    }

    pub(super) fn start(&mut self, key: TaskKey, cluster: Arc<Cluster>, out: &mut Vec<Action>) {
        let Place::Ready { on, .. } = &self.task(key).place else {
            return;
        };
        let on = on.clone();
        self.task_mut(key).cluster = Some(cluster);
        let place = Place::Starting { on: on.clone(), since: self.now };
        self.set_place(key, place);
        let run = self.run(key);
        self.task_mut(key).speaks = Some(run);
        self.begun |= !self.spec.roles[key.role].is_sidecar();
        out.push(Action::OrderChanged(on));
    }

    /// Everybody who is part of the job by now: newcomers who still gather are not.
    pub(super) fn cluster(&self, round: u32) -> Cluster {
        self.cluster_of(round, |_| true)
    }

    /// The same with only some of them.
    pub(super) fn cluster_of(&self, round: u32, is_in: impl Fn(&Task) -> bool) -> Cluster {
        let roles = self.spec.roles.iter().enumerate();
        let roles = roles.filter(|(_, spec)| !spec.is_sidecar());
        let members = roles.map(|(role, spec)| {
            let here = self.keys_in(role);
            let mut here: Vec<_> = here.filter(|key| is_in(self.task(*key))).collect();
            if self.is_told(role) {
                // Who came later has a later round of its own. Those who stay keep their order, and the first of them is
                // the one whose state the others get.
                here.sort_by_key(|key| (self.task(*key).round, key.index));
            }
            let dense = here.iter().map(|key| key.index).eq(0..here.len() as u32);
            let indexes = here.iter().filter(|_| !dense).map(|key| key.index);
            let endpoint = |key: &TaskKey| self.task(*key).endpoint.clone().unwrap_or_default();
            RoleMembers {
                role: spec.name.clone(),
                instances: here.len() as u32,
                processes: spec.processes,
                indexes: indexes.collect(),
                endpoints: here.iter().map(endpoint).collect(),
            }
        });
        Cluster { round, roles: members.collect() }
    }

    /// The tasks of a role without its newcomers.
    pub(super) fn keys_in(&self, role: usize) -> impl Iterator<Item = TaskKey> {
        let counts = self.mutant.is(Mutant::CountsOnNewcomers);
        let mut apart: BTreeSet<TaskKey> = BTreeSet::new();
        for gathering in self.gatherings.values().filter(|_| !counts) {
            if gathering.newcomers.is_some_and(|(of, _)| of == role) {
                apart.extend(&gathering.members);
            }
        }
        let keys = self.keys(Some(role)).into_iter();
        keys.filter(move |key| !apart.contains(key))
    }

    /// Tells tasks that start on their own how many they are.
    pub(super) fn tell_sizes(&mut self) {
        let roles = self.spec.roles.iter().zip(&self.roles);
        let roles = roles.filter(|(spec, _)| !spec.is_sidecar());
        let members = roles.map(|(spec, role)| RoleMembers {
            role: spec.name.clone(),
            instances: role.want,
            processes: spec.processes,
            indexes: Vec::new(),
            endpoints: Vec::new(),
        });
        self.bare = Arc::new(Cluster { round: self.round, roles: members.collect() });
    }

    /// The share of the port range that is this task's. Where a framework sorts its peers by port, ports must
    /// ascend with the index; everybody else may take any.
    pub(super) fn slot(&self, key: TaskKey) -> (u32, u32) {
        if !self.spec.framework.ports_ascend() {
            return (0, 1);
        }
        let before: u32 = self.roles[..key.role].iter().map(|role| role.want).sum();
        (before + key.index, self.wanted())
    }

    /// How many tasks the job should have.
    pub(super) fn wanted(&self) -> u32 {
        self.roles.iter().map(|role| role.want).sum()
    }
}
