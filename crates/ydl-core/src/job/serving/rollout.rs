//! Updates: the first replicas of a new revision are watched beside the old ones. Then the revision
//! is promoted and the others are replaced, or it is rolled back.

use super::{Job, Mutant, TaskKey};
use crate::{
    action::Action,
    ending::Ending,
    history::{HistoryKind, RolloutEnd},
    id::RoleName,
    job::timers::Timer,
    spec::{RevisionSpec, SpecIssue},
    time::{Span, Time},
};
use alloc::{
    borrow::ToOwned,
    format,
    string::{String, ToString},
    vec::Vec,
};

/// Update whose outcome is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rollout {
    /// The new revision.
    pub(super) candidate: u32,
    /// Number of replicas that test it.
    pub(super) batch: u32,
    /// Share of the requests in percent, until it is promoted on request.
    pub(super) canary: Option<u32>,
    /// Time since which some of its replicas do not serve.
    unready_since: Option<Time>,
    /// Time since which it is watched: all of its replicas have served.
    watched_since: Option<Time>,
    /// Reason for which it is rolled back.
    fault: Option<String>,
}

/// Next step of an update.
enum RolloutStep {
    Wait(Option<Time>),
    Promote,
    RollBack(String),
}

impl Job {
    /// Checks whether a role can be updated. An invalid request is ignored.
    pub fn check_update(
        &self,
        name: &RoleName,
        revision: u32,
        canary: Option<u32>,
    ) -> Result<(), SpecIssue> {
        let key = format!("roles.{name}");
        let issue = |message: String, hint: &str| SpecIssue {
            key: key.clone(),
            message,
            hint: (!hint.is_empty()).then(|| hint.to_owned()),
        };
        let role = self.spec.roles.iter().position(|spec| spec.name == *name);
        let role = role.ok_or_else(|| issue(format!("the job has no role `{name}`"), ""))?;
        let Some(serving) = self.serving(role) else {
            return Err(issue(format!("role `{name}` does not serve"), "submit the job again"));
        };
        if self.is_updating(name) && !self.mutant.is(Mutant::UpdatesDuringUpdate) {
            let message = format!("an update of role `{name}` is in progress");
            return Err(issue(message, "wait for its end, or undo it"));
        }
        if revision <= serving.newest {
            let newest = serving.newest;
            return Err(issue(format!("revision {revision} is not newer than {newest}"), ""));
        }
        if canary.is_some_and(|percent| !(1..=99).contains(&percent)) {
            return Err(issue("a canary gets from 1 to 99 percent of the requests".into(), ""));
        }
        Ok(())
    }

    /// Returns true while an update is watched, or replicas of another revision are replaced.
    pub fn is_updating(&self, name: &RoleName) -> bool {
        let role = self.spec.roles.iter().position(|spec| spec.name == *name);
        let Some((role, serving)) = role.and_then(|role| Some((role, self.serving(role)?))) else {
            return false;
        };
        let stable = serving.stable;
        let is_old = |key: TaskKey| self.task(key).replica.revision != stable;
        serving.rollout.is_some() || self.replicas(role).any(is_old)
    }

    pub(in crate::job) fn on_updated(
        &mut self,
        name: &RoleName,
        revision: u32,
        (spec, canary): (RevisionSpec, Option<u32>),
        out: &mut Vec<Action>,
    ) {
        let now = self.now;
        if self.check_update(name, revision, canary).is_err() {
            return;
        }
        let Some(role) = self.serving_role(name) else {
            return;
        };
        let policy = self.serve(role).map(|serve| serve.update).unwrap_or_default();
        let most = if policy.surge > 0 { policy.surge } else { policy.unavailable };
        if let Some(serving) = self.serving_mut(role) {
            serving.newest = revision;
            serving.revisions.insert(revision, spec);
            serving.rollout = Some(Rollout {
                candidate: revision,
                // A role of no replicas tests one all the same.
                batch: most.min(serving.size.max(1)),
                canary,
                unready_since: Some(now),
                watched_since: None,
                fault: None,
            });
        }
        self.record(HistoryKind::RolloutStarted { role: name.clone(), revision, canary }, out);
    }

    /// Applies a judgement about a revision: a bad one is rolled back, a good one promoted.
    pub(in crate::job) fn on_judged(
        &mut self,
        name: &RoleName,
        revision: u32,
        good: bool,
        out: &mut Vec<Action>,
    ) {
        let Some(role) = self.serving_role(name) else {
            return;
        };
        let Some(serving) = self.serving(role) else {
            return;
        };
        let candidate = serving.rollout.as_ref().map(|rollout| rollout.candidate);
        if candidate == Some(revision) {
            match good {
                true if self.are_candidates_ready(role) => self.promote(role, out),
                true => {}
                false if self.mutant.is(Mutant::IgnoresJudgement) => {}
                false => self.roll_back(role, "it was judged bad".to_string(), out),
            }
        } else if !good && serving.stable == revision && self.is_updating(name) {
            self.return_to_previous(role, "it was judged bad".to_string(), out);
        }
    }

    /// Undoes the current update, or the last one.
    pub(in crate::job) fn on_undo_requested(&mut self, name: &RoleName, out: &mut Vec<Action>) {
        let Some(role) = self.serving_role(name) else {
            return;
        };
        let reason = "undone on request".to_string();
        match self.serving(role).is_some_and(|serving| serving.rollout.is_some()) {
            true => self.roll_back(role, reason, out),
            false => self.return_to_previous(role, reason, out),
        }
    }

