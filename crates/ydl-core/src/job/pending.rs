//! Rounds: who waits for whom, and what happens when somebody does not come.

use super::{Job, Mutant, Phase, Task, TaskKey, suspect::ChargedFailure, timers::Timer};
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
pub(super) struct PendingRound {
    pub(super) members: BTreeSet<TaskKey>,
    /// The sum of its members' shares.
    pub(super) share: RoundCounts,
    /// The same of each role.
    pub(super) shares: BTreeMap<usize, RoundCounts>,
    /// Since when anybody asks for what the round cannot do without.
    pub(super) asking_since: Option<Time>,
    /// Since when some hold containers while others ask.
    pub(super) holding_since: Option<Time>,
    /// When a member was last ready that was not before, or is not any more.
    pub(super) changed: Time,
    /// It takes over from a round that was given up: it begins, where its roles are elastic, as soon as those who ran
    /// are ready again.
    pub(super) expedited: bool,
    /// Whose failure has broken the round before, while it may turn out that the cluster was the cause.
    pub(super) charged: Option<ChargedFailure>,
    /// How often it gave everything back.
    pub(super) tries: u32,
    /// Its members were added to this role while the others run. When they are all there, everybody in scope
    /// starts again with them; when they cannot be had, the role goes back to its old size.
    pub(super) newcomers: Option<(usize, RestartScope)>,
}

/// What tasks add to the numbers of a gathering.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RoundCounts {
    /// How many there are.
    pub(super) members: u32,
    /// How many are ready.
    pub(super) ready: u32,
    /// How many wait for a container.
    pub(super) asked: u32,
    /// How many have a container that they can keep.
    pub(super) holds: u32,
    /// How many are stopped for the round.
    pub(super) restarting: u32,
    /// How many are to be rid of a container first.
    pub(super) releasing: u32,
}

impl RoundCounts {
    /// The same with one task's share changed.
    pub(super) fn with(self, was: RoundCounts, is: RoundCounts) -> RoundCounts {
        RoundCounts {
            members: self.members + is.members - was.members,
            ready: self.ready + is.ready - was.ready,
            asked: self.asked + is.asked - was.asked,
            holds: self.holds + is.holds - was.holds,
            restarting: self.restarting + is.restarting - was.restarting,
            releasing: self.releasing + is.releasing - was.releasing,
        }
    }
}

impl Job {
    pub(super) fn join_pending_round(&mut self, key: TaskKey, round: u32) {
        let task = self.task_mut(key);
        task.pending = Some(round);
        let share = task.phase.share();
        let pending = self.pending_rounds.entry(round).or_default();
        pending.members.insert(key);
        self.update_counts(round, key.role, RoundCounts::default(), share);
    }

    pub(super) fn leave_pending_round(&mut self, key: TaskKey) {
        let task = self.task_mut(key);
        let Some(round) = task.pending.take() else {
            return;
        };
        let share = task.phase.share();
        let Some(pending) = self.pending_rounds.get_mut(&round) else {
            return;
        };
        pending.members.remove(&key);
        if pending.members.is_empty() {
            self.remove_pending_round(round);
        } else {
            self.update_counts(round, key.role, share, RoundCounts::default());
        }
    }

    pub(super) fn remove_pending_round(&mut self, round: u32) -> Option<PendingRound> {
        self.timers.arm(Timer::PendingRound(round), None);
        self.pending_rounds.remove(&round)
    }

    /// A member's share has changed.
    pub(super) fn update_counts(
        &mut self,
        round: u32,
        role: usize,
        was: RoundCounts,
        is: RoundCounts,
    ) {
        let now = self.now;
        let Some(pending) = self.pending_rounds.get_mut(&round) else {
            return;
        };
        pending.share = pending.share.with(was, is);
        let of_role = pending.shares.entry(role).or_default();
        *of_role = of_role.with(was, is);
        if of_role.members == 0 {
            pending.shares.remove(&role);
        }
        if was.ready != is.ready {
            pending.changed = now;
        }
        self.update_wait_times(round);
    }

