//! The state machine: one owner, no clock, no I/O, no `Result`.
//!
//! * `mod.rs` (here): the job, its public interface, and the dispatch of events.
//! * `phase`: phases of tasks, and all counters about them, changed in one function.
//! * `backend`, `agent`: events from the backend (grants, ended containers) and from agents (ready,
//!   started, exited). `timeouts`: expired timers.
//! * `attempt`: consequences of the end of an attempt. `release`: release of a container, and the
//!   task's next step.
//! * `suspect`: failures that may follow from the loss of a peer. `first_cause`: the failure that the
//!   others follow from.
//! * `pending`: rounds that wait for their members, and their start. `restart_round`: restarts of
//!   rounds. `allocation`: time limits of waits for containers.
//! * `scale`: scaling of roles. `single`: single tasks that are added or stopped. `elastic`: elastic roles. `end`: end of a job.
//! * `serving`: serving roles, their replicas, updates and routes.
//! * `dependencies`: roles that depend on others. `queries`: asks, orders, views and what a job
//!   waits for.
//! * `nodes`: excluded nodes. `timers`: armed timers. `grants`: detection of repeated grants.
//! * `invariants`: checks of the state. `mutant`: injected faults that test the simulation.

mod agent;
mod allocation;
mod attempt;
mod backend;
mod dependencies;
mod elastic;
mod end;
mod first_cause;
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
mod serving;
mod single;
mod suspect;
mod timeouts;
mod timers;

pub use mutant::Mutant;
pub use serving::Revision;

use crate::{
    action::{Action, AttemptRun},
    cluster::Cluster,
    ending::{Cause, Outcome},
    event::Event,
    history::{HistoryEvent, HistoryKind},
    id::{ContainerId, NodeName, TaskId},
    serve::RouteTable,
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

/// The state of a job. Two jobs that handle the same events are equal, bit for bit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    spec: JobSpec,
    /// Latest time seen; it never runs backwards, even if the caller's clock does.
    now: Time,
    started: Time,
    stage: Stage,
    roles: Vec<RoleState>,
    /// Containers that tasks hold now. An event from any other container belongs to an earlier
    /// attempt.
    held: BTreeMap<ContainerId, HeldContainer>,
    grants: GrantLog,
    /// Highest round number assigned.
    round: u32,
    /// Newest round that runs or waits for its members. Newcomers wait under round numbers of their
    /// own that never run.
    newest: u32,
    /// Rounds that have not started, by number.
    pending_rounds: BTreeMap<u32, PendingRound>,
    /// Start of the wait of a job without any container whose tasks start on their own.
    starvation_since: Option<Time>,
    /// Time since which the job waits only for followers.
    followers_since: Option<Time>,
    /// Failures that fail the job unless they follow from the loss of a peer.
    suspicion: Option<Suspicion>,
    /// Estimated time of the failure that is the cause of the job's.
    failed_at: Option<Time>,
    nodes: Nodes,
    timers: Timers,
    /// Cluster for tasks that start on their own: sizes without addresses.
    sizes: Arc<Cluster>,
    /// True once a program of the job, other than a sidecar's, was told to run.
    has_started: bool,
    /// Replicas for the gateways.
    routes: RouteTable,
    /// Attempts that ended for their peers; reported at the end of each event.
    retired: Vec<AttemptRun>,
    mutant: Mutant,
}

/// Stage of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Active,
    Ending(Outcome),
    Finished(Outcome),
}

/// A container held by a task.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HeldContainer {
    task: TaskKey,
    node: NodeName,
    /// Time since which its agent misses heartbeats.
    silent_since: Option<Time>,
    /// A new master has recovered and has had no report of its agent. An agent without a master
    /// stops by itself, so until it reports its end is not a failure.
    orphaned: bool,
    /// Its agent has reported to this master.
    reported: bool,
}

impl Job {
    /// Creates a job and returns it with its first actions.
    pub fn new(spec: JobSpec, now: Time) -> (Job, Vec<Action>) {
        Job::with_mutant(spec, now, Mutant::None)
    }

