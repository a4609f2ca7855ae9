//! Failures that may be nobody's: the peers of one that the cluster takes often fail before it is known to be taken.
//!
//! One that uses up a restart is accused, and acquitted when one of its round turns out to be taken. One that no restart is
//! left for would end the job, and that cannot be undone: it is doubted for as long as the node of a container that is being
//! ended may take to say so. Meanwhile the others run on; when none is left that could have been taken, the job fails.
//!
//! Both only where roles are elastic and begin anew: of fixed ones nobody expects that they outlive what is taken from them
//! without a restart, and those who are told do so by themselves.

use super::{Job, Mutant, Place, TaskKey, Then, nodes::Mark, timers::Timer};
use crate::{
    action::Action,
    ending::{Cause, Ending},
    spec::{JobSpec, RestartScope},
    time::Time,
};
use alloc::{collections::BTreeSet, vec, vec::Vec};

/// A failure that has used up a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Accused {
    /// Whose restarts.
    role: usize,
    /// What was held against its node.
    mark: Option<Mark>,
}

/// Failures that end the job unless it turns out that the cluster was the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Doubt {
    until: Time,
    /// What the job fails of then.
    pub(super) cause: Cause,
    /// Who has failed, and is still wanted as it was.
    tasks: Vec<TaskKey>,
    /// Their roles.
    roles: BTreeSet<usize>,
}

impl Job {
    /// Whether those who fail in this role may fail because a peer was taken, and begin anew with the others.
    fn can_be_bereaved(&self, role: usize) -> bool {
        self.range(role).is_some() && !self.is_told(role)
    }

    /// A program has failed and used up a restart. Whoever ran in its round is being stopped now; one that the cluster has
    /// taken in the meantime cannot be, and was the cause.
    pub(super) fn accuse(&mut self, key: TaskKey, mark: Option<Mark>) {
        let bereaved = self.can_be_bereaved(key.role);
        let round = self.task(key).gathering.filter(|_| bereaved);
        if let Some(gathering) = round.and_then(|round| self.gatherings.get_mut(&round)) {
            let role = key.role;
            gathering.accused = Some(Accused { role, mark });
        }
    }

    /// A task has gone that ran in the round which others' failures have ended, or will: the cluster has taken it, or its
    /// node is ending its container for a reason that counts by itself. Those others only failed because of it. Those who
    /// were doubted are to begin anew.
    pub(super) fn acquit(&mut self, key: TaskKey, out: &mut Vec<Action>) -> Vec<TaskKey> {
        if self.mutant.is(Mutant::BlamesTheBereaved) {
            return Vec::new();
        }
        let round = self.task(key).gathering;
        let gathering = round.and_then(|round| self.gatherings.get_mut(&round));
        if let Some(accused) = gathering.and_then(|gathering| gathering.accused.take()) {
            self.roles[accused.role].failures.pop_back();
            let blames = self.mutant.is(Mutant::BlamesTheirNodes);
            if let Some(mark) = accused.mark.filter(|_| !blames) {
                self.unblame(&mark, out);
            }
        }
        let doubt = self.doubt.take_if(|doubt| {
            let mut roles = doubt.roles.iter();
            roles.any(|role| begins_anew_with(&self.spec, key.role, *role))
        });
        let Some(doubt) = doubt else {
            return Vec::new();
        };
        self.timers.arm(Timer::Doubt, None);
        let again = Then::Again { at: self.now };
        for key in &doubt.tasks {
            self.roles[key.role].lost -= 1;
            match &mut self.task_mut(*key).place {
                Place::Stopping { then, .. } | Place::Leaving { then, .. } => *then = again.clone(),
                _ => self.go_on(*key, again.clone(), out),
            }
        }
        doubt.tasks
    }

    /// The task's role has no use for it any more: whatever becomes of it, it is not what has failed.
    pub(super) fn doubt_no_more(&mut self, key: TaskKey) {
        if let Some(doubt) = &mut self.doubt {
            doubt.tasks.retain(|other| *other != key);
        }
    }

    /// Those who were acquitted begin anew, if they do not already.
    pub(super) fn bring_back(&mut self, acquitted: Vec<TaskKey>, out: &mut Vec<Action>) {
        for key in acquitted {
            if self.task(key).gathering.is_none() {
                self.begin_anew(key, None, out);
            }
        }
    }

    /// Whether a failure that no restart is left for may turn out to be nobody's.
    pub(super) fn is_doubtful(&self, key: TaskKey, ending: &Ending) -> bool {
        let failed = matches!(ending, Ending::Exited { .. } | Ending::Signalled { .. });
        let place = &self.task(key).place;
        let ran = matches!(place, Place::Starting { .. } | Place::Running { .. });
        let doubted = failed && ran && self.can_be_bereaved(key.role);
        doubted && self.run_beside(key.role) > 1 && !self.mutant.is(Mutant::BelievesTheBereaved)
    }

    /// How many run who begin anew together with this role.
    fn run_beside(&self, role: usize) -> u32 {
        let others = (0..self.roles.len()).filter(|at| begins_anew_with(&self.spec, *at, role));
        others.map(|at| self.roles[at].runs()).sum()
    }

    /// A task has failed, and it is seen later what that means.
    pub(super) fn doubt(&mut self, key: TaskKey, cause: Cause) {
        let deadlines = &self.spec.timeouts;
        let until = self.now + (deadlines.grace + deadlines.stop);
        match &mut self.doubt {
            Some(doubt) => {
                doubt.tasks.push(key);
                doubt.roles.insert(key.role);
            }
            None => {
                self.doubt = Some(Doubt {
                    until,
                    cause,
                    tasks: vec![key],
                    roles: BTreeSet::from([key.role]),
                });
                self.timers.arm(Timer::Doubt, Some(until));
            }
        }
    }

    /// A new master: what was to be said of containers could not be.
    pub(super) fn doubt_anew(&mut self) {
        let deadlines = &self.spec.timeouts;
        let until = self.now + (deadlines.grace + deadlines.stop);
        if let Some(doubt) = &mut self.doubt {
            doubt.until = until;
            self.timers.arm(Timer::Doubt, Some(until));
        }
    }

    /// Whether nobody is left who could have been taken, or nobody was in time.
    pub(super) fn watch_doubt(&mut self, out: &mut Vec<Action>) {
        let Some(doubt) = &self.doubt else {
            return;
        };
        let roles = doubt.roles.iter();
        let run = roles.map(|role| self.run_beside(*role)).sum::<u32>();
        let stopped: u32 = self.gatherings.values().map(|it| it.share.rewinding).sum();
        if run + stopped == 0 || doubt.until <= self.now {
            let cause = doubt.cause.clone();
            self.fail(cause, out);
        }
    }
}

/// Whether those of a role begin anew when one of the other has failed.
fn begins_anew_with(spec: &JobSpec, role: usize, failed: usize) -> bool {
    match spec.roles[failed].restart.scope {
        RestartScope::Task | RestartScope::Role => role == failed,
        RestartScope::Job => !spec.roles[role].is_sidecar(),
    }
}
