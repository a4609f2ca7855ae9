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

mod agent;
mod allocation;
mod attempt;
mod backend;
mod dependencies;
mod elastic;
mod end;
mod grants;
mod invariants;
mod mutant;
mod nodes;
mod pending;
mod phase;
mod queries;
mod release;
mod restart_round;
mod scale;
mod suspect;
mod timeouts;
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
use end::JobProgress;
use grants::GrantLog;
use nodes::Nodes;
use pending::PendingRound;
use phase::{NextStep, Phase, RoleState, Task, TaskKey};
use suspect::Suspicion;
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
    held: BTreeMap<ContainerId, HeldContainer>,
    grants: GrantLog,
    /// The highest number that was given to a round.
    round: u32,
    /// The newest round that runs or gathers anew. Newcomers gather under a number of their own, in which nobody runs.
    newest: u32,
    /// Rounds that have not begun, by their number.
    pending_rounds: BTreeMap<u32, PendingRound>,
    /// Since when tasks want containers and the job, whose tasks start on their own, has none at all.
    starvation_since: Option<Time>,
    /// Since when nobody is waited for but roles that follow.
    followers_since: Option<Time>,
    /// Failures that fail the job unless the cluster was their cause.
    suspicion: Option<Suspicion>,
    nodes: Nodes,
    timers: Timers,
    /// What tasks that start on their own are told: numbers, no addresses.
    sizes: Arc<Cluster>,
    /// A program of the job was told to run, not only one that stands beside it.
    has_started: bool,
    /// Attempts that are over, until that is said: before the end of each event.
    retired: Vec<Run>,
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
struct HeldContainer {
    task: TaskKey,
    node: NodeName,
    /// Since when its agent misses its beats.
    silent_since: Option<Time>,
    /// A new master took over and has not heard it yet. An agent without a master stops by itself, so until it
    /// is heard its end is nobody's fault.
    orphaned: bool,
    /// This master has heard its agent.
    reported: bool,
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
            grants: GrantLog::default(),
            round: 1,
            newest: 1,
            pending_rounds: BTreeMap::new(),
            starvation_since: None,
            followers_since: None,
            suspicion: None,
            nodes: Nodes::default(),
            timers: Timers::default(),
            sizes: Arc::default(),
            has_started: false,
            retired: Vec::new(),
            mutant,
            spec,
        };
        let mut out = Vec::new();
        job.record(HistoryKind::JobStarted, &mut out);
        for role in 0..job.roles.len() {
            let instances = job.spec.roles[role].instances;
            job.add_tasks(role, instances, 1);
        }
        job.update_sizes();
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
            release_leftovers(event, &mut out);
            return out;
        }
        self.on_event(event, &mut out);
        self.run_timers(&mut out);
        self.settle(&mut out);
        self.report_retired(&mut out);
        self.check();
        out
    }

    /// When the job wants to be woken with [`Event::Ticked`] if nothing else happens.
    pub fn next_wakeup(&self) -> Option<Time> {
        match self.stage {
            Stage::Finished(_) => None,
            Stage::Active | Stage::Ending(_) => self.timers.next(),
        }
    }

    fn on_event(&mut self, event: Event, out: &mut Vec<Action>) {
        match event {
            Event::NodesCounted { nodes } => self.on_nodes_counted(nodes, out),
            Event::NodesRequired { nodes } => self.on_nodes_required(nodes, out),
            Event::Granted { grants } => {
                for grant in grants {
                    self.on_granted(grant, out);
                }
            }
            Event::Launched { container } => self.on_launched(&container),
            Event::LaunchFailed { container, reason: why } => {
                self.on_launch_failed(&container, why, out)
            }
            Event::Ended { containers } => {
                for (container, end) in containers {
                    self.on_ended(&container, end, out);
                    if self.mutant.is(Mutant::StopsAfterFirstEnded) {
                        return;
                    }
                }
            }
            Event::PreemptionWarned { container } => self.on_preemption_warned(&container, out),
            Event::RequestUnsatisfiable { reason: why } => {
                self.fail(Cause::NoContainers { missing: why }, out)
            }
            Event::Ready { container, round, endpoint } => {
                self.on_agent_ready(&container, round, endpoint, out)
            }
            Event::SetupFailed { container, reason: why, node_fault: node } => {
                self.on_setup_failed(&container, why, node, out)
            }
            Event::Started { container, round } => self.on_started(&container, round, out),
            Event::Exited { container, round, exit } => {
                self.on_exited(&container, round, exit, out)
            }
            Event::OutputsUploaded { container, error } => {
                self.on_outputs_uploaded(&container, error, out)
            }
            Event::HeartbeatMissed { container } => self.on_heartbeat_missed(&container),
            Event::HeartbeatResumed { container } => {
                self.record_report(&container);
            }
            Event::KillRequested { by, immediate: now } => self.on_kill_requested(by, now, out),
            Event::ScaleRequested { role, instances } => {
                self.on_scale_requested(&role, instances, out)
            }
            Event::Ticked => {}
            Event::MasterRecovered { live } => self.on_master_recovered(live, out),
        }
    }

    fn on_kill_requested(&mut self, by: String, now: bool, out: &mut Vec<Action>) {
        if self.stage == Stage::Active {
            self.begin_ending(Outcome::Killed { by }, out);
        }
        if now {
            self.stop_waiting(out);
        }
    }

    /// What follows from everything that has changed: rounds that are complete, the job that is done.
    fn settle(&mut self, out: &mut Vec<Action>) {
        self.settle_suspicion(out);
        if self.stage == Stage::Active {
            self.update_started_roles();
            self.start_complete_rounds(out);
            let done = self.done();
            let followed = self.update_followers(done, out);
            if done == JobProgress::Complete || followed {
                self.begin_ending(Outcome::Succeeded, out);
            }
        }
        self.update_starvation();
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
            return self.grants.task(container);
        }
        self.held.get(container).map(|held| held.task)
    }
}

/// What can still be on its way when the job is over would be left behind if it were ignored: grants, and
/// containers whose release died with an earlier master.
fn release_leftovers(event: Event, out: &mut Vec<Action>) {
    match event {
        Event::Granted { grants } => {
            out.extend(grants.into_iter().map(|it| Action::Release(it.container)));
        }
        Event::MasterRecovered { live } => out.extend(live.into_iter().map(Action::Release)),
        _ => {}
    }
}
