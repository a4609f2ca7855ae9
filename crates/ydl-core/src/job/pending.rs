//! Pending rounds: tasks that wait for each other before they start.

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

/// A round that has not started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PendingRound {
    pub(super) members: BTreeSet<TaskKey>,
    /// Sum of the counts of its members.
    pub(super) share: RoundCounts,
    /// Counts of each role.
    pub(super) shares: BTreeMap<usize, RoundCounts>,
    /// Time since which it waits for a required container.
    pub(super) asking_since: Option<Time>,
    /// Time since which it holds containers while others are missing.
    pub(super) holding_since: Option<Time>,
    /// Time of the last change of its ready members.
    pub(super) changed: Time,
    /// It replaces an abandoned round: if its roles are elastic, it starts as soon as the tasks of
    /// that round are ready again.
    pub(super) expedited: bool,
    /// Charged failure that ended the previous round, which may still be exonerated.
    pub(super) charged: Option<ChargedFailure>,
    /// Number of times it released its containers.
    pub(super) tries: u32,
    /// Role of its members if they are newcomers, with its restart scope. When all are ready, the
    /// tasks in scope restart with them; if they get no containers, the role returns to its
    /// previous size.
    pub(super) newcomers: Option<(usize, RestartScope)>,
}

/// Counts of the tasks in a pending round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RoundCounts {
    /// Number of tasks.
    pub(super) members: u32,
    /// Ready tasks.
    pub(super) ready: u32,
    /// Tasks that wait for a container.
    pub(super) requested: u32,
    /// Tasks with a container that they can keep.
    pub(super) holds: u32,
    /// Tasks that are being stopped for the round.
    pub(super) restarting: u32,
    /// Tasks that release a container first.
    pub(super) releasing: u32,
}

impl RoundCounts {
    /// Returns the counts with one task's contribution replaced.
    pub(super) fn with(self, was: RoundCounts, is: RoundCounts) -> RoundCounts {
        RoundCounts {
            members: self.members + is.members - was.members,
            ready: self.ready + is.ready - was.ready,
            requested: self.requested + is.requested - was.requested,
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

    /// Updates the counts of a round after a change of one member.
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

    /// Returns the rounds that wait for all or enough of their members, without optional newcomers.
    fn awaited(&self) -> impl Iterator<Item = &PendingRound> {
        let pending_rounds = self.pending_rounds.values();
        pending_rounds.filter(|pending| {
            let newcomers = pending.newcomers;
            newcomers.is_none_or(|(role, _)| self.range(role).is_none())
        })
    }

    /// Returns the number of ready tasks and of all tasks that wait for each other.
    pub(super) fn ready_counts(&self) -> (u32, u32) {
        self.awaited().fold((0, 0), |(ready, of), pending| {
            let members = pending.members.len() as u32;
            (ready + pending.share.ready, of + members)
        })
    }

    /// Returns the tasks of fixed roles that are not ready.
    pub(super) fn not_ready(&self) -> Vec<TaskKey> {
        let members = self.awaited().flat_map(|pending| &pending.members);
        let fixed = members.filter(|key| self.range(key.role).is_none());
        let is_ready = |key: &TaskKey| matches!(self.task(*key).phase, Phase::Ready { .. });
        fixed.copied().filter(|key| !is_ready(key)).collect()
    }

    /// Starts every round whose members are all ready and whose peers have addresses.
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
                // Deferred members are not waited for.
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

    /// Returns the number of tasks without an address, except newcomers.
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

    /// Returns true if the tasks of a role start together.
    pub(super) fn starts_together(&self, role: usize) -> bool {
        self.spec.gang.together && !self.spec.roles[role].is_sidecar()
    }

    fn start_round(&mut self, round: u32, pending: PendingRound, out: &mut Vec<Action>) {
        for key in &pending.members {
            self.task_mut(*key).pending = None;
        }
        let (ready, late) = self.partition_ready(&pending);
        let trigger = ready.first().copied();
        if let Some((role, _)) = pending.newcomers
            && self.is_notified(role)
        {
            self.defer(late, out);
            self.admit(role, ready, out);
            return;
        }
        match (pending.newcomers, trigger) {
            (Some((role, RestartScope::Role)), Some(trigger)) => {
                self.restart_round(Some(role), (trigger, RestartCause::TaskJoined), out);
                return;
            }
            (Some((_, RestartScope::Job)), Some(trigger)) => {
                self.restart_round(None, (trigger, RestartCause::TaskJoined), out);
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

    /// Starts a ready task that is in no pending round.
    pub(super) fn start_outside_round(&mut self, key: TaskKey, out: &mut Vec<Action>) {
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

    /// Returns the cluster of all tasks except pending newcomers.
    pub(super) fn cluster(&self, round: u32) -> Cluster {
        self.cluster_of(round, |_| true)
    }

    /// Returns the cluster of the tasks that match a predicate.
    pub(super) fn cluster_of(&self, round: u32, is_in: impl Fn(&Task) -> bool) -> Cluster {
        let roles = self.spec.roles.iter().enumerate();
        let roles = roles.filter(|(_, spec)| !spec.is_sidecar());
        let members = roles.map(|(role, spec)| {
            let here = self.members_of(role);
            let mut here: Vec<_> = here.filter(|key| is_in(self.task(*key))).collect();
            if self.is_notified(role) {
                // Tasks that joined later have a higher round. The others keep their order, and the
                // first of them provides the state for the others.
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

    /// Returns the tasks of a role without its newcomers.
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

    /// Updates the sizes given to tasks that start on their own.
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

    /// Returns the task's slot in the port range. If a framework sorts its peers by port, ports
    /// must ascend with the index; other tasks may take any port.
    pub(super) fn slot(&self, key: TaskKey) -> (u32, u32) {
        if !self.spec.framework.needs_ascending_ports() {
            return (0, 1);
        }
        let before: u32 = self.roles[..key.role].iter().map(|role| role.want).sum();
        (before + key.index, self.wanted_tasks())
    }

    /// Returns the desired number of tasks of the job.
    pub(super) fn wanted_tasks(&self) -> u32 {
        self.roles.iter().map(|role| role.want).sum()
    }
}