    /// Records a replica that failed more often than it may. Returns true if an update or the
    /// service continues without it.
    pub(in crate::job) fn survives_crash_loop(&mut self, key: TaskKey, ending: &Ending) -> bool {
        let name = self.id(key);
        let revision = self.task(key).replica.revision;
        let Some(serving) = self.serving_mut(key.role) else {
            return false;
        };
        let tested = serving.rollout.as_mut().filter(|rollout| rollout.candidate == revision);
        if let Some(rollout) = tested {
            rollout.fault.get_or_insert(format!("{name} {ending}"));
        }
        serving.proven || serving.rollout.is_some() || serving.stable != revision
    }

    /// Restarts the waits of updates: nothing could be seen without a master.
    pub(in crate::job) fn restart_rollout_waits(&mut self) {
        let now = self.now;
        let all = self.roles.iter_mut().filter_map(|role| role.serving.as_mut());
        for rollout in all.filter_map(|serving| serving.rollout.as_mut()) {
            rollout.unready_since = rollout.unready_since.map(|_| now);
            rollout.watched_since = rollout.watched_since.map(|_| now);
        }
    }

    pub(super) fn advance_rollout(&mut self, role: usize, out: &mut Vec<Action>) {
        let wake = match self.rollout_step(role) {
            RolloutStep::Wait(at) => at,
            RolloutStep::Promote => {
                self.promote(role, out);
                None
            }
            RolloutStep::RollBack(reason) => {
                self.roll_back(role, reason, out);
                None
            }
        };
        self.timers.arm(Timer::Rollout(role), wake);
    }

    fn rollout_step(&mut self, role: usize) -> RolloutStep {
        let now = self.now;
        let ready = self.are_candidates_ready(role);
        let Some((watch, within)) = self.serve(role).map(|it| (it.update.watch, it.within)) else {
            return RolloutStep::Wait(None);
        };
        let hasty = self.mutant.is(Mutant::PromotesWithoutWatch);
        let patient = self.mutant.is(Mutant::NeverRollsBack);
        let serving = self.serving_mut(role);
        let Some(rollout) = serving.and_then(|serving| serving.rollout.as_mut()) else {
            return RolloutStep::Wait(None);
        };
        if let Some(fault) = rollout.fault.take().filter(|_| !patient) {
            return RolloutStep::RollBack(fault);
        }
        if !ready {
            let since = *rollout.unready_since.get_or_insert(now);
            let late = since + within;
            if late <= now && !patient {
                return RolloutStep::RollBack(format!("it did not serve within {within}"));
            }
            return RolloutStep::Wait((!patient).then_some(late));
        }
        rollout.unready_since = None;
        let since = *rollout.watched_since.get_or_insert(now);
        let end = since + if hasty { Span(0) } else { watch };
        match rollout.canary {
            Some(_) => RolloutStep::Wait(None),
            None if end <= now => RolloutStep::Promote,
            None => RolloutStep::Wait(Some(end)),
        }
    }

    /// Returns true if all replicas that test the new revision serve.
    fn are_candidates_ready(&self, role: usize) -> bool {
        let serving = self.serving(role);
        let Some(rollout) = serving.and_then(|serving| serving.rollout.as_ref()) else {
            return false;
        };
        let of_candidate = |key: &TaskKey| {
            self.task(*key).replica.revision == rollout.candidate && self.is_ready(*key)
        };
        self.replicas(role).filter(of_candidate).count() as u32 >= self.wanted_replicas(role).batch
    }

    fn promote(&mut self, role: usize, out: &mut Vec<Action>) {
        if let Some(serving) = self.serving_mut(role)
            && let Some(rollout) = serving.rollout.take()
        {
            serving.previous = Some(serving.stable);
            serving.stable = rollout.candidate;
            serving.proven = true;
            self.record_rollout_end(role, rollout.candidate, RolloutEnd::Promoted, out);
        }
    }

    fn roll_back(&mut self, role: usize, reason: String, out: &mut Vec<Action>) {
        if let Some(serving) = self.serving_mut(role)
            && let Some(rollout) = serving.rollout.take()
        {
            serving.rejected = Some(rollout.candidate);
            let end = RolloutEnd::RolledBack { reason };
            self.record_rollout_end(role, rollout.candidate, end, out);
        }
    }

    /// Replaces the stable revision by the one before.
    fn return_to_previous(&mut self, role: usize, reason: String, out: &mut Vec<Action>) {
        if let Some(serving) = self.serving_mut(role)
            && let Some(previous) = serving.previous.take()
        {
            let revision = core::mem::replace(&mut serving.stable, previous);
            serving.rejected = Some(revision);
            let end = RolloutEnd::RolledBack { reason };
            self.record_rollout_end(role, revision, end, out);
        }
    }

    fn record_rollout_end(
        &mut self,
        role: usize,
        revision: u32,
        end: RolloutEnd,
        out: &mut Vec<Action>,
    ) {
        let role = self.spec.roles[role].name.clone();
        self.record(HistoryKind::RolloutEnded { role, revision, end }, out);
    }
}
