//! Queries: asks, orders, views and what a job waits for.

use super::{Job, Mutant, NextStep, Phase, Stage, Task, TaskKey};
use crate::{
    action::{Ask, Asks, AttemptRun, Order},
    ending::Outcome,
    history::counted,
    id::{ContainerId, TaskId},
    spec::{JobSpec, Resources, RestartScope, RoleSpec},
    view::{JobPhase, JobView, RoleView, TaskState, TaskView},
};
use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};

impl Job {
    /// Returns the outstanding asks. The master passes changed asks to its backend.
    pub fn asks(&self) -> Asks {
        let mut asks = Asks { asks: Vec::new(), avoid: self.nodes.excluded() };
        if self.stage != Stage::Active {
            return Asks::default();
        }
        let forgets = self.mutant.is(Mutant::StopsAskingForMissing);
        let roles = self.spec.roles.iter().zip(&self.roles).enumerate();
        for (_, (spec, role)) in roles.filter(|(at, _)| !self.is_blocked(*at)) {
            if forgets && spec.elastic.is_some() && role.runs() > 0 {
                continue;
            }
            for (memory_mib, tasks) in &role.requested {
                let resources = Resources { memory_mib: *memory_mib, ..spec.resources.clone() };
                asks.asks.push(Ask {
                    role: spec.name.clone(),
                    resources,
                    count: tasks.len() as u32,
                });
            }
        }
        asks
    }

    /// Returns the order of a container. An unknown container is ordered to stop.
    pub fn order(&self, container: &ContainerId) -> Order {
        let grace = self.spec.timeouts.grace;
        let Some(held) = self.held.get(container) else {
            return Order::Stop { grace, upload: false };
        };
        let key = held.task;
        let task = self.task(key);
        match &task.phase {
            Phase::Launching { .. }
            | Phase::Joining { .. }
            | Phase::Ready { .. }
            | Phase::Restarting { .. } => {
                let role = &self.spec.roles[key.role];
                Order::Wait {
                    round: task.round,
                    task: self.id(key),
                    ports: self.spec.framework.ports(role),
                    slot: self.slot(key),
                    grace,
                }
            }
            Phase::Starting { .. } | Phase::Running { .. } => Order::Run(self.run(key)),
            Phase::Stopping { save, .. } => Order::Stop { grace, upload: *save },
            Phase::Releasing { .. } => Order::Stop { grace, upload: false },
            Phase::BackingOff { .. } | Phase::Requested { .. } | Phase::Finished { .. } => {
                Order::Stop { grace, upload: false }
            }
        }
    }

    /// Returns the attempt that runs in a container, or ran there until the order to stop.
    pub fn run_in(&self, container: &ContainerId) -> Option<AttemptRun> {
        let held = self.held.get(container)?;
        let task = self.task(held.task);
        let runs = matches!(
            task.phase,
            Phase::Starting { .. } | Phase::Running { .. } | Phase::Stopping { .. }
        );
        runs.then(|| self.run(held.task))
    }

    pub(super) fn run(&self, key: TaskKey) -> AttemptRun {
        let task = self.task(key);
        AttemptRun {
            task: self.id(key),
            round: task.round,
            attempt: task.attempt,
            cluster: task.cluster.clone().unwrap_or_else(|| self.sizes.clone()),
            env: task.env.clone(),
        }
    }

    /// Returns the specification.
    pub fn spec(&self) -> &JobSpec {
        &self.spec
    }

    /// Returns the task that holds a container.
    pub fn task_in_container(&self, container: &ContainerId) -> Option<TaskId> {
        self.held.get(container).map(|held| self.id(held.task))
    }

    /// Returns the container of a task, if it has one.
    pub fn container_of(&self, task: &TaskId) -> Option<&ContainerId> {
        let role = self.spec.roles.iter().position(|it| it.name == task.role)?;
        self.roles[role].tasks.get(task.index as usize)?.phase.container()
    }

    /// Returns the number of the attempt whose program runs, or last ran, in a container.
    pub fn attempt_in_container(&self, container: &ContainerId) -> Option<u32> {
        let task = self.task(self.held.get(container)?.task);
        Some(match task.phase {
            Phase::Starting { .. }
            | Phase::Running { .. }
            | Phase::Stopping { .. }
            | Phase::Releasing { .. } => task.attempt,
            // The next attempt is counted already, but its program does not run yet.
            _ => task.attempt.saturating_sub(1),
        })
    }

