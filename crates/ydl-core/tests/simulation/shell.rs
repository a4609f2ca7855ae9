//! The master around the core: a faithful small shell. It journals, applies actions, keeps asks absolute, repeats
//! releases until the cluster has heard them, and listens for beats.

mod hears;

use super::{
    cluster::index,
    faults::Plan,
    world::{Happening, World},
};
use std::collections::{BTreeMap, BTreeSet};
use ydl_core::{Action, Asks, ContainerExit, ContainerId, Event, Job, JobSpec, Time, job::Mutant};

/// Message of the cluster.
#[derive(Clone, Debug)]
pub enum Item {
    Granted(usize),
    Ended(usize, ContainerExit),
    Warned(usize),
}

pub struct Shell {
    spec: JobSpec,
    mutant: Mutant,
    started: Time,
    /// None while the master is dead.
    pub job: Option<Job>,
    pub journal: Vec<(Time, Event)>,
    /// Releases that the cluster has not confirmed.
    pub releases: BTreeSet<ContainerId>,
    /// Heartbeat in transit.
    pub beat_sent: (u64, Asks, Vec<ContainerId>),
    acked: u64,
    beat: u64,
    /// Last report of each agent, and whether a missed heartbeat was reported since.
    heard: BTreeMap<ContainerId, (u64, bool)>,
    wake_at: Option<u64>,
    /// Generation of the master.
    life: u64,
}

impl Shell {
    pub fn new(plan: &Plan, mutant: Mutant) -> Shell {
        Shell {
            spec: plan.spec.clone(),
            mutant,
            started: Time(0),
            job: None,
            journal: Vec::new(),
            releases: BTreeSet::new(),
            beat_sent: (0, Asks::default(), Vec::new()),
            acked: 0,
            beat: 0,
            heard: BTreeMap::new(),
            wake_at: None,
            life: 0,
        }
    }

    /// The job that the journal makes.
    fn replayed(&self) -> Job {
        if self.mutant == Mutant::None {
            return Job::replay(self.spec.clone(), self.started, &self.journal);
        }
        let (mut job, _) = Job::with_mutant(self.spec.clone(), self.started, self.mutant);
        for (now, event) in &self.journal {
            job.handle(*now, event.clone());
        }
        job
    }

    pub fn check_replay(&self) {
        if let Some(job) = &self.job {
            assert!(self.replayed() == *job, "a replayed job is not the same job");
        }
    }

    pub fn waiting_reason(&self) -> String {
        let reason = self.job.as_ref().map(Job::waiting_reason);
        reason.unwrap_or_else(|| "there is no master".into())
    }
}

impl World {
    pub fn start_shell(&mut self) {
        let (job, actions) =
            Job::with_mutant(self.plan.spec.clone(), self.shell.started, self.shell.mutant);
        self.shell.job = Some(job);
        self.apply(actions);
        self.begin_beats();
        self.count_nodes();
    }

    fn begin_beats(&mut self) {
        self.shell.life += 1;
        let life = self.shell.life;
        self.shell.beat += 1;
        let number = self.shell.beat;
        self.after(10, Happening::Beat { number });
        self.after(1_000, Happening::Watch { life });
    }

    pub fn count_nodes(&mut self) {
        let nodes = self.nodes.iter().filter(|node| !node.lost).count() as u32;
        self.handle(Event::NodesCounted { nodes });
    }

    /// One event goes through the core, is journalled, and its actions are done.
    pub fn handle(&mut self, event: Event) {
        let mut now = self.now;
        let jumps = self.faults().clock_jumps;
        if self.struck(jumps, 5) {
            now = now.saturating_sub(self.random.below(5_000));
        }
        let Some(job) = self.shell.job.as_mut() else {
            return;
        };
        let before = job.asks().avoid;
        let actions = job.handle(Time(now), event.clone());
        if !cfg!(debug_assertions) {
            job.check_all();
        }
        if let Some(trace) = &mut self.trace {
            let at = self.now as f64 / 1000.0;
            trace.push(format!("{at:>9.3}    → {event:?}"));
            let done = actions.iter().map(|action| match action {
                Action::Record(fact) => format!("{at:>9.3}      · {}", fact.kind),
                other => format!("{at:>9.3}      ← {other:?}"),
            });
            trace.extend(done);
        }
        self.checks.handled(now, job, &event, &actions, &before, &self.containers);
        self.shell.journal.push((Time(now), event));
        let dies = self.faults().master_dies;
        if self.struck(dies, 1) && self.random.percent(20) {
            // It dies with its hands full: what it had still to do is lost.
            let done = self.random.below(actions.len() as u64 + 1) as usize;
            self.apply(actions.into_iter().take(done).collect());
            self.master_dies();
            return;
        }
        self.apply(actions);
        if self.random.below(400) == 0 {
            self.shell.check_replay();
        }
        self.plan_wake();
    }

    fn plan_wake(&mut self) {
        let due = self.shell.job.as_ref().and_then(Job::next_wakeup);
        let Some(due) = due else {
            return;
        };
        let due = due.0.max(self.now + 1);
        if self.shell.wake_at.is_none_or(|at| at > due || at <= self.now) {
            self.shell.wake_at = Some(due);
            self.after(due - self.now, Happening::Wake { due });
        }
    }

    pub fn wake(&mut self, due: u64) {
        if self.shell.wake_at == Some(due) {
            self.shell.wake_at = None;
            self.handle(Event::Ticked);
        }
    }

    fn apply(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Launch { container, .. } => {
                    let wait = self.random.from(5, 80);
                    let at = index(&container);
                    self.after(wait, Happening::LaunchArrives { at });
                }
                Action::Release(container) => {
                    self.checks.released(&container);
                    self.shell.releases.insert(container);
                }
                Action::OrderChanged(container) => {
                    // A node is cut off when it hurts the most: just when it would have been told something.
                    let at = index(&container);
                    let partitions = self.faults().partitions;
                    if self.struck(partitions, 5) {
                        self.partition(self.containers[at].node);
                    }
                    self.answer(at, 0);
                }
                Action::Record(_)
                | Action::RoundStarted(_)
                | Action::AttemptOver(_)
                | Action::MembersChanged(_) => {}
                Action::Finish(outcome) => self.checks.finished(self.now, &outcome),
            }
        }
    }

    // The master's death.

    pub fn master_dies(&mut self) {
        if self.shell.job.is_none() {
            return;
        }
        self.say("the master dies".into());
        let job = self.shell.job.take();
        self.shell.releases.clear();
        self.shell.heard.clear();
        self.gateways.master_dies();
        self.shell.wake_at = None;
        self.shell.beat += 1;
        self.shell.life += 1;
        let replayed = self.shell.replayed();
        assert!(Some(replayed) == job, "a replayed job is not the same job");
        let wait = self.random.from(200, 15_000);
        self.after(wait, Happening::MasterReturns);
    }

    pub fn master_returns(&mut self) {
        self.shell.job = Some(self.shell.replayed());
        // A new master is told what lives; what it was not told before is not repeated.
        self.cluster.outbox.clear();
        self.shell.acked = self.cluster.sent;
        let alive = self.containers.iter().filter(|it| it.allocated);
        let live: Vec<_> = alive.map(|it| it.id.clone()).collect();
        self.checks.recovered(&live);
        if self.shell.job.as_ref().is_some_and(Job::is_finished) {
            let outcome = self.shell.job.as_ref().and_then(Job::outcome).cloned();
            self.checks.found_finished(self.now, outcome);
        }
        self.handle(Event::MasterRecovered { live });
        self.begin_beats();
        self.count_nodes();
    }
}
