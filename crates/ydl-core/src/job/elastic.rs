//! Elastic roles: minimum size, tasks deferred to a later round, and notification of members.
//!
//! A round of an elastic role starts with the tasks that are ready. The others are newcomers: their
//! asks stay. When they are ready, and nothing has changed for the settle time, the round is
//! interrupted for them; if the framework can notify its programs, they join the running round. A
//! round never starts while a program of the previous one may run.

use super::{Job, Mutant, NextStep, Phase, RoleState, Task, TaskKey, pending::PendingRound};
use crate::{
    action::Action,
    cluster::Cluster,
    history::HistoryKind,
    spec::{Completion, Range, ResizePolicy, RestartScope},
    time::Time,
    view::TaskState,
};
use alloc::{format, string::String, sync::Arc, vec, vec::Vec};

impl Job {
    pub(super) fn range(&self, role: usize) -> Option<Range> {
        self.spec.roles[role].elastic
    }

    /// Returns true if the role's tasks keep running and are notified when members change.
    pub(super) fn is_notified(&self, role: usize) -> bool {
        self.range(role).is_some() && self.spec.gang.resize == ResizePolicy::Notify
    }

    /// Returns true if a pending round holds fewer containers than it needs.
    pub(super) fn lacks_containers(&self, pending: &PendingRound) -> bool {
        if let Some((role, _)) = pending.newcomers {
            let needs = |range: Range| {
                let few = self.members_in_round(role) + pending.share.holds < range.min;
                self.is_notified(role) && few && !self.has_succeeded(role)
            };
            // Running tasks of an elastic role do not need the newcomers.
            return self.range(role).is_none_or(needs);
        }
        let mut shares = pending.shares.iter();
        shares.any(|(role, share)| match self.range(*role) {
            Some(range) => share.holds < range.min,
            None => share.requested > 0,
        })
    }

    /// Returns true if enough tasks are ready to start without the others.
    fn has_enough(&self, pending: &PendingRound) -> bool {
        let ready = pending.share.ready;
        if let Some((role, _)) = pending.newcomers {
            let suffice = !self.is_notified(role) || self.meets_minimum(Some(role), ready);
            return ready > 0 && suffice && self.range(role).is_some();
        }
        let mut elastic = false;
        for (role, share) in &pending.shares {
            let enough = match self.range(*role) {
                Some(range) => {
                    elastic = true;
                    let lenient = u32::from(self.mutant.is(Mutant::StartsBelowMinimum));
                    share.ready + lenient >= range.min && share.ready > 0
                }
                None => share.ready == share.members,
            };
            if !enough {
                return false;
            }
        }
        elastic
    }

    /// Returns the end of the settle time, if the round waits for it.
    pub(super) fn settles_at(&self, pending: &PendingRound) -> Option<Time> {
        let at = pending.changed + self.spec.gang.settle;
        (at > self.now && self.has_enough(pending)).then_some(at)
    }

    /// Returns true if the round can start with the ready tasks.
    pub(super) fn can_start(&self, pending: &PendingRound) -> bool {
        if !self.has_enough(pending) {
            return false;
        }
        let settled = pending.changed + self.spec.gang.settle <= self.now
            || self.mutant.is(Mutant::NeverSettles);
        if pending.newcomers.is_some() {
            return settled;
        }
        let stopped = pending.expedited && pending.share.restarting == 0;
        (settled || stopped) && self.is_drained(pending)
    }

    /// Returns true if no program of an earlier round can run any more.
    fn is_drained(&self, pending: &PendingRound) -> bool {
        let share = &pending.share;
        if share.restarting + share.releasing == 0 || self.mutant.is(Mutant::ReplacesLiveTasks) {
            return true;
        }
        let runs = |key: &TaskKey| match &self.task(*key).phase {
            Phase::Restarting { ended, .. } => !ended,
            _ => self.may_run(*key),
        };
        !pending.members.iter().any(runs)
    }

    /// Returns true if no dropped task of the round's roles still runs: it may be uploading what
    /// the round starts with. The stop timeout bounds the wait.
    pub(super) fn has_stopped_dropped(&self, pending: &PendingRound) -> bool {
        let runs = |role: usize| {
            let tasks = self.roles[role].tasks.iter().zip(0..);
            let mut dropped = tasks.filter(|(task, _)| task.dropped);
            dropped.any(|(_, index)| self.may_run(TaskKey { role, index }))
        };
        let mut roles = pending.shares.keys();
        self.mutant.is(Mutant::IgnoresDroppedTasks) || !roles.any(|role| runs(*role))
    }

