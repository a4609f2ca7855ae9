//! Scaling of roles while the job runs.

use super::{Job, JobProgress, Mutant, NextStep, Phase, Stage, TaskKey, release::ContainerFate};
use crate::{
    action::Action,
    ending::TaskResult,
    history::{HistoryKind, RestartCause, counted},
    id::RoleName,
    spec::{Input, JobSpecBuilder, Range, RestartScope, SpecIssue},
};
use alloc::{format, string::String, vec, vec::Vec};
use core::cmp::Ordering;

impl Job {
    /// Checks whether a role can be scaled to this size. An invalid request is ignored.
    pub fn check_scale(&self, role: &RoleName, instances: u32) -> Result<(), Vec<SpecIssue>> {
        let mut builder = JobSpecBuilder::from(self.spec.clone());
        for (spec, state) in builder.roles.iter_mut().zip(&self.roles) {
            spec.instances = state.serving.as_ref().map_or(state.want, |it| it.size);
        }
        let at = builder.roles.iter().position(|spec| spec.name == *role);
        let Some((at, spec)) = at.and_then(|at| Some((at, builder.roles.get_mut(at)?))) else {
            return Err(vec![SpecIssue {
                key: format!("roles.{role}"),
                message: format!("the job has no role `{role}`"),
                hint: None,
            }]);
        };
        // The required roles would have to restart, with tasks that were stopped because they were
        // not needed.
        if self.done() != JobProgress::Incomplete {
            return Err(vec![SpecIssue {
                key: format!("roles.{role}"),
                message: "all required tasks are done, and the job only waits for followers".into(),
                hint: None,
            }]);
        }
        let range = spec.elastic.or(spec.serve.as_ref().map(|serve| serve.replicas));
        if let Some(Range { min, max }) = range
            && !(min..=max).contains(&instances)
        {
            return Err(vec![SpecIssue {
                key: format!("roles.{role}.instances"),
                message: format!(
                    "role `{role}` has between {min} and {max} tasks, not {instances}"
                ),
                hint: Some("submit again with another `min` or `max`".into()),
            }]);
        }
        spec.instances = instances;
        builder.check_running(self.ended_tasks(at))?;
        self.split_input_issue(at, instances).map_or(Ok(()), Err)
    }

    /// Rejects a size that conflicts with split inputs, which were divided over the tasks at
    /// submit: additional tasks would get no files, and the files of removed tasks would not be
    /// read.
    fn split_input_issue(&self, role: usize, instances: u32) -> Option<Vec<SpecIssue>> {
        let had = &self.spec.roles[role];
        let instances = self.task_count_at(role, instances);
        let fits = |input: &Input| match instances.cmp(&had.instances) {
            Ordering::Less => false,
            Ordering::Equal => true,
            Ordering::Greater => input.allow_empty,
        };
        let mut inputs = self.spec.inputs_of(had);
        let input = inputs.find(|input| input.form.is_split() && !fits(input))?;
        let hint = match instances < had.instances {
            true => "submit again with fewer instances",
            false => {
                "submit again with more instances; or set `allow_empty: true`, and further tasks get none"
            }
        };
        Some(vec![SpecIssue {
            key: format!("roles.{}", had.name),
            message: format!(
                "the files of the input `{}` were divided over the {} of role `{}` at submit",
                input.name,
                counted(had.instances, "task"),
                had.name,
            ),
            hint: Some(hint.into()),
        }])
    }

    pub(super) fn on_scale_requested(
        &mut self,
        name: &RoleName,
        instances: u32,
        out: &mut Vec<Action>,
    ) {
        let role = self.spec.roles.iter().position(|spec| spec.name == *name);
        if let Some(role) = role
            && self.stage == Stage::Active
            && self.check_scale(name, instances).is_ok()
        {
            match self.serving(role) {
                Some(_) => self.set_size(role, instances, None, out),
                None => self.resize(role, instances, None, out),
            }
        }
    }

