//! The state machine: one owner, no clock, no I/O, no `Result`.
//!
//! * `mod.rs` (here): the value, its doors, and which event goes where.
//! * `place`: where a task is, and everything counted about it, changed in one function.
//! * `backend`: what the backend says. `agent`: what agents say. `due`: what a deadline says.
//! * `attempt`: what follows the end of an attempt: the failure table at work. `part`: how it is rid of its container.
//! * `doubt`: failures that may be nobody's, because the cluster has taken a peer.
//! * `gather`: rounds: who waits for whom. `scarce`: when containers do not come. `rewind`: how a round begins anew.
//! * `scale`: how a role changes its size. `elastic`: how many are enough. `end`: how a job ends.
//! * `after`: roles that begin after others. `read`: what others read from it: asks, orders, views, and why it waits.
//! * `nodes`: which nodes are avoided. `timers`: when to be woken. `known`: which grants are repeated.
//! * `check`: what must always hold. `mutant`: deliberate mistakes, for the test of the tests.

mod after;
mod agent;
mod attempt;
mod backend;
mod check;
mod doubt;
mod due;
mod elastic;
mod end;
mod gather;
mod known;
mod mutant;
mod nodes;
mod part;
mod place;
mod read;
mod rewind;
mod scale;
mod scarce;
mod timers;

pub use mutant::Mutant;