    /// Rounds that wait for all their members, or for enough of them; those that nobody waits for left aside.
    fn awaited(&self) -> impl Iterator<Item = &PendingRound> {
        let pending_rounds = self.pending_rounds.values();
        pending_rounds.filter(|pending| {
            let newcomers = pending.newcomers;
            newcomers.is_none_or(|(role, _)| self.range(role).is_none())
        })
    }

    /// How many tasks that wait for each other are ready, and of how many.
    pub(super) fn ready_counts(&self) -> (u32, u32) {
        self.awaited().fold((0, 0), |(ready, of), pending| {
            let members = pending.members.len() as u32;
            (ready + pending.share.ready, of + members)
        })
    }

    /// Whom those who are ready wait for. Of elastic roles more is to be said.
    pub(super) fn not_ready(&self) -> Vec<TaskKey> {
        let members = self.awaited().flat_map(|pending| &pending.members);
        let fixed = members.filter(|key| self.range(key.role).is_none());
        let is_ready = |key: &TaskKey| matches!(self.task(*key).phase, Phase::Ready { .. });
        fixed.copied().filter(|key| !is_ready(key)).collect()
    }

    /// Begins every round whose members are all ready, once everybody they must know is there as well.
    pub(super) fn start_complete_rounds(&mut self, out: &mut Vec<Action>) {
        if self.suspicion.is_some() {
            return;
        }
        let lenient = u32::from(self.mutant.is(Mutant::StartsWithoutLast));
        loop {
            let absent = self.unreachable_count();
            let complete = |pending: &PendingRound| {
                let ready = pending.share.ready;
                let members = pending.share.members;
                let all = ready > 0 && ready + lenient >= members;
                if let Some((role, _)) = pending.newcomers {
                    let enough = all || self.can_start(pending);
                    let known = !self.is_notified(role)
                        || (absent <= lenient && self.meets_minimum(Some(role), ready));
                    return enough && known && self.may_admit(pending);
                }
                // Those without whom it begins are not waited for.
                let without = match self.can_start(pending) {
                    true => members - ready,
                    false => 0,
                };
                let known = absent.saturating_sub(without) <= lenient;
                let begins = (all || without > 0) && known && self.meets_minimum(None, 0);
                begins && self.has_stopped_dropped(pending)
            };
            let mut pending_rounds = self.pending_rounds.iter();
            let Some((&round, _)) = pending_rounds.find(|(_, pending)| complete(pending)) else {
                self.clear_expedited();
                return;
            };
            if let Some(pending) = self.remove_pending_round(round) {
                self.start_round(round, pending, out);
            }
        }
    }

    /// How many tasks have no address that others could be told, newcomers left aside.
    fn unreachable_count(&self) -> u32 {
        let pending_rounds = self.pending_rounds.values();
        let newcomers = pending_rounds.filter(|pending| pending.newcomers.is_some());
        let apart: u32 =
            newcomers.map(|pending| pending.members.len() as u32 - pending.share.ready).sum();
        let roles = self.spec.roles.iter().zip(&self.roles);
        let known = roles.filter(|(spec, _)| !spec.is_sidecar());
        let (wanted, there) = known.fold((0, 0), |(wanted, there), (_, role)| {
            (wanted + role.want, there + role.reachable())
        });
        (wanted - there).saturating_sub(apart)
    }

    /// Whether the tasks of a role start together with others.
    pub(super) fn starts_together(&self, role: usize) -> bool {
        self.spec.gang.together && !self.spec.roles[role].is_sidecar()
    }