    /// Returns the number of a task's current or last attempt; none between two attempts.
    pub fn current_attempt(&self, task: &TaskId) -> Option<u32> {
        let role = self.spec.roles.iter().position(|it| it.name == task.role)?;
        let task = self.roles[role].tasks.get(task.index as usize)?;
        let is_dropped = task.dropped && task.phase.container().is_none();
        let over = matches!(
            task.phase,
            Phase::Stopping { then: NextStep::Retry { .. }, .. }
                | Phase::Releasing { then: NextStep::Retry { .. }, .. }
        );
        (!is_dropped && !over).then_some(task.attempt)
    }

    /// Returns the outcome, once decided.
    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.stage {
            Stage::Active => None,
            Stage::Ending(outcome) | Stage::Finished(outcome) => Some(outcome),
        }
    }

    /// Returns true if the job has finished and released every container.
    pub fn is_finished(&self) -> bool {
        matches!(self.stage, Stage::Finished(_))
    }

    /// Returns the number of held containers.
    pub(crate) fn held_containers(&self) -> u32 {
        self.held.len() as u32
    }

    /// Returns the containers whose agents should send heartbeats.
    pub fn containers(&self) -> impl Iterator<Item = &ContainerId> {
        self.held.keys()
    }

    /// Returns the view of the job.
    pub fn view(&self) -> JobView {
        let mut tasks = Vec::new();
        for (index, role) in self.roles.iter().enumerate() {
            let here =
                |(_, task): &(usize, &Task)| !task.dropped || task.phase.container().is_some();
            for (at, task) in role.tasks.iter().enumerate().filter(here) {
                let key = TaskKey { role: index, index: at as u32 };
                let container = task.phase.container().cloned();
                tasks.push(TaskView {
                    task: self.id(key),
                    state: task.phase.state(),
                    attempt: task.attempt,
                    round: task.round,
                    node: task.node.clone(),
                    container,
                    since: task.phase.since(),
                    last_ending: task.last_ending.clone(),
                });
            }
        }
        let mut roles = self.spec.roles.iter().zip(&self.roles);
        let running =
            roles.any(|(spec, role)| !spec.is_sidecar() && role.count(TaskState::Running) > 0);
        let phase = match &self.stage {
            Stage::Active if running => JobPhase::Running,
            Stage::Active => JobPhase::Pending,
            Stage::Ending(_) => JobPhase::Ending,
            Stage::Finished(_) => JobPhase::Finished,
        };
        JobView {
            name: self.spec.name.clone(),
            phase,
            started: self.started,
            now: self.now,
            round: self.newest,
            reason: self.waiting_reason(),
            outcome: self.outcome().cloned(),
            roles: self.role_views(),
            tasks,
        }
    }

    /// Returns the view of every role.
    pub fn role_views(&self) -> Vec<RoleView> {
        let each = self.spec.roles.iter().zip(&self.roles).map(|(spec, role)| RoleView {
            role: spec.name.clone(),
            instances: role.serving.as_ref().map_or(role.want, |serving| serving.size),
            elastic: spec.elastic,
            waiting: role.count(TaskState::Requested) + role.count(TaskState::BackingOff),
            preparing: role.count(TaskState::Launching) + role.count(TaskState::Restarting),
            running: role.count(TaskState::Running) + role.count(TaskState::Starting),
            succeeded: role.count(TaskState::Succeeded),
            failed: role.count(TaskState::Failed),
        });
        each.collect()
    }
    /// Describes what the job waits for.
    pub fn waiting_reason(&self) -> String {
        if let Some(outcome) = self.outcome() {
            let left = self.held_containers();
            let over = outcome.sentence();
            return if left == 0 {
                over
            } else {
                format!("{over}; {} still stopping", counted(left, "container"))
            };
        }
        let mut waits = Vec::new();
        for (at, (spec, role)) in self.spec.roles.iter().zip(&self.roles).enumerate() {
            for (state, kind) in WAITS {
                let tasks = role.count(state);
                if tasks > 0 && state == TaskState::Requested && self.waits_for_job_start(at) {
                    waits.push(format!("{tasks} × `{}` for the job to start", spec.name));
                } else if tasks > 0 && state == TaskState::Requested && self.is_blocked(at) {
                    let after: Vec<_> =
                        spec.depends_on.iter().map(|it| format!("`{it}`")).collect();
                    let after = after.join(", ");
                    waits.push(format!("{tasks} × `{}` for {after} to run", spec.name));
                } else if tasks > 0 {
                    waits.push(format!("{tasks} × `{}` {kind}", spec.name));
                }
            }
        }
        let running = self.roles.iter().map(|role| role.count(TaskState::Running));
        let running: u32 = running.sum();
        let (ready, of) = self.ready_counts();
        let mut parts = Vec::new();
        if of > 0 {
            let mut some = format!("{ready} of {} ready", counted(of, "task"));
            let missing = self.not_ready();
            if ready > 0 && !missing.is_empty() {
                some += &format!(", not yet {}", self.name_some(&missing));
            }
            parts.push(some);
        }
        if running > 0 || of == 0 {
            parts.push(format!("{} running", counted(running, "task")));
        }
        parts.extend(self.describe_elastic());
        parts.extend(self.describe_serving());
        parts.extend(self.describe_awaited_peers());
        if let Some(suspicion) = &self.suspicion {
            let cause = &suspicion.cause;
            parts.push(format!("{cause}, and the job fails unless a peer was lost"));
        }
        if !waits.is_empty() {
            parts.push(format!("waiting: {}", waits.join(", ")));
        }
        if !self.asks().asks.is_empty() {
            parts.extend(self.describe_excluded());
        }
        parts.join("; ")
    }
}