    /// Returns true if newcomers may interrupt running tasks. If a task that would restart has
    /// succeeded already, the others are about to finish and would repeat their work.
    pub(super) fn may_admit(&self, pending: &PendingRound) -> bool {
        let Some((role, scope)) = pending.newcomers else {
            return true;
        };
        if self.range(role).is_none() || self.mutant.is(Mutant::InterruptsFinishedRole) {
            return true;
        }
        let only_own_role = self.is_notified(role) || self.mutant.is(Mutant::InterruptsOtherRoles);
        let scope = match scope {
            RestartScope::Job if !only_own_role => None,
            RestartScope::Task | RestartScope::Role | RestartScope::Job => Some(role),
        };
        let needed = |key: &TaskKey| match self.spec.roles[key.role].completion {
            Completion::All | Completion::Any | Completion::Primary => true,
            Completion::Service | Completion::Follows | Completion::Sidecar => false,
        };
        let done = |key: &TaskKey| self.task(*key).phase.has_succeeded();
        let keys = self.task_keys(scope);
        !keys.iter().filter(|key| needed(key)).any(done)
    }

    /// Ends the expedited start of rounds once the tasks of the previous round are ready or lost.
    pub(super) fn clear_expedited(&mut self) {
        let over = |pending: &PendingRound| {
            pending.expedited && pending.share.restarting == 0 && self.is_drained(pending)
        };
        let pending_rounds = self.pending_rounds.iter();
        let over = pending_rounds.filter(|(_, pending)| over(pending));
        let over: Vec<u32> = over.map(|(round, _)| *round).collect();
        for round in over {
            if let Some(pending) = self.pending_rounds.get_mut(&round) {
                pending.expedited = false;
            }
        }
    }

    /// Splits the members of a pending round into those it starts with and those it defers.
    pub(super) fn partition_ready(&self, pending: &PendingRound) -> (Vec<TaskKey>, Vec<TaskKey>) {
        let is_in = |key: &TaskKey| {
            let ready = matches!(self.task(*key).phase, Phase::Ready { .. });
            ready || self.range(key.role).is_none()
        };
        pending.members.iter().partition(|key| is_in(key))
    }

    /// Defers tasks to the pending round of their role's newcomers.
    pub(super) fn defer(&mut self, late: Vec<TaskKey>, out: &mut Vec<Action>) {
        for key in late {
            let round = self.newcomers_of(key.role).unwrap_or_else(|| {
                self.round += 1;
                self.round
            });
            let scope = self.spec.roles[key.role].restart.scope;
            let pending = self.pending_rounds.entry(round).or_default();
            pending.newcomers = Some((key.role, scope));
            self.retire_run(key);
            self.task_mut(key).round = round;
            self.join_pending_round(key, round);
            self.arm(key);
            match &self.task(key).phase {
                Phase::Launching { on, .. }
                | Phase::Joining { on, .. }
                | Phase::Ready { on, .. }
                | Phase::Restarting { on, .. } => out.push(Action::OrderChanged(on.clone())),
                Phase::BackingOff { .. }
                | Phase::Requested { .. }
                | Phase::Starting { .. }
                | Phase::Running { .. }
                | Phase::Stopping { .. }
                | Phase::Releasing { .. }
                | Phase::Finished { .. } => {}
            }
        }
    }

    /// Returns the pending round of an elastic role's newcomers.
    pub(super) fn newcomers_of(&self, role: usize) -> Option<u32> {
        self.range(role)?;
        let mut pending_rounds = self.pending_rounds.iter();
        let found = pending_rounds.find(|(_, it)| it.newcomers.is_some_and(|(of, _)| of == role));
        found.map(|(round, _)| *round)
    }

    /// Describes elastic roles that are below their desired size.
    pub(super) fn describe_elastic(&self) -> Vec<String> {
        let roles = 0..self.roles.len();
        let elastic = roles.filter_map(|role| Some((role, self.range(role)?)));
        let descriptions = elastic.filter_map(|(role, range)| self.describe_role(role, range));
        descriptions.collect()
    }

    fn describe_role(&self, role: usize, range: Range) -> Option<String> {
        let name = &self.spec.roles[role].name;
        let want = self.roles[role].want;
        let here = self.members_in_round(role);
        let apart = want - here;
        if apart > 0 && here >= range.min {
            return Some(format!("`{name}` continues with {here} of {want}"));
        }
        let mut pending_rounds = self.pending_rounds.values();
        let pending = pending_rounds.find(|it| it.shares.contains_key(&role))?;
        let ready = pending.shares.get(&role)?.ready;
        let needs = match apart > 0 {
            true => range.min - here,
            false => range.min,
        };
        if ready >= needs {
            let settle = self.spec.gang.settle;
            return Some(format!("`{name}` starts with {ready} unless more join within {settle}"));
        }
        let members = pending.members.iter().filter(|key| key.role == role);
        let missing = members.filter(|key| !matches!(self.task(**key).phase, Phase::Ready { .. }));
        let missing: Vec<_> = missing.copied().collect();
        let named = self.name_some(&missing);
        Some(format!("`{name}` needs {} more of {named}", needs - ready))
    }

    /// Returns the number of an elastic role's tasks outside its round.
    pub(super) fn deferred_count(&self, role: usize) -> u32 {
        let newcomers = self.newcomers_of(role);
        let pending = newcomers.and_then(|round| self.pending_rounds.get(&round));
        pending.map_or(0, |pending| pending.share.members)
    }