    pub(super) fn resize(
        &mut self,
        role: usize,
        to: u32,
        reason: Option<String>,
        out: &mut Vec<Action>,
    ) {
        let from = self.size(role);
        if from == to {
            return;
        }
        let kind =
            HistoryKind::RoleScaled { role: self.spec.roles[role].name.clone(), from, to, reason };
        self.record(kind, out);
        if to > from {
            self.grow(role, to);
        } else {
            self.shrink(role, to, out);
        }
        self.update_sizes();
    }

    /// Adds tasks. Newcomers of a gang wait in a round of their own, so that running tasks are
    /// interrupted only when all are ready.
    fn grow(&mut self, role: usize, instances: u32) {
        let pending = self.pending_round_of(role).or_else(|| self.newcomers_of(role));
        let apart = self.starts_together(role) && pending.is_none();
        self.round += u32::from(apart);
        let round = pending.unwrap_or(self.round);
        // Dropped tasks return under their old index, so that attempt numbers stay unique.
        let tasks = self.roles[role].tasks.iter().zip(0..);
        let dropped = tasks.filter(|(task, _)| task.dropped);
        let back: Vec<u32> = dropped.map(|(_, index)| index).collect();
        let mut new = instances - self.size(role);
        for key in back.into_iter().map(|index| TaskKey { role, index }) {
            if new == 0 {
                break;
            }
            self.roles[role].want += 1;
            if self.task(key).stopped && !self.mutant.is(Mutant::RestartsStoppedTasks) {
                self.recount_task(key);
            } else {
                self.revive(key, round);
                new -= 1;
            }
        }
        self.add_tasks(role, new, round);
        let scope = self.spec.roles[role].restart.scope;
        if apart && let Some(pending) = self.pending_rounds.get_mut(&round) {
            pending.newcomers = Some((role, scope));
        }
        self.update_wait_times(round);
    }

    /// Returns the pending round of the whole role, if any.
    fn pending_round_of(&self, role: usize) -> Option<u32> {
        let all = |index: u32| TaskKey { role, index };
        let want = self.roles[role].want as usize;
        let mut pending_rounds = self.pending_rounds.iter();
        let found = pending_rounds.find(|(_, pending)| {
            let members = pending.members.range(all(0)..=all(u32::MAX));
            pending.newcomers.is_none() && members.count() == want
        });
        found.map(|(round, _)| *round)
    }

    fn revive(&mut self, key: TaskKey, round: u32) {
        self.recount_task(key);
        self.retire_run(key);
        self.task_mut(key).round = round;
        if self.starts_together(key.role) {
            self.join_pending_round(key, round);
        }
        let again = NextStep::Retry { at: self.now };
        match &mut self.task_mut(key).phase {
            Phase::Stopping { then, .. } | Phase::Releasing { then, .. } => *then = again,
            Phase::BackingOff { .. }
            | Phase::Requested { .. }
            | Phase::Launching { .. }
            | Phase::Joining { .. }
            | Phase::Ready { .. }
            | Phase::Starting { .. }
            | Phase::Running { .. }
            | Phase::Restarting { .. }
            | Phase::Finished { .. } => {
                let task = self.task_mut(key);
                task.attempt += 1;
                task.endpoint = None;
                task.exit = None;
                self.ask(key);
            }
        }
    }

    fn shrink(&mut self, role: usize, instances: u32, out: &mut Vec<Action>) {
        let mut ran = None;
        let want = self.task_count_at(role, instances);
        for key in self.surplus_tasks(role, want) {
            self.leave_pending_round(key);
            self.drop_suspect(key);
            self.uncount(key);
            if matches!(self.task(key).phase, Phase::Starting { .. } | Phase::Running { .. }) {
                ran.get_or_insert(key);
            }
            self.remove_task(key, out);
        }
        self.roles[role].want = want;
        // The remaining tasks may be below the minimum now.
        let newcomers = self.newcomers_of(role);
        if let Some(round) = newcomers.filter(|_| !self.mutant.is(Mutant::SkipsRecount)) {
            self.update_wait_times(round);
        }
        self.fail_if_too_many_lost(role, out);
        let peers_continue = !self.starts_together(role) || self.stage != Stage::Active;
        let Some(removed) = ran.filter(|_| !peers_continue && !self.role_is_done(role)) else {
            return;
        };
        if self.is_notified(role) && self.roles[role].runs() > 0 {
            self.on_members_left(role, out);
            return;
        }
        let cause = (removed, RestartCause::TaskLeft);
        match self.spec.roles[role].restart.scope {
            RestartScope::Task => {}
            RestartScope::Role => self.restart_round(Some(role), cause, out),
            RestartScope::Job => self.restart_round(None, cause, out),
        }
    }

