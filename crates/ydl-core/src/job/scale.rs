//! A role changes its size while the job runs.

use super::{Job, Place, Stage, TaskKey, Then, attempt::Gone};
use crate::{
    action::Action, ending::TaskResult, fact::What, id::RoleName, spec::Scope, view::TaskState,
};
use alloc::vec::Vec;

impl Job {
    pub(super) fn on_scaled(&mut self, name: &RoleName, instances: u32, out: &mut Vec<Action>) {
        let role = self.spec.roles.iter().position(|spec| spec.name == *name);
        let Some(role) = role.filter(|_| self.stage == Stage::Active && instances > 0) else {
            return;
        };
        let from = self.roles[role].want;
        if instances == from {
            return;
        }
        self.record(
            What::RoleScaled {
                role: name.clone(),
                from,
                to: instances,
            },
            out,
        );
        if instances > from {
            self.grow(role, instances);
        } else {
            self.shrink(role, instances, out);
        }
        self.tell_sizes();
    }

    /// Newcomers of a gang gather by themselves first, so that the others are interrupted only when all are there.
    fn grow(&mut self, role: usize, instances: u32) {
        let scope = self.spec.roles[role].restart.scope;
        let together = self.spec.gang.together;
        let running = together && scope != Scope::Task && !self.waits_to_begin();
        let round = if running {
            self.round += 1;
            self.round
        } else {
            self.gatherings.keys().next().copied().unwrap_or(self.round)
        };
        // Tasks that are still on their way out come back under their old index.
        while self.roles[role].want < instances {
            let index = self.roles[role].want;
            if (index as usize) < self.roles[role].tasks.len() {
                self.revive(TaskKey { role, index }, round);
                self.roles[role].want += 1;
            } else {
                let count = instances - index;
                self.add_tasks(role, count, round);
            }
        }
        if running && let Some(gathering) = self.gatherings.get_mut(&round) {
            gathering.joins = Some((role, scope));
        }
    }

    /// Whether the first round of the whole job is still gathering.
    fn waits_to_begin(&self) -> bool {
        let of = self.gathered().1;
        let total: u32 = self.roles.iter().map(|role| role.want).sum();
        of == total
    }

    fn revive(&mut self, key: TaskKey, round: u32) {
        self.recount_task(key);
        self.task_mut(key).round = round;
        if self.spec.gang.together {
            self.enter_gathering(key, round);
        }
        let at = self.now;
        match self.task(key).place.clone() {
            Place::Stopping {
                on, since, save, ..
            } => {
                let then = Then::Again { at };
                self.set_place(
                    key,
                    Place::Stopping {
                        on,
                        since,
                        save,
                        then,
                    },
                );
            }
            Place::Leaving { on, since, .. } => {
                self.set_place(
                    key,
                    Place::Leaving {
                        on,
                        since,
                        then: Then::Again { at },
                    },
                );
            }
            // Only tasks that still have a container stay when a role shrinks; see `vanish`.
            Place::Idle { .. }
            | Place::Asked { .. }
            | Place::Launching { .. }
            | Place::Joining { .. }
            | Place::Ready { .. }
            | Place::Starting { .. }
            | Place::Running { .. }
            | Place::Rewinding { .. }
            | Place::Over { .. } => {
                let task = self.task_mut(key);
                task.attempt += 1;
                self.ask(key);
            }
        }
    }

    fn shrink(&mut self, role: usize, instances: u32, out: &mut Vec<Action>) {
        let mut ran = false;
        for index in (instances..self.roles[role].want).rev() {
            let key = TaskKey { role, index };
            self.leave_gathering(key);
            self.uncount(key);
            match self.task(key).place.clone() {
                Place::Idle { .. } | Place::Asked { .. } => {
                    let result = TaskResult::Stopped;
                    self.set_place(
                        key,
                        Place::Over {
                            since: self.now,
                            result,
                        },
                    );
                }
                Place::Launching { .. } | Place::Joining { .. } | Place::Ready { .. } => {
                    self.part(key, Then::Vanish, Gone::Unsure, false, out);
                }
                Place::Starting { .. } | Place::Running { .. } | Place::Rewinding { .. } => {
                    ran = true;
                    self.part(key, Then::Vanish, Gone::AgentAlive, true, out);
                }
                Place::Stopping {
                    on, since, save, ..
                } => {
                    let then = Then::Vanish;
                    self.set_place(
                        key,
                        Place::Stopping {
                            on,
                            since,
                            save,
                            then,
                        },
                    );
                }
                Place::Leaving { on, since, .. } => {
                    self.set_place(
                        key,
                        Place::Leaving {
                            on,
                            since,
                            then: Then::Vanish,
                        },
                    );
                }
                Place::Over { .. } => {}
            }
        }
        self.roles[role].want = instances;
        self.trim(role);
        let scope = self.spec.roles[role].restart.scope;
        let because = TaskKey { role, index: 0 };
        let done = self.task(because).place.state() == TaskState::Succeeded;
        if ran && !done && self.spec.gang.together {
            match scope {
                Scope::Task => {}
                Scope::Role => self.new_round(Some(role), because, out),
                Scope::Job => self.new_round(None, because, out),
            }
        }
    }

    /// A task that was on its way out is gone.
    pub(super) fn vanish(&mut self, key: TaskKey) {
        let result = TaskResult::Stopped;
        self.set_place(
            key,
            Place::Over {
                since: self.now,
                result,
            },
        );
        self.trim(key.role);
    }

    /// Forgets tasks beyond the role's size that have nothing left.
    fn trim(&mut self, role: usize) {
        let state = &mut self.roles[role];
        while state.tasks.len() > state.want as usize {
            let over = state
                .tasks
                .last()
                .is_some_and(|task| task.dropped && matches!(task.place, Place::Over { .. }));
            if !over {
                return;
            }
            state.tasks.pop();
        }
    }
}