    /// Creates a job with an injected fault; none without the feature `mutants`.
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
            failed_at: None,
            nodes: Nodes::default(),
            timers: Timers::default(),
            sizes: Arc::default(),
            has_started: false,
            routes: RouteTable::default(),
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
        job.begin_serving();
        job.update_sizes();
        let limit = job.spec.timeouts.run.map(|span| job.started + span);
        job.timers.arm(Timer::RunTimeout, limit);
        job.settle(&mut out);
        job.check();
        (job, out)
    }

    /// Rebuilds a job from its journal, for a recovering master.
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

    /// Handles an event and returns the actions to execute.
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
        self.update_routes();
        self.report_retired(&mut out);
        self.check();
        out
    }

    /// Returns the time at which the caller must send [`Event::Ticked`] if no other event arrives.
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
            Event::LaunchFailed { container, reason } => {
                self.on_launch_failed(&container, reason, out)
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
            Event::RequestUnsatisfiable { reason } => {
                self.fail(Cause::NoContainers { missing: reason }, out)
            }
            Event::Ready { container, round, endpoint } => {
                self.on_agent_ready(&container, round, endpoint, out)
            }
            Event::SetupFailed { container, reason, node_fault: node } => {
                self.on_setup_failed(&container, reason, node, out)
            }
            Event::Started { container, round } => self.on_started(&container, round, out),
            Event::Exited { container, round, exit } => {
                self.on_exited(&container, round, exit, out)
            }
            Event::AgentStopped { container, upload_error } => {
                self.on_agent_stopped(&container, upload_error, out)
            }
            Event::HeartbeatMissed { container } => self.on_heartbeat_missed(&container),
            Event::HeartbeatResumed { container } => {
                self.record_report(&container);
            }
            Event::KillRequested { by, immediate: now } => self.on_kill_requested(by, now, out),
            Event::ScaleRequested { role, instances } => {
                self.on_scale_requested(&role, instances, out)
            }
            Event::TaskAddRequested { role, env } => self.on_task_add_requested(&role, env, out),
            Event::TaskStopRequested { task } => self.on_task_stop_requested(&task, out),
            Event::EndRequested { outcome } => {
                if self.stage == Stage::Active || self.mutant.is(Mutant::EndsTwice) {
                    self.begin_ending(outcome, out);
                }
            }
            Event::Served { container, change } => self.on_probed(&container, change, true),
            Event::Unserved { container, change } => self.on_probed(&container, change, false),
            Event::Drained { container, version } => self.on_drained(&container, version, out),
            Event::NodeDraining { containers, time } => {
                for container in containers {
                    self.on_leaving(&container, Some(time), out);
                }
            }
            Event::Updated { role, revision, spec, canary } => {
                self.on_updated(&role, revision, (*spec, canary), out)
            }
            Event::Judged { role, revision, good } => self.on_judged(&role, revision, good, out),
            Event::UndoRequested { role } => self.on_undo_requested(&role, out),
            Event::Scaled { role, instances, because, idle } => {
                self.on_scaled(&role, instances, (because, idle), out)
            }
            Event::Wanted { role } => self.on_wanted(&role, out),
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

    /// Applies the consequences of an event: starts complete rounds and ends a finished job.
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
        self.settle_serving(out);
        self.update_starvation();
        let has_no_container = self.held.is_empty() || self.mutant.is(Mutant::FinishesEarly);
        if matches!(self.stage, Stage::Ending(_)) && has_no_container {
            self.finish(out);
        }
    }

    fn record(&self, kind: HistoryKind, out: &mut Vec<Action>) {
        out.push(Action::Record(HistoryEvent { at: self.now, kind }));
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

    /// Returns the task that holds this container.
    fn task_in(&self, container: &ContainerId) -> Option<TaskKey> {
        if self.mutant.is(Mutant::FencesByTask) {
            return self.grants.task(container);
        }
        self.held.get(container).map(|held| held.task)
    }
}

/// Releases containers that arrive after the end of a job: grants, and containers whose release was
/// lost with an earlier master.
fn release_leftovers(event: Event, out: &mut Vec<Action>) {
    match event {
        Event::Granted { grants } => {
            out.extend(grants.into_iter().map(|it| Action::Release(it.container)));
        }
        Event::MasterRecovered { live } => out.extend(live.into_iter().map(Action::Release)),
        _ => {}
    }
}
