//! Roles whose tasks come and go: how many are enough, who is left aside until the next round, and who is told.
//!
//! A round of an elastic role begins with those who are there. The others are newcomers: they stay asked for, and when
//! they have come, and nothing has changed for a while, the round is interrupted for them; or, where the framework can
//! tell its programs, they are let in while it goes on. A round never begins while a program of the last one may run.

use super::{Job, Mutant, Place, RoleState, Task, TaskKey, Then, gather::Gathering};
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

    /// Whether those who run in this role stay when others come and go, and are told.
    pub(super) fn is_told(&self, role: usize) -> bool {
        self.range(role).is_some() && self.spec.gang.reform == ResizePolicy::Notify
    }

    /// Whether a gathering has fewer containers than it can do with.
    pub(super) fn is_short(&self, gathering: &Gathering) -> bool {
        if let Some((role, _)) = gathering.newcomers {
            let needs = |range: Range| {
                let few = self.here(role) + gathering.share.holds < range.min;
                self.is_told(role) && few && !self.has_won(role)
            };
            // Those who run in an elastic role can do without them.
            return self.range(role).is_none_or(needs);
        }
        let mut shares = gathering.shares.iter();
        shares.any(|(role, share)| match self.range(*role) {
            Some(range) => share.holds < range.min,
            None => share.asked > 0,
        })
    }

    /// Whether so many are ready that the rest need not be waited for.
    fn has_enough(&self, gathering: &Gathering) -> bool {
        let ready = gathering.share.ready;
        if let Some((role, _)) = gathering.newcomers {
            let suffice = !self.is_told(role) || self.is_large_enough(Some(role), ready);
            return ready > 0 && suffice && self.range(role).is_some();
        }
        let mut elastic = false;
        for (role, share) in &gathering.shares {
            let enough = match self.range(*role) {
                Some(range) => {
                    elastic = true;
                    let lenient = u32::from(self.mutant.is(Mutant::StartsBelowTheLeast));
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

    /// When nothing will have changed for long enough, if that is what is waited for.
    pub(super) fn settles_at(&self, gathering: &Gathering) -> Option<Time> {
        let at = gathering.changed + self.spec.gang.settle;
        (at > self.now && self.has_enough(gathering)).then_some(at)
    }

    /// Whether a round begins with those who are ready.
    pub(super) fn is_enough(&self, gathering: &Gathering) -> bool {
        if !self.has_enough(gathering) {
            return false;
        }
        let settled = gathering.changed + self.spec.gang.settle <= self.now
            || self.mutant.is(Mutant::NeverSettles);
        if gathering.newcomers.is_some() {
            return settled;
        }
        let stopped = gathering.hurried && gathering.share.rewinding == 0;
        (settled || stopped) && self.is_quiet(gathering)
    }

    /// Whether no program of an earlier round can run any more.
    fn is_quiet(&self, gathering: &Gathering) -> bool {
        let share = &gathering.share;
        if share.rewinding + share.parting == 0 || self.mutant.is(Mutant::ReplacesTheLiving) {
            return true;
        }
        let runs = |key: &TaskKey| match &self.task(*key).place {
            Place::Rewinding { ended, .. } => !ended,
            _ => self.may_run(*key),
        };
        !gathering.members.iter().any(runs)
    }

    /// Whether nobody runs any more whom the gathering's roles have dropped: it may be saving what the round begins with.
    /// How long that takes is bounded as for everybody who is stopped.
    pub(super) fn has_let_go(&self, gathering: &Gathering) -> bool {
        let runs = |role: usize| {
            let tasks = self.roles[role].tasks.iter().zip(0..);
            let mut dropped = tasks.filter(|(task, _)| task.dropped);
            dropped.any(|(_, index)| self.may_run(TaskKey { role, index }))
        };
        let mut roles = gathering.shares.keys();
        self.mutant.is(Mutant::ForgetsTheDropped) || !roles.any(|role| runs(*role))
    }

    /// Whether newcomers may interrupt those who run. Where some have succeeded already, in whatever role would begin
    /// anew, the others are about to, and would do all of it again.
    pub(super) fn is_welcome(&self, gathering: &Gathering) -> bool {
        let Some((role, scope)) = gathering.newcomers else {
            return true;
        };
        if self.range(role).is_none() || self.mutant.is(Mutant::InterruptsTheDone) {
            return true;
        }
        let alone = self.is_told(role) || self.mutant.is(Mutant::InterruptsOtherRoles);
        let scope = match scope {
            RestartScope::Job if !alone => None,
            RestartScope::Task | RestartScope::Role | RestartScope::Job => Some(role),
        };
        let needed = |key: &TaskKey| match self.spec.roles[key.role].completion {
            Completion::All | Completion::Any | Completion::Primary => true,
            Completion::Service | Completion::Follows | Completion::Sidecar => false,
        };
        let done = |key: &TaskKey| self.task(*key).place.has_won();
        let keys = self.keys(scope);
        !keys.iter().filter(|key| needed(key)).any(done)
    }

    /// Those who ran in the round before are there, or will not be: from now on it is waited for more.
    pub(super) fn hurry_no_more(&mut self) {
        let over = |gathering: &Gathering| {
            gathering.hurried && gathering.share.rewinding == 0 && self.is_quiet(gathering)
        };
        let gatherings = self.gatherings.iter();
        let over = gatherings.filter(|(_, gathering)| over(gathering));
        let over: Vec<u32> = over.map(|(round, _)| *round).collect();
        for round in over {
            if let Some(gathering) = self.gatherings.get_mut(&round) {
                gathering.hurried = false;
            }
        }
    }

    /// Those of a gathering with whom its round begins, and those without whom it does.
    pub(super) fn who_is_ready(&self, gathering: &Gathering) -> (Vec<TaskKey>, Vec<TaskKey>) {
        let is_in = |key: &TaskKey| {
            let ready = matches!(self.task(*key).place, Place::Ready { .. });
            ready || self.range(key.role).is_none()
        };
        gathering.members.iter().partition(|key| is_in(key))
    }

    /// These are newcomers from now on.
    pub(super) fn set_aside(&mut self, late: Vec<TaskKey>, out: &mut Vec<Action>) {
        for key in late {
            let round = self.newcomers_of(key.role).unwrap_or_else(|| {
                self.round += 1;
                self.round
            });
            let scope = self.spec.roles[key.role].restart.scope;
            let gathering = self.gatherings.entry(round).or_default();
            gathering.newcomers = Some((key.role, scope));
            self.fall_silent(key);
            self.task_mut(key).round = round;
            self.enter_gathering(key, round);
            self.arm(key);
            match &self.task(key).place {
                Place::Launching { on, .. }
                | Place::Joining { on, .. }
                | Place::Ready { on, .. }
                | Place::Rewinding { on, .. } => out.push(Action::OrderChanged(on.clone())),
                Place::Idle { .. }
                | Place::Asked { .. }
                | Place::Starting { .. }
                | Place::Running { .. }
                | Place::Stopping { .. }
                | Place::Leaving { .. }
                | Place::Over { .. } => {}
            }
        }
    }

    /// The gathering of an elastic role's newcomers.
    pub(super) fn newcomers_of(&self, role: usize) -> Option<u32> {
        self.range(role)?;
        let mut gatherings = self.gatherings.iter();
        let found = gatherings.find(|(_, it)| it.newcomers.is_some_and(|(of, _)| of == role));
        found.map(|(round, _)| *round)
    }

    /// What is to be said of elastic roles that are not whole.
    pub(super) fn said_of_elastic(&self) -> Vec<String> {
        let roles = 0..self.roles.len();
        let elastic = roles.filter_map(|role| Some((role, self.range(role)?)));
        let said = elastic.filter_map(|(role, range)| self.said_of(role, range));
        said.collect()
    }

    fn said_of(&self, role: usize, range: Range) -> Option<String> {
        let name = &self.spec.roles[role].name;
        let want = self.roles[role].want;
        let here = self.here(role);
        let apart = want - here;
        if apart > 0 && here >= range.min {
            return Some(format!("`{name}` goes on with {here} of {want}"));
        }
        let mut gatherings = self.gatherings.values();
        let gathering = gatherings.find(|it| it.shares.contains_key(&role))?;
        let ready = gathering.shares.get(&role)?.ready;
        let needs = match apart > 0 {
            true => range.min - here,
            false => range.min,
        };
        if ready >= needs {
            let settle = self.spec.gang.settle;
            return Some(format!("`{name}` begins with {ready} unless more come within {settle}"));
        }
        let members = gathering.members.iter().filter(|key| key.role == role);
        let missing = members.filter(|key| !matches!(self.task(**key).place, Place::Ready { .. }));
        let missing: Vec<_> = missing.copied().collect();
        let named = self.named(&missing);
        Some(format!("`{name}` needs {} more of {named}", needs - ready))
    }

    /// How many of an elastic role's tasks are not in its round.
    pub(super) fn apart(&self, role: usize) -> u32 {
        let newcomers = self.newcomers_of(role);
        let gathering = newcomers.and_then(|round| self.gatherings.get(&round));
        gathering.map_or(0, |gathering| gathering.share.members)
    }

    /// Newcomers join a round that goes on.
    pub(super) fn admit(
        &mut self,
        role: usize,
        mut newcomers: Vec<TaskKey>,
        out: &mut Vec<Action>,
    ) {
        // Roles that are too small without theirs wait for each other, and are let in together.
        for other in (0..self.roles.len()).filter(|other| *other != role) {
            let needs = !self.has_least(other, 0);
            let round = self.newcomers_of(other).filter(|_| needs);
            let Some(gathering) = round.and_then(|round| self.forget_gathering(round)) else {
                continue;
            };
            for key in &gathering.members {
                self.task_mut(*key).gathering = None;
            }
            let (ready, late) = self.who_is_ready(&gathering);
            self.set_aside(late, out);
            newcomers.extend(ready);
        }
        let cluster = self.tell_members(role, out);
        for key in newcomers {
            self.start(key, cluster.clone(), out);
        }
    }

    /// A member is lost, and the others go on without it.
    pub(super) fn go_on_without(&mut self, key: TaskKey, out: &mut Vec<Action>) {
        self.set_aside(vec![key], out);
        self.members_left(key.role, out);
    }

    /// Some have gone. While too few are left for a round they are told nothing, and wait.
    pub(super) fn members_left(&mut self, role: usize, out: &mut Vec<Action>) {
        if self.is_large_enough(None, 0) {
            self.tell_members(role, out);
        }
    }

    /// Whether every elastic role has its least; if one lets so many in, with those whom the others could let in too.
    pub(super) fn is_large_enough(&self, role: Option<usize>, more: u32) -> bool {
        (0..self.roles.len()).all(|at| {
            let more = match role {
                None => 0,
                Some(role) if role == at => more,
                Some(_) => {
                    let round = self.newcomers_of(at);
                    let gathering = round.and_then(|round| self.gatherings.get(&round));
                    gathering.map_or(0, |gathering| gathering.share.ready)
                }
            };
            self.has_least(at, more)
        })
    }

    fn has_least(&self, role: usize, more: u32) -> bool {
        let least = self.range(role).map_or(0, |range| range.min);
        // Who is done needs no more of them, and lets none in.
        self.here(role) + more >= least || self.is_through(role) || self.has_won(role)
    }

    /// Whether nobody is to wait for this member of a running round any more: its program has ended for good.
    fn is_done(&self, task: &Task) -> bool {
        let over = match &task.place {
            Place::Over { .. } => true,
            Place::Stopping { then, .. } | Place::Leaving { then, .. } => {
                matches!(then, Then::Over(_))
            }
            _ => false,
        };
        over && !self.mutant.is(Mutant::WaitsForTheDone)
    }

    /// Whether one of those who are told has succeeded: the others are about to, and go on with whoever is left.
    fn has_won(&self, role: usize) -> bool {
        let mut tasks = self.roles[role].tasks.iter();
        self.is_told(role) && tasks.any(|task| !task.dropped && task.place.has_won())
    }

    /// How many of a role's tasks are in its round.
    fn here(&self, role: usize) -> u32 {
        self.roles[role].want - self.apart(role)
    }

    /// One has succeeded: should the others have to meet again they do so without it, and need not wait for more.
    pub(super) fn go_on_without_the_done(&mut self, role: usize, out: &mut Vec<Action>) {
        let told = self.is_told(role) && self.roles[role].runs() > 0;
        if told && self.is_large_enough(None, 0) {
            let cluster = self.members(role);
            self.say_over(out);
            out.push(Action::MembersChanged(cluster));
        }
    }

    fn tell_members(&mut self, role: usize, out: &mut Vec<Action>) -> Arc<Cluster> {
        let cluster = self.members(role);
        let (round, tasks) = (cluster.round, cluster.world());
        self.record(HistoryKind::MembersChanged { round, tasks }, out);
        self.say_over(out);
        out.push(Action::MembersChanged(cluster.clone()));
        cluster
    }

    /// Who is in the round that a role runs in now.
    fn members(&self, role: usize) -> Arc<Cluster> {
        let mut tasks = self.roles[role].tasks.iter();
        let round = tasks.find_map(|task| match &task.place {
            Place::Starting { .. } | Place::Running { .. } => task.cluster.as_ref(),
            _ => None,
        });
        let round = round.map_or(self.round, |cluster| cluster.round);
        Arc::new(self.cluster_of(round, |task| !self.is_done(task)))
    }
}

impl RoleState {
    /// How many run, or are told to.
    pub(super) fn runs(&self) -> u32 {
        self.count(TaskState::Starting) + self.count(TaskState::Running)
    }
}
