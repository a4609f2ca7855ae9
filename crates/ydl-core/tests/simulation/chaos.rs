//! Random faults, until the simulated world becomes stable.

use super::world::{Happening, World};
use std::collections::BTreeMap;
use ydl_core::{
    Cause, ContainerExit, Event, Outcome, RoleName, TaskId,
    spec::Completion,
    view::{TaskState, TaskView},
};

impl World {
    /// One stroke of fate, and the next.
    pub fn strike(&mut self) {
        if self.calm {
            return;
        }
        let wait = self.random.from(200, 3_500);
        self.after(wait, Happening::Strike);
        let faults = self.plan.faults;
        if self.plan.serves() && self.random.percent(50) {
            self.strike_service();
            return;
        }
        if faults.scales && self.random.percent(30) && self.shrink_while_some_wait() {
            return;
        }
        if faults.stops && self.random.percent(20) {
            self.stop_task();
            return;
        }
        match self.random.below(12) {
            0 if faults.hung => self.strike_agent(|world, at| {
                if let Some(agent) = &mut world.containers[at].agent {
                    agent.hung = true;
                }
            }),
            1 if faults.crashes => self.strike_agent(|world, at| {
                world.container_dies(at, ContainerExit::Completed { status: 137 });
            }),
            2 if faults.nodes_die => self.node_dies(),
            3 | 4 | 11 if faults.partitions => {
                let node = self.some_node();
                self.partition(node);
            }
            5 if faults.memory => self.strike_agent(|world, at| {
                let limit_mib = world.containers[at].memory_mib;
                let end = ContainerExit::MemoryLimit { used_mib: limit_mib + 100, limit_mib };
                world.signal_container(at, end);
            }),
            6 if faults.preempts => self.preempt_many(),
            7 if faults.warns => self.strike_agent(|world, at| {
                world.tell_master(super::shell::Item::Warned(at));
                let wait = world.random.from(1_000, 8_000);
                let end = ContainerExit::Preempted;
                world.after(wait, Happening::ContainerSignalled { at, end });
            }),
            0 | 8 if faults.scales => self.scale(),
            9 if faults.ends && self.random.percent(30) => self.request_end(),
            9 if faults.kills && self.random.percent(30) => {
                let now = self.random.percent(30);
                self.client_kills(now);
            }
            10 if faults.master_dies => self.master_dies(),
            _ => {}
        }
    }

    /// Strikes a container whose agent lives.
    fn strike_agent(&mut self, strike: impl Fn(&mut World, usize)) {
        let alive = |at: &usize| self.containers[*at].agent.is_some();
        let all: Vec<usize> = (0..self.containers.len()).filter(alive).collect();
        if !all.is_empty() {
            let at = *self.random.pick(&all);
            self.say(format!("c{at} is struck"));
            strike(self, at);
        }
    }

    /// A higher-priority job preempts several containers at once.
    fn preempt_many(&mut self) {
        let alive = |at: &usize| self.containers[*at].agent.is_some();
        let all: Vec<usize> = (0..self.containers.len()).filter(alive).collect();
        for at in all {
            if self.random.percent(40) {
                self.signal_container(at, ContainerExit::Preempted);
            }
        }
    }

    fn scale(&mut self) {
        let roles = &self.plan.spec.roles;
        let at = self.random.below(roles.len() as u64) as usize;
        let role = roles[at].name.clone();
        let most = roles[at].elastic.map_or(roles[at].instances + 2, |it| it.max);
        let instances = self.random.from(1, u64::from(most)) as u32;
        self.handle(Event::ScaleRequested { role, instances });
    }

    /// A client stops one task, or adds one.
    fn stop_task(&mut self) {
        let Some(job) = &self.shell.job else {
            return;
        };
        let tasks: Vec<_> = job.view().tasks.into_iter().map(|view| view.task).collect();
        let task = self.random.pick(&tasks).clone();
        let may_stop = job.check_task_stop(&task).is_ok();
        if !self.random.percent(70) {
            self.add_task(task.role);
            return;
        }
        if may_stop {
            self.checks.stopped.insert(task.clone());
        }
        let role = task.role.clone();
        self.handle(Event::TaskStopRequested { task });
        if may_stop && self.random.percent(50) {
            // Made smaller than it was without the task, and larger.
            let most = self.plan.spec.role(&role).map_or(1, |it| it.instances + 2);
            for instances in [1, most] {
                self.handle(Event::ScaleRequested { role: role.clone(), instances });
            }
        }
    }

    fn add_task(&mut self, role: RoleName) {
        let number = self.random.below(100).to_string();
        let env = BTreeMap::from([("NUMBER".to_string(), number)]);
        if let Some(job) = &self.shell.job
            && job.check_task_add(&role, &env).is_ok()
            && let Some(index) = job.next_index(&role)
        {
            let task = TaskId { role: role.clone(), index };
            self.checks.env.insert(task, env.clone());
        }
        self.handle(Event::TaskAddRequested { role, env });
    }

