//! Independent definition of a job's success.

use super::checks::Checks;
use std::collections::BTreeSet;
use ydl_core::{
    ContainerId, TaskId,
    spec::{Completion, RestartScope, RoleSpec},
};

impl Checks {
    /// Returns true if the actual program exits meet the completion rules.
    pub fn success(&self) -> bool {
        // The job waits for followers until their timeout.
        let beside = [Completion::Service, Completion::Follows, Completion::Sidecar];
        let needed = |role: &&RoleSpec| !beside.contains(&role.completion);
        let decides = |role: &&RoleSpec| role.completion == Completion::Primary;
        let roles = &self.spec.roles;
        if roles.iter().filter(needed).count() == 0 {
            let mut own = roles.iter().filter(|role| !self.stands_beside(&role.name));
            return own.all(|role| self.role_done(role));
        }
        let decided = roles.iter().filter(decides).any(|role| self.role_done(role));
        decided || roles.iter().filter(needed).all(|role| self.role_done(role))
    }

    fn role_done(&self, role: &RoleSpec) -> bool {
        let indexes: Vec<u32> = match (role.elastic, self.newest_cluster()) {
            // The job does not wait for tasks outside of the round.
            (Some(_), Some(cluster)) => {
                let member = cluster.role(role.name.as_str());
                member.map_or(Vec::new(), |member| member.indexes().collect())
            }
            _ => (0..self.failures.want(&role.name)).collect(),
        };
        let tasks = indexes.into_iter().map(|index| TaskId { role: role.name.clone(), index });
        let tasks = tasks.filter(|task| role.elastic.is_none() || !self.dropped.contains(task));
        let (won, rest): (Vec<_>, Vec<_>) = tasks.partition(|task| {
            // The exit of an abandoned program is irrelevant.
            !self.failures.lost(task) && self.task_succeeded(task)
        });
        if self.is_told(role) {
            let all = self.last.iter().filter(|(task, _)| task.role == role.name);
            return all.into_iter().any(|(task, _)| self.task_succeeded(task));
        }
        match role.completion {
            Completion::Any => !won.is_empty(),
            Completion::All | Completion::Primary => {
                let only_stopped = rest.iter().all(|task| self.stopped.contains(task));
                (!won.is_empty() || only_stopped)
                    && rest.iter().all(|task| self.over(task))
                    && self.same_round(&won)
            }
            Completion::Service | Completion::Follows | Completion::Sidecar => {
                rest.iter().all(|task| self.over(task))
            }
        }
    }

    /// Returns true if the task failed for good or was stopped on request.
    fn over(&self, task: &TaskId) -> bool {
        self.failures.lost(task) || self.stopped.contains(task)
    }

    fn task_succeeded(&self, task: &TaskId) -> bool {
        let Some((at, _, Some(true))) = self.last.get(task) else {
            return false;
        };
        let id = ContainerId::from(format!("c{at}"));
        self.spec.outputs.is_empty() || self.saved.contains(&id)
    }

    /// If all tasks restart together, successful tasks succeeded in the same round.
    fn same_round(&self, tasks: &[TaskId]) -> bool {
        let job = |role: &RoleSpec| role.restart.scope == RestartScope::Job;
        let rounds: BTreeSet<_> = tasks.iter().map(|task| self.last[task].1).collect();
        let told = |role: &RoleSpec| self.is_told(role);
        rounds.len() <= 1 || !self.spec.roles.iter().all(job) || self.spec.roles.iter().any(told)
    }
}