impl Job {
    /// Describes peers that running programs may wait for, if they find each other without the
    /// rendezvous.
    fn describe_awaited_peers(&self) -> Option<String> {
        let (gang, roles) = (&self.spec.gang, &self.spec.roles);
        if !gang.together || self.spec.framework.uses_rendezvous(roles) {
            return None;
        }
        // No peer waits for tasks that restart alone.
        let awaited =
            |spec: &RoleSpec| !spec.is_sidecar() && spec.restart.scope != RestartScope::Task;
        let own = (0..roles.len()).filter(|role| awaited(&roles[*role]));
        let keys: Vec<_> = own.flat_map(|role| self.members_of(role)).collect();
        let state = |key: &TaskKey| self.task(*key).phase.state();
        if !keys.iter().any(|key| state(key) == TaskState::Running) {
            return None;
        }
        let to_come = |key: &TaskKey| match state(key) {
            TaskState::BackingOff
            | TaskState::Requested
            | TaskState::Launching
            | TaskState::Ready
            | TaskState::Starting
            | TaskState::Restarting => true,
            TaskState::Running
            | TaskState::Stopping
            | TaskState::Succeeded
            | TaskState::Failed
            | TaskState::Stopped => false,
        };
        let to_come: Vec<_> = keys.into_iter().filter(to_come).collect();
        let (has, named) = match to_come.len() {
            0 => return None,
            1 => ("has", self.name_some(&to_come)),
            _ => ("have", self.name_some(&to_come)),
        };
        Some(format!("programs may wait for {named}, which {has} not started"))
    }

    /// Names the first few tasks and the number of the others.
    pub(super) fn name_some(&self, keys: &[TaskKey]) -> String {
        let some = keys.iter().take(MAX_NAMED);
        let mut named: Vec<_> = some.map(|key| self.id(*key).to_string()).collect();
        let more = keys.len().saturating_sub(MAX_NAMED);
        if more > 0 {
            named.push(format!("{more} more"));
        }
        named.join(", ")
    }
}

/// Number of awaited tasks that are named.
const MAX_NAMED: usize = 4;

/// Descriptions of waits, by task state. Ready tasks wait for these.
const WAITS: [(TaskState, &str); 6] = [
    (TaskState::Requested, "for a container"),
    (TaskState::BackingOff, "to retry"),
    (TaskState::Launching, "for its agent"),
    (TaskState::Starting, "for its program to start"),
    (TaskState::Restarting, "for its program to stop"),
    (TaskState::Stopping, "to upload and stop"),
];