    /// A client ends the job, sometimes twice.
    fn request_end(&mut self) {
        if self.shell.job.is_none() {
            return;
        }
        let failed = Outcome::Failed(Cause::Requested { reason: "the data is stale".into() });
        let killed = Outcome::Killed { by: "a client".into() };
        let mut outcomes = vec![Outcome::Succeeded, failed, killed];
        let skipped = self.random.below(3) as usize;
        outcomes.remove(skipped);
        outcomes.truncate(self.random.from(1, 2) as usize);
        for outcome in outcomes {
            self.checks.requested.push(outcome.clone());
            self.handle(Event::EndRequested { outcome });
        }
    }

    /// An elastic role is made smaller while some of its tasks run and others wait.
    fn shrink_while_some_wait(&mut self) -> bool {
        let Some(job) = &self.shell.job else {
            return false;
        };
        let view = job.view();
        let small = self.plan.spec.roles.iter().find_map(|role| {
            let range = role.elastic?;
            let sizes = view.roles.iter().find(|it| it.role == role.name)?;
            let tasks = view.tasks.iter();
            let ready = |it: &&TaskView| it.task.role == role.name && it.state == TaskState::Ready;
            let waits = sizes.waiting > 0 || tasks.filter(ready).count() > 0;
            let some = sizes.running > 0 && waits && sizes.instances > range.min;
            some.then(|| (role.name.clone(), range.min, sizes.instances - 1))
        });
        let Some((role, least, most)) = small else {
            return false;
        };
        let instances = self.random.from(u64::from(least), u64::from(most)) as u32;
        self.handle(Event::ScaleRequested { role, instances });
        true
    }

    pub fn client_kills(&mut self, now: bool) {
        let by = "a client".to_string();
        if self.shell.job.is_some() {
            self.checks.killed = true;
        }
        self.handle(Event::KillRequested { by, immediate: now });
    }

    fn some_node(&mut self) -> usize {
        self.random.below(self.nodes.len() as u64) as usize
    }

    fn node_dies(&mut self) {
        let node = self.some_node();
        if self.nodes[node].dead || self.nodes[node].cut.is_some() {
            return;
        }
        self.say(format!("n{node} dies"));
        self.nodes[node].dead = true;
        for at in 0..self.containers.len() {
            if self.containers[at].node == node && !self.containers[at].dead {
                self.kill_inside(at);
            }
        }
        let expiry = self.plan.expiry;
        self.after(expiry, Happening::NodeExpires { node, cut: None });
        let wait = self.random.from(expiry, expiry * 4);
        self.after(wait, Happening::NodeReturns { node });
    }

    pub fn partition(&mut self, node: usize) {
        if self.nodes[node].dead || self.nodes[node].cut.is_some() {
            return;
        }
        let cut = self.stamp();
        self.say(format!("n{node} is cut off"));
        self.nodes[node].cut = Some(cut);
        let expiry = self.plan.expiry;
        let heals = self.random.from(1_000, expiry * 3);
        self.after(heals, Happening::PartitionHeals { node, cut });
        let cut = Some(cut);
        self.after(expiry, Happening::NodeExpires { node, cut });
    }

    /// The cluster has not heard a node for too long.
    pub fn node_expires(&mut self, node: usize, cut: Option<u64>) {
        let it = &mut self.nodes[node];
        let unheard = it.dead && cut.is_none() || it.cut.is_some() && it.cut == cut;
        if !unheard || it.lost {
            return;
        }
        it.lost = true;
        for at in 0..self.containers.len() {
            if self.containers[at].node == node {
                self.end_reported(at, ContainerExit::NodeLost);
            }
        }
        self.count_nodes();
    }

    pub fn node_returns(&mut self, node: usize) {
        self.say(format!("n{node} is back"));
        // It comes back empty: what the cluster still counted there is lost.
        for at in 0..self.containers.len() {
            if self.containers[at].node == node {
                self.end_reported(at, ContainerExit::NodeLost);
            }
        }
        self.nodes[node].dead = false;
        self.nodes[node].lost = false;
        self.count_nodes();
    }

    /// The node is heard again, and says what it could not say.
    pub fn partition_heals(&mut self, node: usize, cut: u64) {
        if self.nodes[node].cut != Some(cut) {
            return;
        }
        self.say(format!("n{node} is heard again"));
        self.nodes[node].cut = None;
        let lost = std::mem::take(&mut self.nodes[node].lost);
        for at in 0..self.containers.len() {
            let container = &mut self.containers[at];
            if container.node != node {
                continue;
            }
            if let Some(end) = container.unreported.take() {
                self.end_reported(at, end);
            } else if (lost || container.condemned) && (!container.dead || container.allocated) {
                container.condemned = true;
                let wait = self.random.from(100, 3_000);
                let end = ContainerExit::Released;
                self.after(wait, Happening::KillArrives { at, end });
            }
        }
        self.count_nodes();
    }

    pub fn calm_down(&mut self) {
        self.say("the world calms down".into());
        self.calm = true;
        self.plan_whole();
        for node in 0..self.nodes.len() {
            if let Some(cut) = self.nodes[node].cut {
                self.partition_heals(node, cut);
            }
        }
        if self.plan.serves() {
            self.plan_must_serve();
            return;
        }
        // A job of services alone runs until it is killed.
        let service = |role: &ydl_core::spec::RoleSpec| role.completion == Completion::Service;
        if self.plan.spec.roles.iter().all(service) {
            self.after(30_000, Happening::ClientKills { now: false });
        }
    }
}
