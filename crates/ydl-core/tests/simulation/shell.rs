//! The master around the core: a faithful small shell. It journals, applies actions, keeps asks absolute, repeats
//! releases until the cluster has heard them, and listens for beats.

use super::{
    cluster::index,
    faults::Plan,
    report::Report,
    world::{Happening, World},
};
use std::collections::{BTreeMap, BTreeSet};
use ydl_core::{
    Action, Asks, ContainerEnd, ContainerId, Event, Grant, Job, JobSpec, Time, job::Mutant,
    spec::Resources,
};

/// So long may an agent say nothing before it is called quiet.
const QUIET: u64 = 2_000;
const BEAT: u64 = 500;
const BEAT_TIMEOUT: u64 = 2_500;

/// What the cluster has to say.
#[derive(Clone, Debug)]
pub enum Item {
    Granted(usize),
    Ended(usize, ContainerEnd),
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
    /// What the beat on its way says.
    pub beat_sent: (u64, Asks, Vec<ContainerId>),
    acked: u64,
    beat: u64,
    /// When each agent was last heard, and whether it was called quiet since.
    heard: BTreeMap<ContainerId, (u64, bool)>,
    wake_at: Option<u64>,
    /// Which master this is.
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
            assert!(
                self.replayed() == *job,
                "a replayed job is not the same job"
            );
        }
    }

    pub fn why(&self) -> String {
        let why = self.job.as_ref().map(Job::why);
        why.unwrap_or_else(|| "there is no master".into())
    }
}