    /// Stops a dropped task.
    pub(super) fn remove_task(&mut self, key: TaskKey, out: &mut Vec<Action>) {
        let stopped = NextStep::Finish(TaskResult::Stopped);
        match &mut self.task_mut(key).phase {
            Phase::BackingOff { .. } | Phase::Requested { .. } => {
                self.finish_task(key, TaskResult::Stopped);
            }
            Phase::Launching { .. } | Phase::Joining { .. } | Phase::Ready { .. } => {
                self.release(key, stopped, ContainerFate::Unknown, false, out);
            }
            Phase::Starting { .. } | Phase::Running { .. } => {
                self.record_stopped(key, out);
                self.release(key, stopped, ContainerFate::AgentAlive, true, out);
            }
            Phase::Restarting { .. } => {
                self.release(key, stopped, ContainerFate::AgentAlive, true, out);
            }
            // Its ending is irrelevant, but its container must be released.
            Phase::Releasing { then: NextStep::Diagnose, .. } => {
                self.release(key, stopped, ContainerFate::Unknown, false, out)
            }
            Phase::Stopping { then, .. } | Phase::Releasing { then, .. } => *then = stopped,
            Phase::Finished { .. } => {}
        }
    }

    /// Returns the surplus tasks for a number of tasks: the last ones, in an elastic role those
    /// without a running program first.
    fn surplus_tasks(&self, role: usize, count: u32) -> Vec<TaskKey> {
        let mut keys = self.task_keys(Some(role));
        keys.reverse();
        if self.range(role).is_some() {
            let newcomers = self.newcomers_of(role);
            let knows = !self.mutant.is(Mutant::DropsRunningTasks);
            let is_new = |key: &TaskKey| knows && Some(self.task(*key).round) == newcomers;
            keys.sort_by_key(|key| match &self.task(*key).phase {
                Phase::BackingOff { .. } | Phase::Requested { .. } => 0,
                Phase::Stopping { .. } | Phase::Releasing { .. } => 1,
                Phase::Launching { .. } | Phase::Joining { .. } => 2,
                Phase::Ready { .. } if is_new(key) => 2,
                Phase::Ready { .. }
                | Phase::Starting { .. }
                | Phase::Running { .. }
                | Phase::Restarting { .. }
                | Phase::Finished { .. } => 3,
            });
        }
        keys.truncate(keys.len().saturating_sub(count as usize));
        keys
    }

    /// Fails the job if the failed tasks among the remaining ones exceed the tolerated number.
    fn fail_if_too_many_lost(&mut self, role: usize, out: &mut Vec<Action>) {
        if self.roles[role].failed <= self.tolerated(role) || self.suspicion.is_some() {
            return;
        }
        for key in self.task_keys(Some(role)) {
            let failed = match &self.task(key).phase {
                Phase::Finished { result, .. }
                | Phase::Stopping { then: NextStep::Finish(result), .. }
                | Phase::Releasing { then: NextStep::Finish(result), .. } => Some(result.clone()),
                _ => None,
            };
            if let Some(TaskResult::Failed(ending)) = failed {
                let cause = self.cause(key, ending);
                self.fail(cause, out);
                return;
            }
        }
    }

    /// Returns true if every task of a role has finished its program.
    fn role_is_done(&self, role: usize) -> bool {
        let tasks = self.roles[role].tasks.iter();
        let mut wanted = tasks.filter(|task| !task.dropped);
        wanted.all(|task| {
            matches!(
                task.phase,
                Phase::Finished { .. } | Phase::Stopping { then: NextStep::Finish(_), .. }
            )
        })
    }
}
