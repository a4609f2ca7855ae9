//! Single tasks that are added or stopped on request, in roles whose tasks start on their own.

use super::{Job, JobProgress, NextStep, Phase, Stage, TaskKey};
use crate::{
    action::Action,
    ending::TaskResult,
    id::{RoleName, TaskId},
    spec::{Completion, RestartScope, SpecIssue, check_added_env},
};
use alloc::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec,
    vec::Vec,
};

impl Job {
    /// Checks whether one more task of a role can be added, with these variables of its own. An
    /// invalid request is ignored.
    pub fn check_task_add(
        &self,
        name: &RoleName,
        env: &BTreeMap<String, String>,
    ) -> Result<(), Vec<SpecIssue>> {
        let role = self.independent_role(name).map_err(|issue| vec![issue])?;
        let issues = check_added_env(name, env);
        if !issues.is_empty() {
            return Err(issues);
        }
        self.check_scale(name, self.roles[role].want.saturating_add(1))
    }

    /// Checks whether a task can be stopped alone. An invalid request is ignored.
    pub fn check_task_stop(&self, task: &TaskId) -> Result<(), SpecIssue> {
        self.stoppable_task(task).map(|_| ())
    }

    /// Returns the tasks that were stopped for good, or are being stopped.
    pub fn stopped_tasks(&self) -> Vec<TaskId> {
        let is_stopped = |key: &TaskKey| match &self.task(*key).phase {
            Phase::Stopping { then: NextStep::Finish(result), .. }
            | Phase::Releasing { then: NextStep::Finish(result), .. }
            | Phase::Finished { result, .. } => *result == TaskResult::Stopped,
            _ => false,
        };
        let keys = self.task_keys(None).into_iter().filter(is_stopped);
        keys.map(|key| self.id(key)).collect()
    }

    /// Returns the index of the task that the next request would add to a role.
    pub fn next_index(&self, name: &RoleName) -> Option<u32> {
        let role = self.spec.roles.iter().position(|spec| spec.name == *name)?;
        Some(self.roles[role].want)
    }

    pub(super) fn on_task_add_requested(
        &mut self,
        name: &RoleName,
        env: BTreeMap<String, String>,
        out: &mut Vec<Action>,
    ) {
        if self.stage != Stage::Active || self.check_task_add(name, &env).is_err() {
            return;
        }
        let Ok(role) = self.independent_role(name) else {
            return;
        };
        // Tasks beyond the size are dropped, and an added task follows the others.
        let index = self.roles[role].want;
        self.resize(role, index + 1, None, out);
        self.task_mut(TaskKey { role, index }).env = env;
    }

    pub(super) fn on_task_stop_requested(&mut self, task: &TaskId, out: &mut Vec<Action>) {
        if self.stage != Stage::Active {
            return;
        }
        if let Ok(key) = self.stoppable_task(task) {
            self.drop_suspect(key);
            let waits =
                matches!(self.task(key).phase, Phase::BackingOff { .. } | Phase::Requested { .. });
            if waits {
                // Otherwise the history would not mention it.
                self.record_stopped(key, out);
            }
            self.stop_for_good(key, out);
        }
    }

    fn independent_role(&self, name: &RoleName) -> Result<usize, SpecIssue> {
        let issue = |message: String, hint: Option<&str>| SpecIssue {
            key: format!("roles.{name}"),
            message,
            hint: hint.map(ToString::to_string),
        };
        let Some(role) = self.spec.roles.iter().position(|spec| spec.name == *name) else {
            return Err(issue(format!("the job has no role `{name}`"), None));
        };
        // A restart of the role or the job would bring a stopped task back.
        let own = self.spec.roles[role].restart.scope == RestartScope::Task;
        let alone = own && self.spec.roles.iter().all(|it| it.restart.scope != RestartScope::Job);
        if self.starts_together(role) || !alone {
            let message = format!("the tasks of role `{name}` start or restart together");
            return Err(issue(message, Some("scale the role instead")));
        }
        Ok(role)
    }

    fn stoppable_task(&self, task: &TaskId) -> Result<TaskKey, SpecIssue> {
        let role = self.independent_role(&task.role)?;
        let issue = |message: String| SpecIssue {
            key: format!("roles.{}", task.role),
            message,
            hint: None,
        };
        let state = &self.roles[role];
        if task.index >= state.want {
            return Err(issue(format!("the job has no task `{task}`")));
        }
        let key = TaskKey { role, index: task.index };
        if matches!(self.task(key).phase, Phase::Finished { .. }) {
            return Err(issue(format!("`{task}` has already ended")));
        }
        if matches!(self.spec.roles[role].completion, Completion::Primary | Completion::Any) {
            return Err(issue(format!("the outcome of the job depends on `{task}`")));
        }
        if self.done() != JobProgress::Incomplete {
            return Err(issue("all required tasks are done".to_string()));
        }
        Ok(key)
    }
}
