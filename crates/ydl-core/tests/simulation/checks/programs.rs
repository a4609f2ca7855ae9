//! Running programs, their rounds and members.

use super::{super::cluster::Container, Checks};
use std::sync::Arc;
use ydl_core::{
    AttemptRun, ContainerId, Job, Order, RoleMembers, TaskId, Time,
    spec::{Completion, RestartScope, RoleSpec},
};

impl Checks {
    /// An agent is told its order.
    pub fn ordered(&mut self, job: &Job, container: &ContainerId, order: &Order) {
        let task = match order {
            Order::Stop { .. } => return,
            Order::Wait { task, .. } => task,
            Order::Run(run) => {
                self.ran.insert(container.clone());
                self.told_to_run(run);
                &run.task
            }
        };
        assert!(!self.condemned.contains(container), "a container that is gone is counted on");
        assert_eq!(self.launched.get(container), Some(task), "an order for another task");
        assert_eq!(
            job.task_in_container(container).as_ref(),
            Some(task),
            "an order for another task"
        );
    }

    fn told_to_run(&mut self, run: &AttemptRun) {
        let Some(role) = self.spec.role(&run.task.role) else {
            panic!("told to run for a role that there is not");
        };
        let env = self.env.get(&run.task).cloned().unwrap_or_default();
        assert_eq!(run.env, env, "the variables of {}", run.task);
        if !self.spec.gang.together || role.restart.scope == RestartScope::Task || role.is_sidecar()
        {
            return;
        }
        if let Some(cluster) = self.rounds.get(&run.round) {
            let same = Arc::ptr_eq(cluster, &run.cluster) || *cluster == run.cluster;
            assert!(same, "one round, two clusters");
            return;
        }
        self.rounds.insert(run.round, run.cluster.clone());
        self.sizes_are_right(None, &run.cluster);
        for role in &self.spec.roles {
            // Followers continue without tasks that are not needed.
            let spare = self.late.followed && role.completion == Completion::Service;
            if role.tolerate > 0 || role.completion == Completion::Any || spare || role.is_sidecar()
            {
                continue;
            }
            let member = run.cluster.role(role.name.as_str());
            let members =
                |it: &&RoleMembers| it.indexes().zip(it.endpoints.clone()).collect::<Vec<_>>();
            for (index, endpoint) in member.iter().flat_map(members) {
                let task = TaskId { role: role.name.clone(), index };
                let host = self.current.get(&task).map(ContainerId::as_str);
                let known = host == Some(endpoint.host.as_str());
                assert!(known, "a round began without {task}");
            }
        }
    }

    pub fn program_starts(
        &mut self,
        task: &TaskId,
        round: u32,
        at: usize,
        containers: &[Container],
    ) {
        // A replica that was cut off may overlap its replacement.
        if let Some((other, _)) = self.live.get(task)
            && !self.serves(&task.role)
        {
            panic!("two programs of {task} run: in c{other} and in c{at}");
        }
        let whole = |role: &RoleSpec| {
            let complete = role.tolerate == 0 && role.completion != Completion::Any;
            complete && role.restart.scope == RestartScope::Job && !self.is_told(role)
        };
        // Followers continue without tasks that are not needed.
        let alone = [Completion::Follows, Completion::Sidecar].contains(&self.completion(task));
        let mut roles = self.spec.roles.iter().filter(|role| !role.is_sidecar());
        if self.spec.gang.together && !alone && roles.all(whole) {
            let mut live = self.live.iter();
            let old = live.find(|(task, (_, old))| {
                *old < round && self.completion(task) != Completion::Sidecar
            });
            assert!(old.is_none(), "round {round} runs beside an older one: {old:?}");
        }
        assert!(!containers[at].dead, "a program starts in a dead container");
        self.live.insert(task.clone(), (at, round));
        self.last.insert(task.clone(), (at, round, None));
    }

    pub fn program_ends(&mut self, task: &TaskId, round: u32, at: usize, succeeded: bool) {
        if self.live.get(task) == Some(&(at, round)) {
            self.live.remove(task);
        }
        if let Some(last) = self.last.get_mut(task)
            && (last.0, last.1) == (at, round)
        {
            last.2 = Some(succeeded);
        }
    }

    /// The master has looked for missed beats: what it should have given up, it has.
    pub fn watched(&self, now: u64, job: &Job) {
        let silence = self.spec.timeouts.heartbeat;
        for (container, since) in &self.quiet {
            let late = *since + silence < Time(now) && self.ran.contains(container);
            let stopped = !late || matches!(job.order(container), Order::Stop { .. });
            assert!(stopped, "a silent container is counted on");
        }
    }
}
