//! Start order: dependencies, and sidecars after their job.

use super::Checks;
use ydl_core::{Job, RoleName, TaskId, view::TaskState};

impl Checks {
    /// Roles with dependents that have started: every task has run or finished.
    pub(super) fn watch_beginnings(&mut self, job: &Job) {
        let spec = self.spec.clone();
        let waited = |name: &RoleName| spec.roles.iter().any(|role| role.depends_on.contains(name));
        if !spec.roles.iter().any(|role| waited(&role.name)) {
            return;
        }
        let tasks = job.view().tasks;
        for role in spec.roles.iter().filter(|role| waited(&role.name)) {
            let mut own = tasks.iter().filter(|task| task.task.role == role.name);
            let begun = own.all(|task| match task.state {
                TaskState::Succeeded | TaskState::Failed | TaskState::Stopped => true,
                // A dropped task is not waited for.
                TaskState::Stopping => true,
                _ => self.last.contains_key(&task.task),
            });
            if begun {
                self.begun.insert(role.name.clone());
            }
        }
    }

    /// Dependent roles start after their dependencies.
    pub(super) fn comes_after_others(&self, task: &TaskId) {
        let mut roles = self.spec.roles.iter();
        let spec = roles.find(|spec| spec.name == task.role);
        let after = spec.map(|spec| &spec.depends_on[..]).unwrap_or_default();
        let early = after.iter().find(|name| !self.begun.contains(*name));
        assert!(early.is_none(), "{task} was launched before {early:?} has begun");
        let beside = self.stands_beside(&task.role) && self.spec.gang.together;
        assert!(!beside || self.round_began, "{task} was launched and the job has not begun");
    }
}