    fn start_round(&mut self, round: u32, pending: PendingRound, out: &mut Vec<Action>) {
        for key in &pending.members {
            self.task_mut(*key).pending = None;
        }
        let (ready, late) = self.partition_ready(&pending);
        let because = ready.first().copied();
        if let Some((role, _)) = pending.newcomers
            && self.is_notified(role)
        {
            self.defer(late, out);
            self.admit(role, ready, out);
            return;
        }
        match (pending.newcomers, because) {
            (Some((role, RestartScope::Role)), Some(because)) => {
                self.restart_round(Some(role), (because, RestartCause::TaskJoined), out);
                return;
            }
            (Some((_, RestartScope::Job)), Some(because)) => {
                self.restart_round(None, (because, RestartCause::TaskJoined), out);
                return;
            }
            (Some((_, RestartScope::Task)) | None, _) | (_, None) => {}
        }
        self.newest = self.newest.max(round);
        self.defer(late, out);
        let tasks = ready.len() as u32;
        self.record(HistoryKind::RoundStarted { round, tasks }, out);
        let cluster = Arc::new(self.cluster(round));
        self.report_retired(out);
        out.push(Action::RoundStarted(cluster.clone()));
        for key in ready {
            self.start(key, cluster.clone(), out);
        }
    }

    /// Starts a task that nobody waits for.
    pub(super) fn start_alone(&mut self, key: TaskKey, out: &mut Vec<Action>) {
        let cluster = if self.starts_together(key.role) {
            Arc::new(self.cluster(self.task(key).round))
        } else {
            self.sizes.clone()
        };
        self.start(key, cluster, out);
    }

    pub(super) fn start(&mut self, key: TaskKey, cluster: Arc<Cluster>, out: &mut Vec<Action>) {
        let Phase::Ready { on, .. } = &self.task(key).phase else {
            return;
        };
        let on = on.clone();
        self.task_mut(key).cluster = Some(cluster);
        let phase = Phase::Starting { on: on.clone(), since: self.now };
        self.set_phase(key, phase);
        let run = self.run(key);
        self.task_mut(key).live_run = Some(run);
        self.has_started |= !self.spec.roles[key.role].is_sidecar();
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
            let here = self.members_of(role);
            let mut here: Vec<_> = here.filter(|key| is_in(self.task(*key))).collect();
            if self.is_notified(role) {
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
    pub(super) fn members_of(&self, role: usize) -> impl Iterator<Item = TaskKey> {
        let counts = self.mutant.is(Mutant::CountsOnNewcomers);
        let mut apart: BTreeSet<TaskKey> = BTreeSet::new();
        for pending in self.pending_rounds.values().filter(|_| !counts) {
            if pending.newcomers.is_some_and(|(of, _)| of == role) {
                apart.extend(&pending.members);
            }
        }
        let keys = self.task_keys(Some(role)).into_iter();
        keys.filter(move |key| !apart.contains(key))
    }

    /// Tells tasks that start on their own how many they are.
    pub(super) fn update_sizes(&mut self) {
        let roles = self.spec.roles.iter().zip(&self.roles);
        let roles = roles.filter(|(spec, _)| !spec.is_sidecar());
        let members = roles.map(|(spec, role)| RoleMembers {
            role: spec.name.clone(),
            instances: role.want,
            processes: spec.processes,
            indexes: Vec::new(),
            endpoints: Vec::new(),
        });
        self.sizes = Arc::new(Cluster { round: self.round, roles: members.collect() });
    }

    /// The share of the port range that is this task's. Where a framework sorts its peers by port, ports must
    /// ascend with the index; everybody else may take any.
    pub(super) fn slot(&self, key: TaskKey) -> (u32, u32) {
        if !self.spec.framework.needs_ascending_ports() {
            return (0, 1);
        }
        let before: u32 = self.roles[..key.role].iter().map(|role| role.want).sum();
        (before + key.index, self.wanted_tasks())
    }

    /// How many tasks the job should have.
    pub(super) fn wanted_tasks(&self) -> u32 {
        self.roles.iter().map(|role| role.want).sum()
    }
}
