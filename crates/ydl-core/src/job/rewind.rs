//! How a round begins anew.

use super::{Done, Job, Mutant, Place, TaskKey, Then};
use crate::{
    action::Action,
    ending::TaskResult,
    history::{HistoryKind, RestartCause},
};
use alloc::vec::Vec;

impl Job {
    /// Everybody in scope starts again: those with a healthy container in it, the others in a new one.
    pub(super) fn new_round(
        &mut self,
        role: Option<usize>,
        (because, how): (TaskKey, RestartCause),
        out: &mut Vec<Action>,
    ) {
        // Those whom others follow are done, and stay so.
        let role = match self.done() {
            Done::ButFollowers if !self.mutant.is(Mutant::RestartsTheSpare) => Some(because.role),
            Done::No | Done::ButFollowers | Done::All => role,
        };
        self.round += 1;
        let round = self.round;
        self.newest = round;
        let mut keys = self.keys(role);
        keys.retain(|key| role.is_some() || !self.spec.roles[key.role].is_sidecar());
        let what = HistoryKind::RoundRestarted {
            round,
            task: self.id(because),
            cause: how,
            tasks: keys.len() as u32,
        };
        self.record(what, out);
        for key in keys {
            self.rewind(key, round, out);
        }
        if let Some(gathering) = self.gatherings.get_mut(&round) {
            gathering.hurried = true;
        }
    }

    fn rewind(&mut self, key: TaskKey, round: u32, out: &mut Vec<Action>) {
        let keep_success = self.mutant.is(Mutant::KeepsOldSuccesses);
        let now = self.now;
        match self.task(key).place.clone() {
            Place::Over { result: TaskResult::Succeeded, .. } if !keep_success => {
                self.join_round(key, round);
                self.go_on(key, Then::Again { at: now }, out);
            }
            Place::Over { .. } => {}
            Place::Stopping { then: Then::Over(TaskResult::Succeeded), .. } if keep_success => {}
            // What it was saving is not wanted any more.
            Place::Stopping { on, then: Then::Over(TaskResult::Succeeded), .. } => {
                self.join_round(key, round);
                let place = Place::Stopping {
                    on: on.clone(),
                    since: now,
                    save: false,
                    then: Then::Again { at: now },
                };
                self.set_place(key, place);
                out.push(Action::OrderChanged(on));
            }
            Place::Stopping { then: Then::Over(_), .. }
            | Place::Leaving { then: Then::Over(_), .. } => {}
            Place::Starting { on, .. } | Place::Running { on, .. } => {
                self.join_round(key, round);
                self.record_stopped(key, out);
                self.task_mut(key).attempt += 1;
                let place = Place::Rewinding { on: on.clone(), since: now, ended: false };
                self.set_place(key, place);
                out.push(Action::OrderChanged(on));
            }
            Place::Launching { on, .. }
            | Place::Joining { on, .. }
            | Place::Ready { on, .. }
            | Place::Rewinding { on, .. } => {
                self.join_round(key, round);
                out.push(Action::OrderChanged(on));
            }
            Place::Idle { .. }
            | Place::Asked { .. }
            | Place::Stopping { then: Then::Again { .. } | Then::Judge, .. }
            | Place::Leaving { then: Then::Again { .. } | Then::Judge, .. } => {
                self.join_round(key, round);
            }
        }
    }

    fn join_round(&mut self, key: TaskKey, round: u32) {
        self.leave_gathering(key);
        self.fall_silent(key);
        self.task_mut(key).round = round;
        if self.gathers(key.role) {
            self.enter_gathering(key, round);
        }
        self.arm(key);
    }

    /// Every task of a role, or of the job, that is not on its way out.
    pub(super) fn keys(&self, role: Option<usize>) -> Vec<TaskKey> {
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
