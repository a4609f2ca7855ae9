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
use core::cmp::Ordering;

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
        self.check_scale(name, self.size(role).saturating_add(1))
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
        // Tasks beyond the size were dropped, and return under their old index.
        let mut tasks = self.roles[role].tasks.iter().zip(0..);
        let back = tasks.find(|(task, _)| task.dropped && !task.stopped);
        Some(back.map_or(self.roles[role].tasks.len() as u32, |(_, index)| index))
    }

    /// Returns the number of a role's tasks without those stopped on request.
    pub(super) fn size(&self, role: usize) -> u32 {
        let tasks = self.roles[role].tasks.iter();
        tasks.filter(|task| !task.dropped && !task.stopped).count() as u32
    }

    /// Returns the number of a role's tasks, with those stopped on request, at this size.
    pub(super) fn task_count_at(&self, role: usize, size: u32) -> u32 {
        let state = &self.roles[role];
        if state.tasks.iter().all(|task| !task.stopped) {
            return size;
        }
        let now = self.size(role);
        let mut others = state.tasks.iter().zip(0..).filter(|(task, _)| !task.stopped);
        match size.cmp(&now) {
            Ordering::Less => others.nth(size as usize).map_or(state.want, |(_, index)| index),
            Ordering::Equal => state.want,
            Ordering::Greater => {
                let stopped = state.tasks.iter().filter(|task| task.stopped).count() as u32;
                let last = others.nth(size as usize - 1);
                last.map_or(size + stopped, |(_, index)| index + 1)
            }
        }
    }

    /// Returns the number of tasks that have ended for good. Those of `role` that were stopped on
    /// request are no part of its size.
    pub(super) fn ended_tasks(&self, role: usize) -> u64 {
        let roles = (0..self.roles.len()).filter(|at| self.is_independent(*at));
        let ended = roles.map(|at| {
            let tasks = self.roles[at].tasks.iter();
            let ended = tasks.filter(|task| {
                let over = matches!(task.phase, Phase::Finished { .. }) && !task.dropped;
                over && (at != role || !task.stopped)
            });
            ended.count() as u64
        });
        ended.sum()
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
        let Some(index) = self.next_index(name) else {
            return;
        };
        self.resize(role, self.size(role) + 1, None, out);
        self.task_mut(TaskKey { role, index }).env = env;
    }

    pub(super) fn on_task_stop_requested(&mut self, task: &TaskId, out: &mut Vec<Action>) {
        if self.stage != Stage::Active {
            return;
        }
        if let Ok(key) = self.stoppable_task(task)
            && !self.task(key).stopped
        {
            self.drop_suspect(key);
            let waits =
                matches!(self.task(key).phase, Phase::BackingOff { .. } | Phase::Requested { .. });
            if waits {
                // Otherwise the history would not mention it.
                self.record_stopped(key, out);
            }
            self.stop_for_good(key, out);
            self.task_mut(key).stopped = true;
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
        if self.spec.roles[role].serve.is_some() {
            let message = format!("the replicas of role `{name}` are equal");
            return Err(issue(message, Some("scale the role instead")));
        }
        if !self.is_independent(role) {
            let message = format!("the tasks of role `{name}` start or restart together");
            return Err(issue(message, Some("scale the role instead")));
        }
        Ok(role)
    }

    /// Returns true if the tasks of a role start and restart on their own. A restart of the role
    /// or the job would bring a stopped task back.
    fn is_independent(&self, role: usize) -> bool {
        let own = self.spec.roles[role].restart.scope == RestartScope::Task;
        let alone = own && self.spec.roles.iter().all(|it| it.restart.scope != RestartScope::Job);
        alone && !self.starts_together(role)
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
        let phase = &self.task(key).phase;
        if matches!(phase, Phase::Finished { .. }) || phase.has_failed() {
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
