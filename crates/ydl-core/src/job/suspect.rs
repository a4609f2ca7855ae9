//! Failures that may follow from the loss of a peer: the peers of a preempted task often fail
//! before the preemption is known.
//!
//! A failure that used up a restart is remembered with its round, and exonerated if a task of the
//! round turns out to be lost. A failure without a restart left would end the job irreversibly. It stays suspect for
//! as long as a node may take to report the exit of a container; the other tasks keep running
//! meanwhile. If no task is left that could have been lost, the job fails.
//!
//! This applies only to elastic roles that restart their rounds: fixed roles are not expected to
//! survive a loss without a restart, and notified roles continue by themselves.

use super::{Job, Mutant, NextStep, Phase, TaskKey, nodes::NodeCharge, timers::Timer};
use crate::{
    action::Action,
    ending::{Cause, Ending},
    spec::{JobSpec, RestartScope},
    time::Time,
};
use alloc::{collections::BTreeSet, vec, vec::Vec};

/// A failure that used up a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChargedFailure {
    /// Role whose restart was used up.
    role: usize,
    /// Charge against its node.
    node_charge: Option<NodeCharge>,
}

/// Failures that fail the job unless they follow from the loss of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Suspicion {
    until: Time,
    /// Cause with which the job fails.
    pub(super) cause: Cause,
    /// Failed tasks that are still needed.
    tasks: Vec<TaskKey>,
    /// Roles of these tasks.
    roles: BTreeSet<usize>,
}

impl Job {
    /// Returns true if tasks of this role may fail because of a lost peer and restart with the
    /// others.
    fn can_fail_with_peer(&self, role: usize) -> bool {
        self.range(role).is_some() && !self.is_notified(role)
    }

    /// Remembers a failure that used up a restart. Its peers are being stopped now; one that turns
    /// out to be lost was the cause.
    pub(super) fn remember_charged_failure(
        &mut self,
        key: TaskKey,
        node_charge: Option<NodeCharge>,
    ) {
        let can_fail_with_peer = self.can_fail_with_peer(key.role);
        let round = self.task(key).pending.filter(|_| can_fail_with_peer);
        if let Some(pending) = round.and_then(|round| self.pending_rounds.get_mut(&round)) {
            let role = key.role;
            pending.charged = Some(ChargedFailure { role, node_charge });
        }
    }

    /// Exonerates the failures in the round of a lost task: the cluster took it, or its node ended
    /// its container for a reason that counts by itself. Returns the suspects, which must restart.
    pub(super) fn exonerate(&mut self, key: TaskKey, out: &mut Vec<Action>) -> Vec<TaskKey> {
        if self.mutant.is(Mutant::ChargesPeerFailures) {
            return Vec::new();
        }
        let round = self.task(key).pending;
        let pending = round.and_then(|round| self.pending_rounds.get_mut(&round));
        if let Some(charged) = pending.and_then(|pending| pending.charged.take()) {
            self.roles[charged.role].failures.pop_back();
            let charges = self.mutant.is(Mutant::ChargesPeerFailureNodes);
            if let Some(charge) = charged.node_charge.filter(|_| !charges) {
                self.clear_charge(&charge, out);
            }
        }
        let suspicion = self.suspicion.take_if(|suspicion| {
            let mut roles = suspicion.roles.iter();
            roles.any(|role| restarts_with(&self.spec, key.role, *role))
        });
        let Some(suspicion) = suspicion else {
            return Vec::new();
        };
        self.timers.arm(Timer::Suspicion, None);
        let again = NextStep::Retry { at: self.now };
        for key in &suspicion.tasks {
            self.roles[key.role].failed -= 1;
            match &mut self.task_mut(*key).phase {
                Phase::Stopping { then, .. } | Phase::Releasing { then, .. } => {
                    *then = again.clone()
                }
                _ => self.advance(*key, again.clone(), out),
            }
        }
        suspicion.tasks
    }

    /// Removes a dropped task from the suspects.
    pub(super) fn drop_suspect(&mut self, key: TaskKey) {
        if let Some(suspicion) = &mut self.suspicion {
            suspicion.tasks.retain(|other| *other != key);
        }
    }

    /// Restarts exonerated tasks, unless they restart already.
    pub(super) fn restart_exonerated(&mut self, exonerated: Vec<TaskKey>, out: &mut Vec<Action>) {
        for key in exonerated {
            if self.task(key).pending.is_none() {
                self.restart_scope(key, None, out);
            }
        }
    }

    /// Returns true if a failure without a restart left may follow from the loss of a peer.
    pub(super) fn is_suspect(&self, key: TaskKey, ending: &Ending) -> bool {
        let failed = matches!(ending, Ending::Exited { .. } | Ending::Signalled { .. });
        let phase = &self.task(key).phase;
        let ran = matches!(phase, Phase::Starting { .. } | Phase::Running { .. });
        let suspected = failed && ran && self.can_fail_with_peer(key.role);
        suspected
            && self.running_peers(key.role) > 1
            && !self.mutant.is(Mutant::FailsJobOnPeerFailure)
    }

    /// Returns the number of running tasks that restart together with this role.
    fn running_peers(&self, role: usize) -> u32 {
        let others = (0..self.roles.len()).filter(|at| restarts_with(&self.spec, *at, role));
        others.map(|at| self.roles[at].runs()).sum()
    }

    /// Marks the failure of a task as suspect.
    pub(super) fn suspect(&mut self, key: TaskKey, cause: Cause) {
        let timeouts = &self.spec.timeouts;
        let until = self.now + (timeouts.grace + timeouts.stop);
        match &mut self.suspicion {
            Some(suspicion) => {
                suspicion.tasks.push(key);
                suspicion.roles.insert(key.role);
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

    /// Restarts the suspicion after a recovery: no exits could be reported without a master.
    pub(super) fn renew_suspicion(&mut self) {
        let timeouts = &self.spec.timeouts;
        let until = self.now + (timeouts.grace + timeouts.stop);
        if let Some(suspicion) = &mut self.suspicion {
            suspicion.until = until;
            self.timers.arm(Timer::Suspicion, Some(until));
        }
    }

    /// Fails the job if no task is left that could be lost, or the time is up.
    pub(super) fn settle_suspicion(&mut self, out: &mut Vec<Action>) {
        let Some(suspicion) = &self.suspicion else {
            return;
        };
        let roles = suspicion.roles.iter();
        let run = roles.map(|role| self.running_peers(*role)).sum::<u32>();
        let stopped: u32 = self.pending_rounds.values().map(|it| it.share.restarting).sum();
        if run + stopped == 0 || suspicion.until <= self.now {
            let cause = suspicion.cause.clone();
            self.fail(cause, out);
        }
    }
}

/// Returns true if tasks of a role restart when a task of the other role fails.
fn restarts_with(spec: &JobSpec, role: usize, failed: usize) -> bool {
    match spec.roles[failed].restart.scope {
        RestartScope::Task | RestartScope::Role => role == failed,
        RestartScope::Job => !spec.roles[role].is_sidecar(),
    }
}
