//! Failures that may be nobody's: the peers of one that the cluster takes often fail before it is known to be taken.
//!
//! One that uses up a restart is accused, and acquitted when one of its round turns out to be taken. One that no restart is
//! left for would end the job, and that cannot be undone: it is doubted for as long as the node of a container that is being
//! ended may take to say so. Meanwhile the others run on; when none is left that could have been taken, the job fails.
//!
//! Both only where roles are elastic and begin anew: of fixed ones nobody expects that they outlive what is taken from them
//! without a restart, and those who are told do so by themselves.

use super::{Job, Mutant, NextStep, Phase, TaskKey, nodes::NodeCharge, timers::Timer};
use crate::{
    action::Action,
    ending::{Cause, Ending},
    spec::{JobSpec, RestartScope},
    time::Time,
};
use alloc::{collections::BTreeSet, vec, vec::Vec};

/// A failure that has used up a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChargedFailure {
    /// Whose restarts.
    role: usize,
    /// What was held against its node.
    mark: Option<NodeCharge>,
}

/// Failures that end the job unless it turns out that the cluster was the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Suspicion {
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
    fn can_fail_with_peer(&self, role: usize) -> bool {
        self.range(role).is_some() && !self.is_notified(role)
    }

    /// A program has failed and used up a restart. Whoever ran in its round is being stopped now; one that the cluster has
    /// taken in the meantime cannot be, and was the cause.
    pub(super) fn charge(&mut self, key: TaskKey, mark: Option<NodeCharge>) {
        let bereaved = self.can_fail_with_peer(key.role);
        let round = self.task(key).pending.filter(|_| bereaved);
        if let Some(pending) = round.and_then(|round| self.pending_rounds.get_mut(&round)) {
            let role = key.role;
            pending.charged = Some(ChargedFailure { role, mark });
        }
    }

    /// A task has gone that ran in the round which others' failures have ended, or will: the cluster has taken it, or its
    /// node is ending its container for a reason that counts by itself. Those others only failed because of it. Those who
    /// were doubted are to begin anew.
    pub(super) fn exonerate(&mut self, key: TaskKey, out: &mut Vec<Action>) -> Vec<TaskKey> {
        if self.mutant.is(Mutant::ChargesPeerFailures) {
            return Vec::new();
        }
        let round = self.task(key).pending;
        let pending = round.and_then(|round| self.pending_rounds.get_mut(&round));
        if let Some(charged) = pending.and_then(|pending| pending.charged.take()) {
            self.roles[charged.role].failures.pop_back();
            let blames = self.mutant.is(Mutant::ChargesPeerFailureNodes);
            if let Some(mark) = charged.mark.filter(|_| !blames) {
                self.clear_charge(&mark, out);
            }
        }
        let doubt = self.suspicion.take_if(|doubt| {
            let mut roles = doubt.roles.iter();
            roles.any(|role| restarts_with(&self.spec, key.role, *role))
        });
        let Some(doubt) = doubt else {
            return Vec::new();
        };
        self.timers.arm(Timer::Suspicion, None);
        let again = NextStep::Retry { at: self.now };
        for key in &doubt.tasks {
            self.roles[key.role].failed -= 1;
            match &mut self.task_mut(*key).phase {
                Phase::Stopping { then, .. } | Phase::Releasing { then, .. } => {
                    *then = again.clone()
                }
                _ => self.advance(*key, again.clone(), out),
            }
        }
        doubt.tasks
    }

    /// The task's role has no use for it any more: whatever becomes of it, it is not what has failed.
    pub(super) fn drop_suspect(&mut self, key: TaskKey) {
        if let Some(doubt) = &mut self.suspicion {
            doubt.tasks.retain(|other| *other != key);
        }
    }

    /// Those who were acquitted begin anew, if they do not already.
    pub(super) fn restart_exonerated(&mut self, exonerated: Vec<TaskKey>, out: &mut Vec<Action>) {
        for key in exonerated {
            if self.task(key).pending.is_none() {
                self.restart_scope(key, None, out);
            }
        }
    }

    /// Whether a failure that no restart is left for may turn out to be nobody's.
    pub(super) fn is_suspect(&self, key: TaskKey, ending: &Ending) -> bool {
        let failed = matches!(ending, Ending::Exited { .. } | Ending::Signalled { .. });
        let phase = &self.task(key).phase;
        let ran = matches!(phase, Phase::Starting { .. } | Phase::Running { .. });
        let suspected = failed && ran && self.can_fail_with_peer(key.role);
        suspected
            && self.running_peers(key.role) > 1
            && !self.mutant.is(Mutant::FailsJobOnPeerFailure)
    }

    /// How many run who begin anew together with this role.
    fn running_peers(&self, role: usize) -> u32 {
        let others = (0..self.roles.len()).filter(|at| restarts_with(&self.spec, *at, role));
        others.map(|at| self.roles[at].runs()).sum()
    }

    /// A task has failed, and it is seen later what that means.
    pub(super) fn suspect(&mut self, key: TaskKey, cause: Cause) {
        let deadlines = &self.spec.timeouts;
        let until = self.now + (deadlines.grace + deadlines.stop);
        match &mut self.suspicion {
            Some(doubt) => {
                doubt.tasks.push(key);
                doubt.roles.insert(key.role);
            }
            None => {
                self.suspicion = Some(Suspicion {
                    until,
                    cause,
                    tasks: vec![key],
                    roles: BTreeSet::from([key.role]),
                });
                self.timers.arm(Timer::Suspicion, Some(until));
            }
        }
    }

    /// A new master: what was to be said of containers could not be.
    pub(super) fn renew_suspicion(&mut self) {
        let deadlines = &self.spec.timeouts;
        let until = self.now + (deadlines.grace + deadlines.stop);
        if let Some(doubt) = &mut self.suspicion {
            doubt.until = until;
            self.timers.arm(Timer::Suspicion, Some(until));
        }
    }

    /// Whether nobody is left who could have been taken, or nobody was in time.
    pub(super) fn settle_suspicion(&mut self, out: &mut Vec<Action>) {
        let Some(doubt) = &self.suspicion else {
            return;
        };
        let roles = doubt.roles.iter();
        let run = roles.map(|role| self.running_peers(*role)).sum::<u32>();
        let stopped: u32 = self.pending_rounds.values().map(|it| it.share.restarting).sum();
        if run + stopped == 0 || doubt.until <= self.now {
            let cause = doubt.cause.clone();
            self.fail(cause, out);
        }
    }
}

/// Whether those of a role begin anew when one of the other has failed.
fn restarts_with(spec: &JobSpec, role: usize, failed: usize) -> bool {
    match spec.roles[failed].restart.scope {
        RestartScope::Task | RestartScope::Role => role == failed,
        RestartScope::Job => !spec.roles[role].is_sidecar(),
    }
}
