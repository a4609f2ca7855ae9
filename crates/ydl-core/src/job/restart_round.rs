//! Restart of a round.

use super::{Job, JobProgress, Mutant, NextStep, Phase, TaskKey};
use crate::{
    action::Action,
    ending::TaskResult,
    history::{HistoryKind, RestartCause},
};
use alloc::vec::Vec;

impl Job {
    /// Restarts every task of a role, or of the job if `role` is `None`. A task with a container
    /// keeps it unless it is being given back; a succeeded one asks again.
    pub(super) fn restart_round(
        &mut self,
        role: Option<usize>,
        (trigger, cause): (TaskKey, RestartCause),
        out: &mut Vec<Action>,
    ) {
        // The required roles are done, and only followers restart.
        let role = match self.done() {
            JobProgress::OnlyFollowers if !self.mutant.is(Mutant::RestartsUnneededTasks) => {
                Some(trigger.role)
            }
            JobProgress::Incomplete | JobProgress::OnlyFollowers | JobProgress::Complete => role,
        };
        self.round += 1;
        let round = self.round;
        self.newest = round;
        let mut keys = self.task_keys(role);
        keys.retain(|key| role.is_some() || !self.spec.roles[key.role].is_sidecar());
        let kind = HistoryKind::RoundRestarted {
            round,
            task: self.id(trigger),
            cause,
            tasks: keys.len() as u32,
        };
        self.record(kind, out);
        for key in keys {
            self.restart_task(key, round, out);
        }
        if let Some(pending) = self.pending_rounds.get_mut(&round) {
            pending.expedited = true;
        }
    }

    fn restart_task(&mut self, key: TaskKey, round: u32, out: &mut Vec<Action>) {
        let keep_success = self.mutant.is(Mutant::KeepsOldSuccesses);
        let now = self.now;
        match self.task(key).phase.clone() {
            Phase::Finished { result: TaskResult::Succeeded, .. } if !keep_success => {
                self.join_round(key, round);
                self.advance(key, NextStep::Retry { at: now }, out);
            }
            Phase::Finished { .. } => {}
            Phase::Stopping { then: NextStep::Finish(TaskResult::Succeeded), .. }
                if keep_success => {}
            // Its upload is not needed any more.
            Phase::Stopping { on, then: NextStep::Finish(TaskResult::Succeeded), .. } => {
                self.join_round(key, round);
                let phase = Phase::Stopping {
                    on: on.clone(),
                    since: now,
                    save: false,
                    then: NextStep::Retry { at: now },
                };
                self.set_phase(key, phase);
                out.push(Action::OrderChanged(on));
            }
            Phase::Stopping { then: NextStep::Finish(_), .. }
            | Phase::Releasing { then: NextStep::Finish(_), .. } => {}
            Phase::Starting { on, .. } | Phase::Running { on, .. } => {
                self.join_round(key, round);
                self.record_stopped(key, out);
                self.task_mut(key).attempt += 1;
                let phase = Phase::Restarting { on: on.clone(), since: now, ended: false };
                self.set_phase(key, phase);
                out.push(Action::OrderChanged(on));
            }
            Phase::Launching { on, .. }
            | Phase::Joining { on, .. }
            | Phase::Ready { on, .. }
            | Phase::Restarting { on, .. } => {
                self.join_round(key, round);
                out.push(Action::OrderChanged(on));
            }
            Phase::BackingOff { .. }
            | Phase::Requested { .. }
            | Phase::Stopping { then: NextStep::Retry { .. } | NextStep::Diagnose, .. }
            | Phase::Releasing { then: NextStep::Retry { .. } | NextStep::Diagnose, .. } => {
                self.join_round(key, round);
            }
        }
    }

    fn join_round(&mut self, key: TaskKey, round: u32) {
        self.leave_pending_round(key);
        self.retire_run(key);
        self.task_mut(key).round = round;
        if self.starts_together(key.role) {
            self.join_pending_round(key, round);
        }
        self.arm(key);
    }

    /// Returns every task of a role, or of the job, that is not dropped.
    pub(super) fn task_keys(&self, role: Option<usize>) -> Vec<TaskKey> {
        let roles = match role {
            Some(role) => role..role + 1,
            None => 0..self.roles.len(),
        };
        let mut keys = Vec::new();
        for role in roles {
            let tasks = self.roles[role].tasks.iter().zip(0..);
            let wanted = tasks.filter(|(task, _)| !task.dropped);
            keys.extend(wanted.map(|(_, index)| TaskKey { role, index }));
        }
        keys
    }
}
