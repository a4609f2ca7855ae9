//! Invariants of a job. A master with an inconsistent state stops.

use super::{Job, Phase, Stage, Task, TaskKey, pending::RoundCounts};
use crate::view::TaskState;

impl Job {
    /// Checks the invariants that are cheap enough for every event in a release build.
    pub(super) fn check(&self) {
        for role in &self.roles {
            assert_eq!(role.total(), role.want, "every task of a role is in exactly one state");
            assert!(role.tasks.len() >= role.want as usize, "every task that is wanted exists");
        }
        if matches!(self.stage, Stage::Finished(_)) {
            assert!(self.held.is_empty(), "a finished job holds nothing");
        }
        if cfg!(debug_assertions) {
            self.check_all();
        }
    }

    /// Checks all invariants; the cost grows with the number of tasks.
    pub fn check_all(&self) {
        let mut held = 0;
        for (at, role) in self.roles.iter().enumerate() {
            let mut lost = 0;
            for (index, task) in role.tasks.iter().enumerate() {
                let key = TaskKey { role: at, index: index as u32 };
                held += usize::from(task.phase.container().is_some());
                lost += u32::from(task.phase.has_failed() && !task.dropped);
                self.check_task(key, task);
            }
            if self.stage == Stage::Active {
                assert_eq!(role.failed, lost, "every task that failed for good is counted");
            }
        }
        assert_eq!(held, self.held.len(), "every container that is held belongs to a task");
        self.check_pending_rounds();
        if self.stage == Stage::Active {
            let running = |role: &super::RoleState| role.count(TaskState::Running) > 0;
            let waits = self.next_wakeup().is_some()
                || self.roles.iter().any(running)
                || self.may_be_idle()
                || !self.held.is_empty();
            assert!(waits, "an active job waits for something that will happen");
        }
    }

    fn check_task(&self, key: TaskKey, task: &Task) {
        if let Some(on) = task.phase.container() {
            let by = self.held.get(on).map(|held| held.task);
            assert_eq!(by, Some(key), "a task's container is held by that task");
        }
        let requested = self.roles[key.role].requested.get(&task.memory_mib);
        let listed = requested.is_some_and(|tasks| tasks.contains(&key.index));
        let asks = matches!(task.phase, Phase::Requested { .. });
        assert_eq!(asks, listed, "the asks are the tasks that ask");
        let spec = &self.spec.roles[key.role];
        if spec.elastic.is_none() && spec.serve.is_none() {
            let beyond = key.index >= self.roles[key.role].want;
            assert_eq!(task.dropped, beyond, "tasks beyond the role's size are on their way out");
        }
        if let Some(round) = task.pending {
            let pending = self.pending_rounds.get(&round);
            let member = pending.is_some_and(|it| it.members.contains(&key));
            assert!(member, "a task is a member of the round it waits for");
            assert_eq!(round, task.round, "a task waits for its own round");
        }
        // An armed timer may be early, if a heartbeat has moved the deadline; it may not be late or
        // missing.
        let armed = self.timers.of(super::Timer::Task(key));
        if let Some(due) = self.deadline(key) {
            assert!(armed.is_some_and(|at| at <= due), "a task that waits is woken in time");
        }
    }

    fn check_pending_rounds(&self) {
        for (round, pending) in &self.pending_rounds {
            let mut share = RoundCounts::default();
            for key in &pending.members {
                let task = self.task(*key);
                assert_eq!(task.pending, Some(*round), "a member waits for its round");
                let one = task.phase.share();
                share = share.with(RoundCounts::default(), one);
            }
            assert_eq!(share, pending.share, "the counts of a pending round are consistent");
            assert_eq!(
                pending.asking_since.is_some(),
                pending.share.requested > 0 && self.lacks_containers(pending),
                "a pending round that lacks required containers has a timeout"
            );
            let runs = self.roles.iter().any(|role| role.runs() > 0);
            assert!(
                pending.newcomers.is_some() || runs || self.timers.has_waits(),
                "a round is waited for, and nothing ends the wait"
            );
        }
    }
}