impl World {
    pub fn start_shell(&mut self) {
        let (job, actions) = Job::with_mutant(
            self.plan.spec.clone(),
            self.shell.started,
            self.shell.mutant,
        );
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
        self.handle(Event::Counted { nodes });
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
                Action::Record(fact) => format!("{at:>9.3}      · {}", fact.what),
                other => format!("{at:>9.3}      ← {other:?}"),
            });
            trace.extend(done);
        }
        self.checks
            .handled(now, job, &event, &actions, &before, &self.containers);
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
        let due = self.shell.job.as_ref().and_then(Job::next_deadline);
        let Some(due) = due else {
            return;
        };
        let due = due.0.max(self.now + 1);
        if self
            .shell
            .wake_at
            .is_none_or(|at| at > due || at <= self.now)
        {
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
                Action::Tell(container) => {
                    // A node is cut off when it hurts the most: just when it would have been told something.
                    let at = index(&container);
                    let partitions = self.faults().partitions;
                    if self.struck(partitions, 5) {
                        self.partition(self.containers[at].node);
                    }
                    self.answer(at, 0);
                }
                Action::Record(_) | Action::Began(_) | Action::Over(_) | Action::Changed(_) => {}
                Action::Finish(outcome) => self.checks.finished(self.now, &outcome),
            }
        }
    }

    /// Sends the standing order to an agent.
    fn answer(&mut self, at: usize, acked: u64) {
        let Some(job) = &self.shell.job else {
            return;
        };
        let id = &self.containers[at].id;
        let order = job.order(id);
        self.checks.ordered(job, id, &order);
        let lost = self.faults().replies_lost;
        if self.struck(lost, 20) {
            return;
        }
        let stamp = self.stamp();
        let wait = self.random.from(2, 60);
        let hears = Happening::AgentHears {
            at,
            order,
            stamp,
            acked,
        };
        self.after(wait, hears);
    }

    // The cluster.

    pub fn beat(&mut self, number: u64) {
        if self.shell.job.is_none() || number != self.shell.beat {
            return;
        }
        self.shell.beat += 1;
        let next = self.shell.beat;
        let asks = self.shell.job.as_ref().map(Job::asks).unwrap_or_default();
        let releases = self.shell.releases.iter().cloned().collect();
        self.shell.beat_sent = (self.shell.acked, asks, releases);
        self.after(BEAT_TIMEOUT, Happening::Beat { number: next });
        let lost = self.faults().beats_lost;
        if !self.struck(lost, 10) {
            let wait = self.random.from(5, 60);
            self.after(wait, Happening::ClusterHears { number: next });
        }
    }

    pub fn hear_cluster(&mut self, items: Vec<(u64, Item)>, number: u64) {
        if self.shell.job.is_none() {
            return;
        }
        if number == self.shell.beat {
            self.shell.acked = items.last().map_or(self.shell.acked, |(n, _)| *n);
            let sent = std::mem::take(&mut self.shell.beat_sent.2);
            for id in sent {
                self.shell.releases.remove(&id);
            }
            self.shell.beat += 1;
            let number = self.shell.beat;
            self.after(BEAT, Happening::Beat { number });
        }
        // An answer that comes after its time is out is heard all the same: then everything in it comes twice.
        let mut grants = Vec::new();
        let mut ended = Vec::new();
        let mut warned = Vec::new();
        for (_, item) in items {
            match item {
                Item::Granted(at) => grants.push(self.grant_of(at)),
                Item::Ended(at, end) => ended.push((self.containers[at].id.clone(), end)),
                Item::Warned(at) => warned.push(self.containers[at].id.clone()),
            }
        }
        if !grants.is_empty() {
            self.handle(Event::Granted { grants });
        }
        for container in warned {
            self.handle(Event::Warned { container });
        }
        if !ended.is_empty() {
            self.handle(Event::Ended { containers: ended });
        }
    }

    fn grant_of(&self, at: usize) -> Grant {
        let container = &self.containers[at];
        Grant {
            container: container.id.clone(),
            role: container.role.clone(),
            node: self.nodes[container.node].name.clone(),
            resources: Resources {
                memory_mib: container.memory_mib,
                vcores: 1,
                ..Resources::default()
            },
        }
    }

    // Launches.

    pub fn launch_arrives(&mut self, at: usize) {
        let container = &self.containers[at];
        let node = &self.nodes[container.node];
        let refused = node.dead || node.cut.is_some() || node.lost || !container.allocated;
        let refused = refused || container.condemned || container.agent.is_some();
        let faults = self.faults();
        if refused {
            let why = Some("the node did not answer".to_string());
            self.after(3_000, Happening::LaunchAnswered { at, why });
            return;
        }
        if self.struck(faults.launches_vanish, 8) {
            return;
        }
        let fails = self.struck(faults.launches_fail, 15);
        // An answer that says no is not always true.
        if !fails || self.random.percent(20) {
            self.agent_is_born(at);
        }
        let why = fails.then(|| "the launch failed".to_string());
        let lost = self.struck(faults.launches_vanish, 10);
        let wait = self.random.from(5, 300);
        if !lost {
            self.after(wait, Happening::LaunchAnswered { at, why });
        }
    }

    pub fn launch_answered(&mut self, at: usize, why: Option<String>) {
        let container = self.containers[at].id.clone();
        match why {
            Some(why) => self.handle(Event::LaunchFailed { container, why }),
            None => self.handle(Event::Launched { container }),
        }
    }

    // Agents.

    pub fn hear_agent(&mut self, at: usize, reports: Vec<(u64, Report)>, late: bool) {
        if self.shell.job.is_none() {
            return;
        }
        let id = self.containers[at].id.clone();
        let was = self.shell.heard.insert(id.clone(), (self.now, false));
        if was.is_none_or(|(_, quiet)| quiet) {
            let container = id.clone();
            self.handle(Event::Heard { container });
        }
        let acked = reports.last().map_or(0, |(n, _)| *n);
        for (_, report) in reports {
            self.handle(report.event(id.clone()));
        }
        if !late {
            self.answer(at, acked);
        }
    }

    /// Looks for agents that have missed their beats.
    pub fn watch(&mut self, life: u64) {
        let Some(job) = self.shell.job.as_ref().filter(|_| life == self.shell.life) else {
            return;
        };
        let held: BTreeSet<_> = job.containers().cloned().collect();
        self.shell.heard.retain(|id, _| held.contains(id));
        let mut quiet = Vec::new();
        for (id, (last, called)) in &mut self.shell.heard {
            if !*called && *last + QUIET <= self.now {
                *called = true;
                quiet.push(id.clone());
            }
        }
        for container in quiet {
            self.handle(Event::Quieted { container });
        }
        if let Some(job) = &self.shell.job {
            self.checks.watched(self.now, job);
            self.after(1_000, Happening::Watch { life });
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
        if self.shell.job.as_ref().is_some_and(Job::finished) {
            let outcome = self.shell.job.as_ref().and_then(Job::outcome).cloned();
            self.checks.found_finished(self.now, outcome);
        }
        self.handle(Event::Recovered { live });
        self.begin_beats();
        self.count_nodes();
    }
}
