//! The state machine: one owner, no clock, no I/O, no `Result`.
//!
//! * `mod.rs` (here): the value, its doors, and what each event means.
//! * `place`: where a task is, and everything counted about it, changed in one function.
//! * `attempt`: what follows the end of an attempt: the failure table at work.
//! * `gather`: rounds: who waits for whom, and what happens when somebody does not come.
//! * `end`: how a job ends.
//! * `scale`: how a role changes its size.
//! * `nodes`: which nodes are avoided. `timers`: when to be woken. `check`: what must always hold.
//! * `mutant`: deliberate mistakes, for the test of the tests.

mod attempt;
mod check;
mod end;
mod gather;
mod mutant;
mod nodes;
mod place;
mod scale;
mod timers;

pub use mutant::Mutant;

use crate::{
    action::{Action, Ask, Asks, Order, Run},
    cluster::{Cluster, Endpoint},
    ending::{Cause, Ending, Outcome, Wait},
    event::{ContainerEnd, Event, Exit, Grant},
    fact::{Fact, What},
    id::{ContainerId, NodeName, TaskId},
    spec::{JobSpec, Resources},
    time::Time,
    view::{JobView, Phase, RoleView, TaskState, TaskView},
};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    vec::Vec,
};
use attempt::Gone;
use gather::Gathering;
use nodes::Nodes;
use place::{Place, RoleState, Task, TaskKey, Then};
use timers::{Timer, Timers};

/// A job, whole. Two jobs fed with the same events are equal, bit for bit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    spec: JobSpec,
    /// The latest time we were told; it never runs backwards, whatever the shell's clock does.
    now: Time,
    started: Time,
    stage: Stage,
    roles: Vec<RoleState>,
    /// Every container that a task has now, and only those: a message from any other is a message from the past.
    held: BTreeMap<ContainerId, Held>,
    /// Every container ever granted and the task it went to, so that a repeated grant is never taken for a new one.
    known: BTreeMap<ContainerId, Option<TaskKey>>,
    /// The newest round.
    round: u32,
    /// Rounds that have not begun, by their number.
    gatherings: BTreeMap<u32, Gathering>,
    /// How often the gang gave everything back since a round last began.
    gang_tries: u32,
    /// Since when tasks want containers and the job, whose tasks start on their own, has none at all.
    starved_since: Option<Time>,
    nodes: Nodes,
    timers: Timers,
    /// What tasks that start on their own are told: numbers, no addresses.
    bare: Arc<Cluster>,
    mutant: Mutant,
}

/// Where the whole job stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Active,
    Ending(Outcome),
    Finished(Outcome),
}

/// A container that a task has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    task: TaskKey,
    node: NodeName,
    /// Since when its agent misses its beats.
    quiet: Option<Time>,
}

impl Job {
    /// A job at its beginning, and the first things to do.
    pub fn new(spec: JobSpec, now: Time) -> (Job, Vec<Action>) {
        Job::with_mutant(spec, now, Mutant::None)
    }

    /// A job with a deliberate mistake in it. Without the feature `mutants` there are none.
    pub fn with_mutant(spec: JobSpec, now: Time, mutant: Mutant) -> (Job, Vec<Action>) {
        let mut job = Job {
            now,
            started: now,
            stage: Stage::Active,
            roles: spec.roles.iter().map(|_| RoleState::default()).collect(),
            held: BTreeMap::new(),
            known: BTreeMap::new(),
            round: 1,
            gatherings: BTreeMap::new(),
            gang_tries: 0,
            starved_since: None,
            nodes: Nodes::default(),
            timers: Timers::default(),
            bare: Arc::default(),
            mutant,
            spec,
        };
        let mut out = Vec::new();
        job.record(What::JobStarted, &mut out);
        for role in 0..job.roles.len() {
            let instances = job.spec.roles[role].instances;
            job.add_tasks(role, instances, 1);
        }
        job.tell_sizes();
        let limit = job.spec.deadlines.run.map(|span| job.started + span);
        job.timers.arm(Timer::Run, limit);
        job.settle(&mut out);
        (job, out)
    }