use crate::{
    action::{Action, Run},
    cluster::Cluster,
    ending::{Cause, Outcome},
    event::Event,
    history::{HistoryEvent, HistoryKind},
    id::{ContainerId, NodeName, TaskId},
    spec::JobSpec,
    time::Time,
};
use alloc::{collections::BTreeMap, string::String, sync::Arc, vec::Vec};
use doubt::Doubt;
use end::Done;
use gather::Gathering;
use known::Known;
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
    known: Known,
    /// The highest number that was given to a round.
    round: u32,
    /// The newest round that runs or gathers anew. Newcomers gather under a number of their own, in which nobody runs.
    newest: u32,
    /// Rounds that have not begun, by their number.
    gatherings: BTreeMap<u32, Gathering>,
    /// Since when tasks want containers and the job, whose tasks start on their own, has none at all.
    starved_since: Option<Time>,
    /// Since when nobody is waited for but roles that follow.
    followed_since: Option<Time>,
    /// Failures that fail the job unless the cluster was their cause.
    doubt: Option<Doubt>,
    nodes: Nodes,
    timers: Timers,
    /// What tasks that start on their own are told: numbers, no addresses.
    bare: Arc<Cluster>,
    /// A program of the job was told to run, not only one that stands beside it.
    begun: bool,
    /// Attempts that are over, until that is said: before the end of each event.
    over: Vec<Run>,
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
    /// A new master took over and has not heard it yet. An agent without a master stops by itself, so until it
    /// is heard its end is nobody's fault.
    orphan: bool,
    /// This master has heard its agent.
    heard: bool,
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
            known: Known::default(),
            round: 1,
            newest: 1,
            gatherings: BTreeMap::new(),
            starved_since: None,
            followed_since: None,
            doubt: None,
            nodes: Nodes::default(),
            timers: Timers::default(),
            bare: Arc::default(),
            begun: false,
            over: Vec::new(),
            mutant,
            spec,
        };
        let mut out = Vec::new();
        job.record(HistoryKind::JobStarted, &mut out);
        for role in 0..job.roles.len() {
            let instances = job.spec.roles[role].instances;
            job.add_tasks(role, instances, 1);
        }
        job.tell_sizes();
        let limit = job.spec.timeouts.run.map(|span| job.started + span);
        job.timers.arm(Timer::Run, limit);
        job.settle(&mut out);
        job.check();
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
            left_behind(event, &mut out);
            return out;
        }
        self.on_event(event, &mut out);
        self.on_due(&mut out);
        self.settle(&mut out);
        self.say_over(&mut out);
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

    fn on_event(&mut self, event: Event, out: &mut Vec<Action>) {
        match event {
            Event::NodesCounted { nodes } => self.on_counted(nodes, out),
            Event::NodesRequired { nodes } => self.on_needed(nodes, out),
            Event::Granted { grants } => {
                for grant in grants {
                    self.on_granted(grant, out);
                }
            }
            Event::Launched { container } => self.on_launched(&container),
            Event::LaunchFailed { container, why } => self.on_launch_failed(&container, why, out),
            Event::Ended { containers } => {
                for (container, end) in containers {
                    self.on_ended(&container, end, out);
                    if self.mutant.is(Mutant::StopsAfterFirstEnded) {
                        return;
                    }
                }
            }
            Event::PreemptionWarned { container } => self.on_warned(&container, out),
            Event::RequestUnsatisfiable { why } => {
                self.fail(Cause::NoContainers { missing: why }, out)
            }
            Event::Ready { container, round, endpoint } => {
                self.on_ready(&container, round, endpoint, out)
            }
            Event::SetupFailed { container, why, node_fault: node } => {
                self.on_unready(&container, why, node, out)
            }
            Event::Started { container, round } => self.on_started(&container, round, out),
            Event::Exited { container, round, exit } => {
                self.on_exited(&container, round, exit, out)
            }
            Event::OutputsUploaded { container, error } => self.on_saved(&container, error, out),
            Event::HeartbeatMissed { container } => self.on_quieted(&container),
            Event::HeartbeatResumed { container } => {
                self.heard_from(&container);
            }
            Event::KillRequested { by, immediate: now } => self.on_killed(by, now, out),
            Event::ScaleRequested { role, instances } => self.on_scaled(&role, instances, out),
            Event::Ticked => {}
            Event::MasterRecovered { live } => self.on_recovered(live, out),
        }
    }

    fn on_killed(&mut self, by: String, now: bool, out: &mut Vec<Action>) {
        if self.stage == Stage::Active {
            self.begin_ending(Outcome::Killed { by }, out);
        }
        if now {
            self.give_up_waiting(out);
        }
    }

    /// What follows from everything that has changed: rounds that are complete, the job that is done.
    fn settle(&mut self, out: &mut Vec<Action>) {
        self.watch_doubt(out);
        if self.stage == Stage::Active {
            self.watch_beginnings();
            self.start_gathered(out);
            let done = self.done();
            let followed = self.watch_followers(done, out);
            if done == Done::All || followed {
                self.begin_ending(Outcome::Succeeded, out);
            }
        }
        self.watch_starvation();
        let rid = self.held.is_empty() || self.mutant.is(Mutant::FinishesEarly);
        if matches!(self.stage, Stage::Ending(_)) && rid {
            self.finish(out);
        }
    }

    fn record(&self, what: HistoryKind, out: &mut Vec<Action>) {
        out.push(Action::Record(HistoryEvent { at: self.now, kind: what }));
    }

    fn id(&self, key: TaskKey) -> TaskId {
        TaskId { role: self.spec.roles[key.role].name.clone(), index: key.index }
    }

    fn task(&self, key: TaskKey) -> &Task {
        &self.roles[key.role].tasks[key.index as usize]
    }

    fn task_mut(&mut self, key: TaskKey) -> &mut Task {
        &mut self.roles[key.role].tasks[key.index as usize]
    }

    /// The task that has this container now.
    fn task_in(&self, container: &ContainerId) -> Option<TaskKey> {
        if self.mutant.is(Mutant::FencesByTask) {
            return self.known.task(container);
        }
        self.held.get(container).map(|held| held.task)
    }
}

/// What can still be on its way when the job is over would be left behind if it were ignored: grants, and
/// containers whose release died with an earlier master.
fn left_behind(event: Event, out: &mut Vec<Action>) {
    match event {
        Event::Granted { grants } => {
            out.extend(grants.into_iter().map(|it| Action::Release(it.container)));
        }
        Event::MasterRecovered { live } => out.extend(live.into_iter().map(Action::Release)),
        _ => {}
    }
}
