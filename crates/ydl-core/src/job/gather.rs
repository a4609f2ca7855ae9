//! Rounds: who waits for whom, and what happens when somebody does not come.

use super::{Job, Mutant, Place, RoleState, Stage, TaskKey, Then, attempt::Gone, timers::Timer};
use crate::{
    action::Action,
    cluster::{Cluster, Member},
    ending::Cause,
    fact::What,
    spec::{Completion, Resources, RoleSpec, Scope},
    time::Time,
};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    format,
    string::String,
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
    asking_since: Option<Time>,
    /// Since when some hold containers while others ask.
    holding_since: Option<Time>,
    /// When a member was last ready that was not before, or is not any more.
    pub(super) changed: Time,
    /// It takes over from a round that was given up: it begins, where its roles are elastic, as soon as those who ran
    /// are ready again.
    pub(super) hurried: bool,
    /// The role that has used up a restart for it, while it may turn out that the cluster was the cause.
    pub(super) accused: Option<usize>,
    /// How often it gave everything back.
    tries: u32,
    /// Its members were added to this role while the others run. When they are all there, everybody in scope
    /// starts again with them; when they cannot be had, the role goes back to its old size.
    pub(super) newcomers: Option<(usize, Scope)>,
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

    /// Since when a gathering waits for what it cannot do without.
    pub(super) fn recount_waits(&mut self, round: u32) {
        let now = self.now;
        let Some(gathering) = self.gatherings.get(&round) else {
            return;
        };
        let asking = gathering.share.asked > 0 && self.is_short(gathering);
        let holding = asking && gathering.share.holds > 0;
        let since = |old: Option<Time>, still: bool| still.then(|| old.unwrap_or(now));
        if let Some(gathering) = self.gatherings.get_mut(&round) {
            gathering.asking_since = since(gathering.asking_since, asking);
            gathering.holding_since = since(gathering.holding_since, holding);
        }
        self.arm_gathering(round);
    }

    /// A new master: the cluster was not asked while there was none.
    pub(super) fn gather_anew(&mut self) {
        let now = self.now;
        let rounds: Vec<_> = self.gatherings.keys().copied().collect();
        for gathering in self.gatherings.values_mut() {
            gathering.asking_since = gathering.asking_since.map(|_| now);
            gathering.holding_since = gathering.holding_since.map(|_| now);
            gathering.changed = now;
        }
        for round in rounds {
            self.arm_gathering(round);
        }
        self.starved_since = self.starved_since.map(|_| now);
        for key in self.keys(None) {
            if let Place::Asked { since } = &mut self.task_mut(key).place {
                *since = now;
                self.arm(key);
            }
        }
    }

    fn arm_gathering(&mut self, round: u32) {
        let Some(gathering) = self.gatherings.get(&round) else {
            return;
        };
        let deadlines = &self.spec.deadlines;
        let allocation = gathering.asking_since.map(|at| at + deadlines.allocation);
        let hold = gathering.holding_since.map(|at| at + self.spec.gang.hold);
        let waits = [allocation, hold].into_iter().flatten();
        let waits = waits.filter(|_| !self.mutant.is(Mutant::NeverGivesBack));
        let at = waits.chain(self.settles_at(gathering)).min();
        self.timers.arm(Timer::Gathering(round), at);
    }

    /// How many tasks that wait for each other are ready, and of how many; those that nobody waits for left aside.
    pub(super) fn gathered(&self) -> (u32, u32) {
        let waited_for = |gathering: &&Gathering| {
            let newcomers = gathering.newcomers;
            newcomers.is_none_or(|(role, _)| self.range(role).is_none())
        };
        let gatherings = self.gatherings.values().filter(waited_for);
        gatherings.fold((0, 0), |(ready, of), gathering| {
            let members = gathering.members.len() as u32;
            (ready + gathering.share.ready, of + members)
        })
    }

    /// Begins every round whose members are all ready, once everybody they must know is there as well.
    pub(super) fn start_gathered(&mut self, out: &mut Vec<Action>) {
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
                (all || without > 0) && known && self.is_large_enough(None, 0)
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
        let apart: u32 = newcomers
            .map(|gathering| gathering.members.len() as u32 - gathering.share.ready)
            .sum();
        let there: u32 = self.roles.iter().map(RoleState::there).sum();
        (self.wanted() - there).saturating_sub(apart)
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
            (Some((role, Scope::Role)), Some(because)) => {
                self.new_round(Some(role), because, out);
                return;
            }
            (Some((_, Scope::Job)), Some(because)) => {
                self.new_round(None, because, out);
                return;
            }
            (Some((_, Scope::Task)) | None, _) | (_, None) => {}
        }
        self.set_aside(late, out);
        let tasks = ready.len() as u32;
        self.record(What::RoundStarted { round, tasks }, out);
        let cluster = Arc::new(self.cluster(round));
        for key in ready {
            self.start(key, cluster.clone(), out);
        }
    }

    /// Starts a task that nobody waits for.
    pub(super) fn start_alone(&mut self, key: TaskKey, out: &mut Vec<Action>) {
        let cluster = if self.spec.gang.together {
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
        let place = Place::Starting {
            on: on.clone(),
            since: self.now,
        };
        self.set_place(key, place);
        out.push(Action::Tell(on));
    }

    /// Everybody who is part of the job by now: newcomers who still gather are not.
    pub(super) fn cluster(&self, round: u32) -> Cluster {
        let roles = self.spec.roles.iter().enumerate();
        let members = roles.map(|(role, spec)| {
            let mut here: Vec<_> = self.keys_in(role).collect();
            if self.is_told(role) {
                // Who came later has a later round of its own. Those who stay keep their order, and the first of them is
                // the one whose state the others get.
                here.sort_by_key(|key| (self.task(*key).round, key.index));
            }
            let dense = here.iter().map(|key| key.index).eq(0..here.len() as u32);
            let indexes = here.iter().filter(|_| !dense).map(|key| key.index);
            let endpoint = |key: &TaskKey| self.task(*key).endpoint.clone().unwrap_or_default();
            Member {
                role: spec.name.clone(),
                instances: here.len() as u32,
                processes: spec.processes,
                indexes: indexes.collect(),
                endpoints: here.iter().map(endpoint).collect(),
            }
        });
        Cluster {
            round,
            roles: members.collect(),
        }
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
        let members = roles.map(|(spec, role)| Member {
            role: spec.name.clone(),
            instances: role.want,
            processes: spec.processes,
            indexes: Vec::new(),
            endpoints: Vec::new(),
        });
        self.bare = Arc::new(Cluster {
            round: self.round,
            roles: members.collect(),
        });
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

    /// A gathering has waited too long for containers.
    pub(super) fn on_gathering_due(&mut self, round: u32, out: &mut Vec<Action>) {
        let Some(gathering) = self.gatherings.get_mut(&round) else {
            return;
        };
        let asking_since = gathering.asking_since;
        let newcomers = gathering.newcomers;
        let allocation = self.spec.deadlines.allocation;
        let is_over = |since: Option<Time>, wait| since.is_some_and(|it| it + wait <= self.now);
        let late = is_over(asking_since, allocation);
        if !late && !is_over(gathering.holding_since, self.spec.gang.hold) {
            // Nothing has changed for a while: whether it begins is seen when everything has been heard.
            self.arm_gathering(round);
            return;
        }
        let last = late || gathering.tries >= self.spec.gang.retries;
        gathering.tries += 1;
        let tries = gathering.tries;
        let members = gathering.share.members;
        let missing = self.missing(asking_since);
        let give_up = newcomers.filter(|(role, _)| self.spec.roles[*role].elastic.is_none());
        match (last, give_up) {
            (true, Some((role, _))) => {
                let size = self.roles[role].want - members;
                self.resize(role, size, Some(missing), out);
            }
            (true, None) => self.fail(Cause::NoContainers { missing }, out),
            (false, _) => self.give_back(round, tries, missing, out),
        }
    }

    /// Half a gang keeps others from theirs: it gives back what it holds and asks again later.
    fn give_back(&mut self, round: u32, tries: u32, missing: String, out: &mut Vec<Action>) {
        let backoff = self.spec.gang.backoff.after(tries);
        let what = What::GangGaveBack {
            tries,
            backoff,
            missing,
        };
        self.record(what, out);
        let now = self.now;
        let until = now + backoff;
        let members = self.gatherings.get(&round).map(|it| it.members.clone());
        for key in members.unwrap_or_default() {
            match &self.task(key).place {
                Place::Launching { .. }
                | Place::Joining { .. }
                | Place::Ready { .. }
                | Place::Rewinding { .. } => {
                    self.part(key, Then::Again { at: until }, Gone::Unsure, false, out);
                }
                Place::Asked { .. } => self.set_place(key, Place::Idle { since: now, until }),
                Place::Idle { .. }
                | Place::Starting { .. }
                | Place::Running { .. }
                | Place::Stopping { .. }
                | Place::Leaving { .. }
                | Place::Over { .. } => {}
            }
        }
        self.arm_gathering(round);
    }

    /// What cannot be had, in one sentence.
    pub(super) fn missing(&self, since: Option<Time>) -> String {
        let mut missing = Vec::new();
        for (spec, role) in self.spec.roles.iter().zip(&self.roles) {
            for (memory_mib, tasks) in &role.asked {
                let size = Resources {
                    memory_mib: *memory_mib,
                    ..spec.resources.clone()
                };
                missing.push(format!("{} × `{}` ({size})", tasks.len(), spec.name));
            }
        }
        let waited = since
            .map(|since| format!(" after {}", self.now - since))
            .unwrap_or_default();
        let mut text = format!(
            "{} of {} containers were there{waited}; missing: {}",
            self.held.len(),
            self.wanted(),
            missing.join(", "),
        );
        let avoided = self.nodes.avoided();
        if !avoided.is_empty() {
            let names: Vec<_> = avoided.iter().map(|node| format!("`{node}`")).collect();
            text += &format!("; avoided nodes: {}", names.join(", "));
        }
        text
    }

    /// Tasks that start on their own may wait for each other's containers, but not all of them for nothing, and
    /// not for those of services, which never end.
    pub(super) fn watch_starvation(&mut self) {
        let alone = self.stage == Stage::Active && !self.spec.gang.together;
        let starved = alone && self.starved();
        self.starved_since = starved.then(|| self.starved_since.unwrap_or(self.now));
        let allocation = self.spec.deadlines.allocation;
        let at = self.starved_since.map(|since| since + allocation);
        self.timers.arm(Timer::Starved, at);
    }

    fn starved(&self) -> bool {
        let roles = || self.spec.roles.iter().zip(&self.roles);
        // Those who follow others need not end before them.
        let beside = [Completion::Service, Completion::Follows];
        let ends = |spec: &RoleSpec| !beside.contains(&spec.completion);
        let mut needed = roles().filter(|(spec, _)| ends(spec)).peekable();
        if needed.peek().is_none() {
            return self.held.is_empty() && roles().any(|(_, role)| !role.asked.is_empty());
        }
        let mut asked = false;
        for (_, role) in needed {
            if role.holding() > 0 {
                return false;
            }
            asked |= !role.asked.is_empty();
        }
        asked
    }
}