    /// The job that these events have made: how a new master becomes the old one.
    pub fn replay<'a>(
        spec: JobSpec,
        started: Time,
        journal: impl IntoIterator<Item = &'a (Time, Event)>,
    ) -> Job {
        let (mut job, _) = Job::new(spec, started);
        for (now, event) in journal {
            job.handle(*now, event.clone());
        }
        job
    }

    /// What happened → what must be done once.
    pub fn handle(&mut self, now: Time, event: Event) -> Vec<Action> {
        self.now = self.now.max(now);
        let mut out = Vec::new();
        if let Stage::Finished(_) = self.stage {
            // A grant can still be on its way when the job ends; it is the one thing that would be left behind.
            if let Event::Granted { grants } = event {
                out.extend(
                    grants
                        .into_iter()
                        .map(|grant| Action::Release(grant.container)),
                );
            }
            return out;
        }
        self.on_event(event, &mut out);
        self.on_due(&mut out);
        self.settle(&mut out);
        self.check();
        out
    }

    /// When the job wants to be woken with [`Event::Ticked`] if nothing else happens.
    pub fn next_deadline(&self) -> Option<Time> {
        match self.stage {
            Stage::Finished(_) => None,
            Stage::Active | Stage::Ending(_) => self.timers.next(),
        }
    }

    /// What the backend should still grant.
    pub fn asks(&self) -> Asks {
        let mut asks = Asks {
            asks: Vec::new(),
            avoid: self.nodes.avoided(),
        };
        if self.stage != Stage::Active {
            return Asks::default();
        }
        for (spec, role) in self.spec.roles.iter().zip(&self.roles) {
            for (memory_mib, tasks) in &role.asked {
                let resources = Resources {
                    memory_mib: *memory_mib,
                    ..spec.resources.clone()
                };
                asks.asks.push(Ask {
                    role: spec.name.clone(),
                    resources,
                    count: tasks.len() as u32,
                });
            }
        }
        asks
    }

    /// What the agent in this container should be doing. A container that is not ours should stop.
    pub fn order(&self, container: &ContainerId) -> Order {
        let grace = self.spec.deadlines.grace;
        let Some(held) = self.held.get(container) else {
            return Order::Stop { grace, save: false };
        };
        let key = held.task;
        let task = self.task(key);
        match &task.place {
            Place::Launching { .. }
            | Place::Joining { .. }
            | Place::Ready { .. }
            | Place::Rewinding { .. } => {
                let role = &self.spec.roles[key.role];
                Order::Wait {
                    round: task.round,
                    task: self.id(key),
                    ports: self.spec.framework.ports(role),
                    slot: self.slot(key),
                    grace,
                }
            }
            Place::Starting { .. } | Place::Running { .. } => Order::Run(Run {
                task: self.id(key),
                round: task.round,
                attempt: task.attempt,
                cluster: task.cluster.clone().unwrap_or_else(|| self.bare.clone()),
            }),
            Place::Stopping { save, .. } => Order::Stop { grace, save: *save },
            Place::Leaving { .. } => Order::Stop { grace, save: false },
            Place::Idle { .. } | Place::Asked { .. } | Place::Over { .. } => {
                Order::Stop { grace, save: false }
            }
        }
    }

    /// The specification it runs.
    pub fn spec(&self) -> &JobSpec {
        &self.spec
    }

    /// Which task a container is.
    pub fn task_of(&self, container: &ContainerId) -> Option<TaskId> {
        self.held.get(container).map(|held| self.id(held.task))
    }

    /// How the job ends or ended, once that is decided.
    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.stage {
            Stage::Active => None,
            Stage::Ending(outcome) | Stage::Finished(outcome) => Some(outcome),
        }
    }

    /// Whether the job is over and everything was given back.
    pub fn finished(&self) -> bool {
        matches!(self.stage, Stage::Finished(_))
    }

    /// How many containers tasks have.
    pub fn holding(&self) -> u32 {
        self.held.len() as u32
    }

    /// Containers whose agents should be beating, for the shell that listens to them.
    pub fn containers(&self) -> impl Iterator<Item = &ContainerId> {
        self.held.keys()
    }

    /// What people see.
    pub fn view(&self) -> JobView {
        let mut tasks = Vec::new();
        for (index, role) in self.roles.iter().enumerate() {
            for (at, task) in role.tasks.iter().enumerate() {
                let key = TaskKey {
                    role: index,
                    index: at as u32,
                };
                let container = task.place.container().cloned();
                tasks.push(TaskView {
                    task: self.id(key),
                    state: task.place.state(),
                    attempt: task.attempt,
                    round: task.round,
                    node: task.node.clone(),
                    container,
                    since: task.place.since(),
                    last_ending: task.last_ending.clone(),
                });
            }
        }
        let running = self
            .roles
            .iter()
            .any(|role| role.count(TaskState::Running) > 0);
        let phase = match &self.stage {
            Stage::Active if running => Phase::Running,
            Stage::Active => Phase::Gathering,
            Stage::Ending(_) => Phase::Ending,
            Stage::Finished(_) => Phase::Finished,
        };
        JobView {
            name: self.spec.name.clone(),
            phase,
            started: self.started,
            now: self.now,
            round: self.round,
            why: self.why(),
            outcome: self.outcome().cloned(),
            roles: self.role_views(),
            tasks,
        }
    }

    /// Every role in numbers.
    pub fn role_views(&self) -> Vec<RoleView> {
        let each = self
            .spec
            .roles
            .iter()
            .zip(&self.roles)
            .map(|(spec, role)| RoleView {
                role: spec.name.clone(),
                instances: role.want,
                waiting: role.count(TaskState::Asked) + role.count(TaskState::BackingOff),
                preparing: role.count(TaskState::Launching) + role.count(TaskState::Rewinding),
                running: role.count(TaskState::Running) + role.count(TaskState::Starting),
                succeeded: role.count(TaskState::Succeeded),
                failed: role.count(TaskState::Failed),
            });
        each.collect()
    }

    fn on_event(&mut self, event: Event, out: &mut Vec<Action>) {
        match event {
            Event::Counted { nodes } => self.nodes.count = nodes,
            Event::Granted { grants } => {
                for grant in grants {
                    self.on_granted(grant, out);
                }
            }
            Event::Launched { container } => self.on_launched(&container),
            Event::LaunchFailed { container, why } => {
                if let Some(key) = self.task_in(&container) {
                    self.on_fault(key, Ending::NodeFault { why }, Gone::Unsure, out);
                }
            }
            Event::Ended { containers } => {
                for (container, end) in containers {
                    self.on_ended(&container, end, out);
                    if self.mutant.is(Mutant::StopsAfterFirstEnded) {
                        return;
                    }
                }
            }
            Event::Warned { container } => self.on_warned(&container, out),
            Event::Impossible { why } => {
                if self.stage == Stage::Active {
                    self.fail(Cause::NoContainers { missing: why }, out);
                }
            }
            Event::Ready {
                container,
                round,
                endpoint,
            } => {
                self.on_ready(&container, round, endpoint, out);
            }
            Event::Unready { container, why } => {
                if let Some(key) = self.heard_from(&container) {
                    self.on_fault(key, Ending::Unready { why }, Gone::AgentAlive, out);
                }
            }
            Event::Started { container, round } => self.on_started(&container, round, out),
            Event::Exited {
                container,
                round,
                exit,
            } => self.on_exited(&container, round, exit, out),
            Event::Saved { container, error } => self.on_saved(&container, error, out),
            Event::Quieted { container } => self.on_quieted(&container),
            Event::Heard { container } => {
                self.heard_from(&container);
            }
            Event::Killed { by, now } => self.on_killed(by, now, out),
            Event::Scaled { role, instances } => self.on_scaled(&role, instances, out),
            Event::Ticked => {}
            Event::Recovered { live } => self.on_recovered(live, out),
        }
    }

    fn on_granted(&mut self, grant: Grant, out: &mut Vec<Action>) {
        let repeated = self.known.contains_key(&grant.container);
        if repeated && !self.mutant.is(Mutant::RepeatedGrantIsNew) {
            return;
        }
        let task = self.asked_task(&grant);
        self.known.insert(grant.container.clone(), task);
        let Some(key) = task else {
            if !self.mutant.is(Mutant::KeepsSurplus) {
                out.push(Action::Release(grant.container));
            }
            return;
        };
        let Grant {
            container,
            node,
            resources,
            ..
        } = grant;
        let held = Held {
            task: key,
            node: node.clone(),
            quiet: None,
        };
        self.held.insert(container.clone(), held);
        self.task_mut(key).node = Some(node);
        self.set_place(
            key,
            Place::Launching {
                on: container.clone(),
                since: self.now,
            },
        );
        out.push(Action::Launch {
            container,
            task: self.id(key),
            resources,
        });
    }

    /// The task that this grant is for, if anybody still wants it.
    fn asked_task(&self, grant: &Grant) -> Option<TaskKey> {
        if self.stage != Stage::Active || self.nodes.avoids(&grant.node) {
            return None;
        }
        let role = self
            .spec
            .roles
            .iter()
            .position(|spec| spec.name == grant.role)?;
        // The largest need that fits: a small task must not use up a container that a grown one waits for.
        let asked = &self.roles[role].asked;
        let (_, tasks) = asked.range(..=grant.resources.memory_mib).next_back()?;
        let index = *tasks.first()?;
        Some(TaskKey { role, index })
    }

    fn on_launched(&mut self, container: &ContainerId) {
        let Some(key) = self.task_in(container) else {
            return;
        };
        if let Place::Launching { on, .. } = &self.task(key).place {
            let on = on.clone();
            self.set_place(
                key,
                Place::Joining {
                    on,
                    since: self.now,
                },
            );
        }
    }

    fn on_ready(
        &mut self,
        container: &ContainerId,
        round: u32,
        endpoint: Endpoint,
        out: &mut Vec<Action>,
    ) {
        let Some(key) = self.heard_from(container) else {
            return;
        };
        let task = self.task(key);
        let waits = matches!(
            task.place,
            Place::Launching { .. }
                | Place::Joining { .. }
                | Place::Rewinding { .. }
                | Place::Ready { .. }
        );
        // Ready for an earlier round: its order already names the new one, and it will say so.
        if !waits || (round != task.round && !self.mutant.is(Mutant::AnyRoundIsReady)) {
            return;
        }
        self.task_mut(key).endpoint = Some(endpoint);
        if matches!(self.task(key).place, Place::Ready { .. }) {
            return;
        }
        self.set_place(
            key,
            Place::Ready {
                on: container.clone(),
                since: self.now,
            },
        );
        if self.task(key).gathering.is_none() {
            self.start_alone(key, out);
        }
    }

    fn on_started(&mut self, container: &ContainerId, round: u32, out: &mut Vec<Action>) {
        let Some(key) = self.heard_from(container) else {
            return;
        };
        let task = self.task(key);
        let Place::Starting { on, .. } = &task.place else {
            return;
        };
        if round != task.round {
            return;
        }
        let what = What::AttemptStarted {
            task: self.id(key),
            attempt: task.attempt,
            round,
            container: on.clone(),
            node: self.held[on].node.clone(),
        };
        let place = Place::Running {
            on: on.clone(),
            since: self.now,
        };
        self.task_mut(key).false_starts = 0;
        self.set_place(key, place);
        self.record(what, out);
    }

    fn on_exited(
        &mut self,
        container: &ContainerId,
        round: u32,
        exit: Exit,
        out: &mut Vec<Action>,
    ) {
        let Some(key) = self.heard_from(container) else {
            return;
        };
        let task = self.task(key);
        let runs = matches!(task.place, Place::Starting { .. } | Place::Running { .. });
        if !runs || (round != task.round && !self.mutant.is(Mutant::LateExitCounts)) {
            return;
        }
        if exit.container_signalled {
            // The node is ending the container: what it says of the container's end is the cause.
            self.task_mut(key).exit = Some(exit);
            let place = Place::Leaving {
                on: container.clone(),
                since: self.now,
                then: Then::Judge,
            };
            self.set_place(key, place);
            return;
        }
        let ending = Ending::from_exit(&exit);
        self.task_mut(key).exit = Some(exit);
        self.on_attempt_over(key, ending, Gone::AgentAlive, out);
    }

    fn on_ended(&mut self, container: &ContainerId, end: ContainerEnd, out: &mut Vec<Action>) {
        let Some(key) = self.task_in(container) else {
            return;
        };
        match self.task(key).place.clone() {
            Place::Launching { .. } | Place::Joining { .. } => {
                self.on_fault(key, Ending::before_join(end), Gone::Ended, out);
            }
            Place::Ready { .. }
            | Place::Rewinding { .. }
            | Place::Starting { .. }
            | Place::Running { .. } => {
                self.on_fault(key, Ending::from_container(end), Gone::Ended, out);
            }
            Place::Stopping { then, .. } => self.on_stopped(key, then, Gone::Ended, None, out),
            Place::Leaving {
                then: Then::Judge, ..
            } => {
                let ending = self.judge(key, Some(end));
                self.on_fault(key, ending, Gone::Ended, out);
            }
            Place::Leaving { then, .. } => self.go_on(key, then, out),
            Place::Idle { .. } | Place::Asked { .. } | Place::Over { .. } => {}
        }
    }

    fn on_saved(
        &mut self,
        container: &ContainerId,
        error: Option<alloc::string::String>,
        out: &mut Vec<Action>,
    ) {
        let Some(key) = self.heard_from(container) else {
            return;
        };
        if let Place::Stopping { then, .. } = self.task(key).place.clone() {
            self.on_stopped(key, then, Gone::Left, error, out);
        }
    }

    fn on_warned(&mut self, container: &ContainerId, out: &mut Vec<Action>) {
        let Some(key) = self.task_in(container) else {
            return;
        };
        if self.stage != Stage::Active {
            return;
        }
        match &self.task(key).place {
            // The agent stops its program with grace and saves what it can before the container is taken.
            Place::Starting { .. } | Place::Running { .. } | Place::Ready { .. } => {
                self.on_attempt_over(key, Ending::Preempted, Gone::AgentAlive, out);
            }
            Place::Launching { .. } | Place::Joining { .. } | Place::Rewinding { .. } => {
                self.on_attempt_over(key, Ending::Preempted, Gone::Unsure, out);
            }
            Place::Idle { .. }
            | Place::Asked { .. }
            | Place::Stopping { .. }
            | Place::Leaving { .. }
            | Place::Over { .. } => {}
        }
    }

    fn on_quieted(&mut self, container: &ContainerId) {
        let now = self.now;
        let Some(held) = self.held.get_mut(container) else {
            return;
        };
        held.quiet.get_or_insert(now);
        let key = held.task;
        self.arm(key);
    }

    fn on_killed(&mut self, by: alloc::string::String, now: bool, out: &mut Vec<Action>) {
        if self.stage == Stage::Active {
            self.begin_ending(Outcome::Killed { by }, out);
        }
        if now {
            self.give_up_waiting(out);
        }
    }

    /// After the journal was replayed: what the backend says is alive decides, and nobody has been heard yet.
    fn on_recovered(&mut self, live: Vec<ContainerId>, out: &mut Vec<Action>) {
        self.record(
            What::MasterRecovered {
                live: live.len() as u32,
            },
            out,
        );
        let live: BTreeSet<_> = live.into_iter().collect();
        let held: Vec<_> = self.held.keys().cloned().collect();
        for container in &held {
            let Some(key) = self.task_in(container) else {
                continue;
            };
            if !live.contains(container) {
                if self.mutant.is(Mutant::TrustsTheDead) {
                    continue;
                }
                self.on_ended(container, ContainerEnd::NodeLost, out);
            } else if matches!(self.task(key).place, Place::Launching { .. }) {
                // Whether the launch was carried out before the old master died cannot be known.
                self.on_fault(key, Ending::Lost, Gone::Unsure, out);
            } else {
                self.on_quieted(container);
            }
        }
        for container in live {
            if !self.held.contains_key(&container) {
                self.known.insert(container.clone(), None);
                out.push(Action::Release(container));
            }
        }
    }

    /// Deadlines that have passed.
    fn on_due(&mut self, out: &mut Vec<Action>) {
        while let Some(timer) = self.timers.pop(self.now) {
            match timer {
                Timer::Task(key) => self.on_task_due(key, out),
                Timer::Gathering(round) => self.on_gathering_due(round, out),
                Timer::Starved => {
                    let missing = self.missing(None);
                    self.fail(Cause::NoContainers { missing }, out);
                }
                Timer::Run => {
                    if let Some(limit) = self.spec.deadlines.run {
                        self.fail(Cause::RanTooLong { limit }, out);
                    }
                }
                Timer::Forgive => {
                    self.nodes.forgive(self.now);
                    self.timers.arm(Timer::Forgive, self.nodes.next_forgiven());
                }
            }
        }
    }

    fn on_task_due(&mut self, key: TaskKey, out: &mut Vec<Action>) {
        if self.deadline(key).is_none_or(|at| at > self.now) {
            // A beat or an answer has moved it since it was armed.
            self.arm(key);
            return;
        }
        let quiet = self
            .task(key)
            .place
            .container()
            .and_then(|on| self.held[on].quiet);
        let silence = self.spec.deadlines.silence;
        let silent = quiet.filter(|since| *since + silence <= self.now);
        let place = self.task(key).place.clone();
        let waited = self.now - place.since();
        match place {
            Place::Idle { .. } => self.ask(key),
            Place::Asked { .. } => {
                let missing = self.missing(None);
                self.fail(Cause::NoContainers { missing }, out);
            }
            Place::Leaving {
                then: Then::Judge, ..
            } => {
                let ending = self.judge(key, None);
                self.on_fault(key, ending, Gone::Unsure, out);
            }
            // Its end was never confirmed. By now the agent, cut off from us, has stopped by itself.
            Place::Leaving { then, .. } => self.go_on(key, then, out),
            Place::Stopping { then, .. } => self.on_stopped(key, then, Gone::Unsure, None, out),
            Place::Over { .. } => {}
            Place::Launching { .. }
            | Place::Joining { .. }
            | Place::Ready { .. }
            | Place::Starting { .. }
            | Place::Running { .. }
            | Place::Rewinding { .. } => {
                let ending = match (silent, place.wait()) {
                    (Some(since), _) => Ending::Silent {
                        quiet: self.now - since,
                    },
                    (None, Some(wait)) => Ending::TooLate {
                        wait,
                        after: waited,
                    },
                    (None, None) => Ending::TooLate {
                        wait: Wait::Start,
                        after: waited,
                    },
                };
                self.on_fault(key, ending, Gone::Unsure, out);
            }
        }
    }

    /// What follows from everything that has changed: rounds that are complete, the job that is done.
    fn settle(&mut self, out: &mut Vec<Action>) {
        if self.stage == Stage::Active {
            self.start_gathered(out);
            if self.succeeded() {
                self.begin_ending(Outcome::Succeeded, out);
            }
        }
        self.watch_starvation();
        let rid = self.held.is_empty() || self.mutant.is(Mutant::FinishesEarly);
        if matches!(self.stage, Stage::Ending(_)) && rid {
            self.finish(out);
        }
    }

    fn record(&self, what: What, out: &mut Vec<Action>) {
        out.push(Action::Record(Fact { at: self.now, what }));
    }

    fn id(&self, key: TaskKey) -> TaskId {
        TaskId {
            role: self.spec.roles[key.role].name.clone(),
            index: key.index,
        }
    }

    fn task(&self, key: TaskKey) -> &Task {
        &self.roles[key.role].tasks[key.index as usize]
    }

    fn task_mut(&mut self, key: TaskKey) -> &mut Task {
        &mut self.roles[key.role].tasks[key.index as usize]
    }

    fn task_in(&self, container: &ContainerId) -> Option<TaskKey> {
        if self.mutant.is(Mutant::FencesByTask) {
            return self.known.get(container).copied().flatten();
        }
        self.held.get(container).map(|held| held.task)
    }

    /// The task of a container whose agent has just spoken, which is a sign of life whatever it said.
    fn heard_from(&mut self, container: &ContainerId) -> Option<TaskKey> {
        let key = self.task_in(container)?;
        if let Some(held) = self.held.get_mut(container) {
            held.quiet = None;
        }
        Some(key)
    }
}