    /// Adds newcomers to a running round.
    pub(super) fn admit(
        &mut self,
        role: usize,
        mut newcomers: Vec<TaskKey>,
        out: &mut Vec<Action>,
    ) {
        // Roles below their minimum wait for each other and are admitted together.
        for other in (0..self.roles.len()).filter(|other| *other != role) {
            let needs = !self.role_meets_minimum(other, 0);
            let round = self.newcomers_of(other).filter(|_| needs);
            let Some(pending) = round.and_then(|round| self.remove_pending_round(round)) else {
                continue;
            };
            for key in &pending.members {
                self.task_mut(*key).pending = None;
            }
            let (ready, late) = self.partition_ready(&pending);
            self.defer(late, out);
            newcomers.extend(ready);
        }
        let cluster = self.notify_members(role, out);
        for key in newcomers {
            self.start(key, cluster.clone(), out);
        }
    }

    /// Continues the round without a lost member.
    pub(super) fn continue_without(&mut self, key: TaskKey, out: &mut Vec<Action>) {
        self.defer(vec![key], out);
        self.on_members_left(key.role, out);
    }

    /// Notifies the remaining members, unless the round is below its minimum.
    pub(super) fn on_members_left(&mut self, role: usize, out: &mut Vec<Action>) {
        if self.meets_minimum(None, 0) {
            self.notify_members(role, out);
        }
    }

    /// Returns true if every elastic role has its minimum when one of them admits `more` tasks,
    /// together with those that the others can admit.
    pub(super) fn meets_minimum(&self, role: Option<usize>, more: u32) -> bool {
        (0..self.roles.len()).all(|at| {
            let more = match role {
                None => 0,
                Some(role) if role == at => more,
                Some(_) => {
                    let round = self.newcomers_of(at);
                    let pending = round.and_then(|round| self.pending_rounds.get(&round));
                    pending.map_or(0, |pending| pending.share.ready)
                }
            };
            self.role_meets_minimum(at, more)
        })
    }

    fn role_meets_minimum(&self, role: usize, more: u32) -> bool {
        let minimum = self.range(role).map_or(0, |range| range.min);
        // A finished role needs no further tasks and admits none.
        self.members_in_round(role) + more >= minimum
            || self.is_through(role)
            || self.has_succeeded(role)
    }

    /// Returns true if no peer waits for this member any more: its program has ended permanently.
    fn is_done(&self, task: &Task) -> bool {
        let over = match &task.phase {
            Phase::Finished { .. } => true,
            Phase::Stopping { then, .. } | Phase::Releasing { then, .. } => {
                matches!(then, NextStep::Finish(_))
            }
            _ => false,
        };
        over && !self.mutant.is(Mutant::WaitsForFinishedTasks)
    }

    /// Returns true if a task of a notified role has succeeded: the others are about to finish and
    /// continue with the remaining members.
    fn has_succeeded(&self, role: usize) -> bool {
        let mut tasks = self.roles[role].tasks.iter();
        self.is_notified(role) && tasks.any(|task| !task.dropped && task.phase.has_succeeded())
    }

    /// Returns the number of a role's tasks in its round.
    fn members_in_round(&self, role: usize) -> u32 {
        self.roles[role].want - self.deferred_count(role)
    }

    /// Updates the rendezvous after a success: a later re-rendezvous of the peers excludes the task
    /// and waits for no others.
    pub(super) fn continue_without_finished(&mut self, role: usize, out: &mut Vec<Action>) {
        let notified = self.is_notified(role) && self.roles[role].runs() > 0;
        if notified && self.meets_minimum(None, 0) {
            let cluster = self.members(role);
            self.report_retired(out);
            out.push(Action::MembersChanged(cluster));
        }
    }

    fn notify_members(&mut self, role: usize, out: &mut Vec<Action>) -> Arc<Cluster> {
        let cluster = self.members(role);
        let (round, tasks) = (cluster.round, cluster.world_size());
        self.record(HistoryKind::MembersChanged { round, tasks }, out);
        self.report_retired(out);
        out.push(Action::MembersChanged(cluster.clone()));
        cluster
    }

    /// Returns the members of the round in which a role runs.
    fn members(&self, role: usize) -> Arc<Cluster> {
        let mut tasks = self.roles[role].tasks.iter();
        let round = tasks.find_map(|task| match &task.phase {
            Phase::Starting { .. } | Phase::Running { .. } => task.cluster.as_ref(),
            _ => None,
        });
        let round = round.map_or(self.round, |cluster| cluster.round);
        Arc::new(self.cluster_of(round, |task| !self.is_done(task)))
    }
}

impl RoleState {
    /// Returns the number of running or starting tasks.
    pub(super) fn runs(&self) -> u32 {
        self.count(TaskState::Starting) + self.count(TaskState::Running)
    }
}
