//! Notifications of the rendezvous: every attempt ends exactly once, and in time.

use super::checks::Checks;
use ydl_core::{
    Action, AttemptRun, Cluster, ContainerId, Job, Order, RoleName, TaskId,
    spec::RoleSpec,
    view::{TaskState, TaskView},
};

impl Checks {
    /// Returns true if a role is a sidecar of other roles.
    pub fn stands_beside(&self, name: &RoleName) -> bool {
        let role = self.spec.role(name).expect("a role of the job");
        role.is_sidecar() && !self.spec.roles.iter().all(RoleSpec::is_sidecar)
    }

    /// An attempt is said to be over, for the first time. One that was told to run and to stop by one event has not spoken.
    pub fn is_over(&mut self, run: &AttemptRun) {
        let before = self.speak.remove(&run.task).map(|(_, before)| before);
        let other = before.is_some_and(|before| before.attempt != run.attempt);
        let new = self.silent.insert((run.task.clone(), run.attempt));
        assert!(new && !other, "{} (attempt {}) is over, and was before", run.task, run.attempt);
    }

    /// Remaining tasks are not notified of lost or finished members.
    pub fn members_are_there(&self, job: &Job, cluster: &Cluster) {
        let view = job.view();
        let told = |task: &TaskId| {
            let role = self.spec.role(&task.role);
            role.is_some_and(|role| self.is_told(role))
        };
        for task in cluster.tasks().filter(told) {
            let mut tasks = view.tasks.iter();
            let found = tasks.find(|it: &&TaskView| it.task == task);
            // One that is warned, or stopped at the end, in this very event was there when they were told.
            let done = found.is_none_or(|it| {
                matches!(it.state, TaskState::Succeeded | TaskState::Failed | TaskState::Stopped)
            });
            let spoke = self.speak.contains_key(&task);
            let starts = found.is_some_and(|it| it.state == TaskState::Starting);
            assert!(
                spoke || starts || (self.outcome.is_some() && !done),
                "{task} is waited for, and does not run: {found:?}"
            );
        }
    }

    /// Attempts that were told to run and have not been reported as ended.
    pub fn ends_are_said(&mut self, job: &Job, actions: &[Action]) {
        for action in actions {
            if let Action::OrderChanged(container) = action
                && let Order::Run(run) = job.order(container)
            {
                let place = (container.clone(), run.clone());
                let before = self.speak.insert(run.task.clone(), place);
                let same = |it: &AttemptRun| (it.attempt, it.round) == (run.attempt, run.round);
                let other = before.filter(|(_, it)| !same(it));
                assert!(other.is_none(), "told to run while an attempt of it does");
            }
        }
        for (task, (container, run)) in &self.speak {
            assert!(
                still_runs(job, container, run),
                "{task} (attempt {}) is over, and nobody was told",
                run.attempt
            );
        }
    }
}

fn still_runs(job: &Job, container: &ContainerId, run: &AttemptRun) -> bool {
    let now = job.run_in(container);
    now.is_some_and(|now| (now.attempt, now.round) == (run.attempt, run.round))
}
