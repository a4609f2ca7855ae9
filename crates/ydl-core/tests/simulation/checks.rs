//! Invariants of every schedule, checked independently of the core where possible.

mod beginnings;
pub mod causes;
mod endings;
mod over;
mod programs;

use super::{
    cluster::{Container, index},
    count::Failures,
    faults::Plan,
    late::Late,
    serving::service::Service,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use ydl_core::{
    Action, AttemptRun, Cluster, ContainerId, Event, HistoryKind, Job, JobSpec, NodeName, Outcome,
    RoleName, TaskId, Time, history::Disposition, spec::Completion,
};

pub struct Checks {
    pub spec: JobSpec,
    /// No fault at all is planned.
    calm: bool,
    /// No failures are planned.
    pub blameless: bool,
    pub finished_at: Option<u64>,
    pub killed: bool,
    finishes: u32,
    pub outcome: Option<Outcome>,
    causes_heard: causes::Causes,
    pub now: Time,
    pub failures: Failures,
    granted: BTreeSet<ContainerId>,
    launched: BTreeMap<ContainerId, TaskId>,
    /// The container that a task was last given.
    current: BTreeMap<TaskId, ContainerId>,
    given_back: BTreeSet<ContainerId>,
    told_ended: BTreeSet<ContainerId>,
    /// Released or reported as ended: no task may use them any more.
    condemned: BTreeSet<ContainerId>,
    /// Were told to run a program.
    ran: BTreeSet<ContainerId>,
    pub saved: BTreeSet<ContainerId>,
    quiet: BTreeMap<ContainerId, Time>,
    signalled: BTreeSet<ContainerId>,
    rounds: BTreeMap<u32, Arc<Cluster>>,
    /// Attempts that are over.
    attempts: BTreeSet<(TaskId, u32)>,
    /// Programs that run now, where, and in which round.
    live: BTreeMap<TaskId, (usize, u32)>,
    /// The last program of each task: where, in which round, and whether it succeeded.
    pub last: BTreeMap<TaskId, (usize, u32, Option<bool>)>,
    /// Number of restarts and member notifications.
    pub broken: u64,
    /// Number of possible causes, without launched containers.
    pub causes: u64,
    /// Agents that have said that they are ready for a round.
    pub ready: BTreeSet<(ContainerId, u32)>,
    /// Programs that the master knows to have succeeded.
    pub done: BTreeSet<(ContainerId, u32)>,
    /// Tasks that ran when their role was made smaller, without them.
    pub dropped: BTreeSet<TaskId>,
    /// Tasks stopped on request. None of them runs again.
    pub stopped: BTreeSet<TaskId>,
    /// Variables of added tasks.
    pub env: BTreeMap<TaskId, BTreeMap<String, String>>,
    /// Outcomes that clients asked for.
    pub requested: Vec<Outcome>,
    /// A role was made smaller by the event at hand.
    dropping: bool,
    pub late: Late,
    pub service: Service,
    /// Roles for which others wait, and need not any more.
    begun: BTreeSet<RoleName>,
    /// A round has begun.
    round_began: bool,
    /// Attempts that were told to run and are not over for their peers, and where.
    pub speak: BTreeMap<TaskId, (ContainerId, AttemptRun)>,
    /// Attempts that are.
    pub silent: BTreeSet<(TaskId, u32)>,
}

impl Checks {
    pub fn new(plan: &Plan) -> Checks {
        Checks {
            spec: plan.spec.clone(),
            calm: plan.hostile == 0,
            blameless: plan.faults.blameless() && !plan.serves(),
            finished_at: None,
            killed: false,
            finishes: 0,
            outcome: None,
            causes_heard: causes::Causes::default(),
            now: Time(0),
            failures: Failures::new(&plan.spec),
            granted: BTreeSet::new(),
            launched: BTreeMap::new(),
            current: BTreeMap::new(),
            given_back: BTreeSet::new(),
            told_ended: BTreeSet::new(),
            condemned: BTreeSet::new(),
            ran: BTreeSet::new(),
            saved: BTreeSet::new(),
            quiet: BTreeMap::new(),
            signalled: BTreeSet::new(),
            rounds: BTreeMap::new(),
            attempts: BTreeSet::new(),
            live: BTreeMap::new(),
            last: BTreeMap::new(),
            broken: 0,
            causes: 0,
            ready: BTreeSet::new(),
            done: BTreeSet::new(),
            dropped: BTreeSet::new(),
            stopped: BTreeSet::new(),
            env: BTreeMap::new(),
            requested: Vec::new(),
            dropping: false,
            late: Late::default(),
            service: Service::new(&plan.spec),
            begun: BTreeSet::new(),
            round_began: false,
            speak: BTreeMap::new(),
            silent: BTreeSet::new(),
        }
    }

    pub fn completion(&self, task: &TaskId) -> Completion {
        let role = self.spec.role(&task.role);
        role.expect("every task has a role").completion
    }

    /// One event has gone through the core.
    pub fn handled(
        &mut self,
        now: u64,
        job: &Job,
        event: &Event,
        actions: &[Action],
        avoided: &[NodeName],
        containers: &[Container],
    ) {
        self.now = self.now.max(Time(now));
        self.dropping = false;
        self.watch_beginnings(job);
        self.no_fault_of_theirs(event, actions);
        self.happened(event);
        let outcome = self.outcome.clone();
        for action in actions {
            match action {
                Action::Launch { container, task, .. } => {
                    assert!(self.outcome.is_none(), "launched after the end");
                    assert!(!self.stopped.contains(task), "{task} was stopped, and starts again");
                    self.comes_after_others(task);
                    assert!(
                        self.granted.contains(container) && !self.condemned.contains(container),
                        "launched in a container that is not there"
                    );
                    let node = format!("n{}", containers[index(container)].node);
                    let avoids = avoided.iter().any(|it| it.as_str() == node);
                    assert!(!avoids, "launched on a node that is avoided");
                    let before = self.launched.insert(container.clone(), task.clone());
                    assert!(before.is_none(), "launched twice in one container");
                    self.current.insert(task.clone(), container.clone());
                }
                Action::Release(container) => {
                    self.condemned.insert(container.clone());
                }
                Action::Record(fact) => self.recorded(&fact.kind, event),
                Action::OrderChanged(_) => {}
                Action::RoundStarted(_) => self.round_began = true,
                Action::AttemptOver(run) => self.is_over(run),
                Action::MembersChanged(cluster) => {
                    self.sizes_are_right(Some(event), cluster);
                    self.members_are_there(job, cluster);
                }
                Action::Finish(outcome) => {
                    assert_eq!(Some(outcome), self.outcome.as_ref(), "finished as decided");
                }
            }
        }
        self.cause_is_first(job, event, outcome.as_ref(), actions);
        self.ends_are_said(job, actions);
        self.changes_have_causes(job, event, actions);
        self.nobody_is_late(job, event, actions);
        self.service_is_kept(job, event, actions);
        let next = job.next_wakeup();
        assert!(next.is_none_or(|at| at > self.now), "woken again at once");
    }

    fn happened(&mut self, event: &Event) {
        match event {
            Event::Granted { grants } => {
                let ids = grants.iter().map(|grant| grant.container.clone());
                self.granted.extend(ids);
            }
            Event::Ended { containers } => {
                for (container, _) in containers {
                    self.told_ended.insert(container.clone());
                    self.condemned.insert(container.clone());
                }
            }
            Event::HeartbeatMissed { container } => {
                let now = self.now;
                self.quiet.entry(container.clone()).or_insert(now);
            }
            Event::Ready { container, .. }
            | Event::SetupFailed { container, .. }
            | Event::Started { container, .. }
            | Event::Served { container, .. }
            | Event::Unserved { container, .. }
            | Event::HeartbeatResumed { container } => self.heard(container),
            Event::Exited { container, exit, .. } => {
                self.heard(container);
                if exit.container_signalled {
                    self.failures.excuse();
                    self.signalled.insert(container.clone());
                }
            }
            Event::AgentStopped { container, upload_error } => {
                self.heard(container);
                if upload_error.is_none() {
                    self.saved.insert(container.clone());
                }
            }
            Event::MasterRecovered { .. } => self.quiet.clear(),
            Event::NodesCounted { .. }
            | Event::NodesRequired { .. }
            | Event::Launched { .. }
            | Event::LaunchFailed { .. }
            | Event::PreemptionWarned { .. }
            | Event::RequestUnsatisfiable { .. }
            | Event::KillRequested { .. }
            | Event::ScaleRequested { .. }
            | Event::TaskAddRequested { .. }
            | Event::TaskStopRequested { .. }
            | Event::EndRequested { .. }
            | Event::NodeDraining { .. }
            | Event::Drained { .. }
            | Event::Updated { .. }
            | Event::Judged { .. }
            | Event::UndoRequested { .. }
            | Event::Scaled { .. }
            | Event::Wanted { .. }
            | Event::Ticked => {}
        }
    }

    fn heard(&mut self, container: &ContainerId) {
        self.quiet.remove(container);
    }

    /// A new master was told what lives; everything else is told dead.
    pub fn recovered(&mut self, live: &[ContainerId]) {
        for container in &self.granted {
            if !live.contains(container) {
                self.told_ended.insert(container.clone());
                self.condemned.insert(container.clone());
            }
        }
    }

    fn recorded(&mut self, what: &HistoryKind, event: &Event) {
        match what {
            HistoryKind::JobEnding { outcome } => {
                assert!(self.outcome.is_none(), "decided twice");
                self.outcome = Some(outcome.clone());
                self.decided(outcome);
            }
            HistoryKind::CauseFound { cause } => self.cause_found(cause),
            HistoryKind::RoleScaled { role, to, .. } => {
                self.dropping = true;
                if !self.serves(role) {
                    self.failures.scaled(role, *to, &self.stopped);
                }
            }
            HistoryKind::RoundRestarted { .. } => self.dropping = false,
            HistoryKind::AttemptStopped { task, .. } => {
                if self.dropping {
                    self.dropped.insert(task.clone());
                }
            }
            HistoryKind::AttemptStarted { task, .. } => {
                assert!(!self.stopped.contains(task), "{task} was stopped, and runs again");
                self.dropped.remove(task);
            }
            HistoryKind::AttemptEnded {
                task,
                attempt,
                round,
                container,
                ending,
                disposition: next,
                ..
            } => {
                if let Event::Exited { round: exited, .. } = event {
                    assert_eq!(exited, round, "an exit of another round ended an attempt");
                }
                let new = self.attempts.insert((task.clone(), *attempt));
                assert!(new, "an attempt ended twice: {task} {attempt}");
                self.ending_is_true(container, ending, event);
                self.failures.ended(self.now, task, ending, next);
                if self.calm {
                    assert_eq!(*next, Disposition::Done, "an attempt failed in a calm world");
                }
            }
            HistoryKind::JobStarted
            | HistoryKind::RoundStarted { .. }
            | HistoryKind::MembersChanged { .. }
            | HistoryKind::GangReleased { .. }
            | HistoryKind::NodeExcluded { .. }
            | HistoryKind::NodeReadmitted { .. }
            | HistoryKind::MemoryIncreased { .. }
            | HistoryKind::MasterRecovered { .. }
            | HistoryKind::RolloutStarted { .. }
            | HistoryKind::RolloutEnded { .. }
            | HistoryKind::ReplicaDraining { .. }
            | HistoryKind::JobFinished { .. } => {}
        }
    }

    pub fn serves(&self, role: &RoleName) -> bool {
        self.spec.role(role).is_some_and(|role| role.serve.is_some())
    }

    /// Number of launched containers.
    pub fn launches(&self) -> u64 {
        self.launched.len() as u64
    }

    pub fn launched_as(&self, container: &ContainerId) -> Option<&RoleName> {
        self.launched.get(container).map(|task| &task.role)
    }

    pub fn launched_task(&self, container: &ContainerId) -> Option<&TaskId> {
        self.launched.get(container)
    }

    pub fn is_condemned(&self, container: &ContainerId) -> bool {
        self.condemned.contains(container)
    }

    /// Newest round of any order to run.
    pub fn newest_round(&self) -> Option<u32> {
        self.rounds.keys().next_back().copied()
    }

    /// The cluster of that round.
    pub fn newest_cluster(&self) -> Option<&Cluster> {
        self.rounds.values().next_back().map(|it| &**it)
    }

    /// Returns true if any program is known to have succeeded.
    pub fn any_done(&self) -> bool {
        !self.done.is_empty()
    }
}
