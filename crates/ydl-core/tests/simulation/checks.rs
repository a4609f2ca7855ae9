//! What must hold whatever happens. Nothing here asks the core for its opinion where it can be known otherwise.

use super::{
    count::{Failures, counts},
    faults::Plan,
    late::Late,
    shell::Shell,
    world::{Container, index},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use ydl_core::{
    Action, Cause, Cluster, ContainerEnd, ContainerId, Ending, Event, Job, JobSpec, Member,
    NodeName, Order, Outcome, RoleName, Run, TaskId, Time, What,
    fact::Next,
    spec::{Completion, RoleSpec, Scope},
    view::TaskState,
};

pub struct Checks {
    pub spec: JobSpec,
    /// No fault at all is planned.
    calm: bool,
    /// Nothing is planned that is anybody's fault.
    pub blameless: bool,
    pub finished_at: Option<u64>,
    pub killed: bool,
    finishes: u32,
    pub outcome: Option<Outcome>,
    pub now: Time,
    pub failures: Failures,
    granted: BTreeSet<ContainerId>,
    launched: BTreeMap<ContainerId, TaskId>,
    /// The container that a task was last given.
    current: BTreeMap<TaskId, ContainerId>,
    given_back: BTreeSet<ContainerId>,
    told_ended: BTreeSet<ContainerId>,
    /// Given back or told dead: nobody may count on them any more.
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
    /// How often everybody started again, or was told of others.
    pub broken: u64,
    /// What can have caused it, containers that were launched left aside.
    pub causes: u64,
    /// Agents that have said that they are ready for a round.
    pub ready: BTreeSet<(ContainerId, u32)>,
    /// Programs that the master knows to have succeeded.
    pub done: BTreeSet<(ContainerId, u32)>,
    /// Tasks that ran when their role was made smaller, without them.
    pub dropped: BTreeSet<TaskId>,
    /// A role was made smaller by the event at hand.
    dropping: bool,
    pub late: Late,
    /// Roles for which others wait, and need not any more.
    begun: BTreeSet<RoleName>,
    /// A round has begun.
    round_began: bool,
    /// Attempts that were told to run and are not over for their peers, and where.
    pub speak: BTreeMap<TaskId, (ContainerId, Run)>,
    /// Attempts that are.
    pub silent: BTreeSet<(TaskId, u32)>,
}

impl Checks {
    pub fn new(plan: &Plan) -> Checks {
        Checks {
            spec: plan.spec.clone(),
            calm: plan.hostile == 0,
            blameless: plan.faults.blameless(),
            finished_at: None,
            killed: false,
            finishes: 0,
            outcome: None,
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
            dropping: false,
            late: Late::default(),
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
        for action in actions {
            match action {
                Action::Launch {
                    container, task, ..
                } => {
                    assert!(self.outcome.is_none(), "launched after the end");
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
                Action::Record(fact) => self.recorded(&fact.what, event),
                Action::Tell(_) => {}
                Action::Began(_) => self.round_began = true,
                Action::Over(run) => self.is_over(run),
                Action::Changed(cluster) => {
                    self.sizes_are_right(Some(event), cluster);
                    self.members_are_there(job, cluster);
                }
                Action::Finish(outcome) => {
                    assert_eq!(Some(outcome), self.outcome.as_ref(), "finished as decided");
                }
            }
        }
        self.ends_are_said(job, actions);
        self.changes_have_causes(job, event, actions);
        self.nobody_is_late(job, event, actions);
        let next = job.next_deadline();
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
            Event::Quieted { container } => {
                let now = self.now;
                self.quiet.entry(container.clone()).or_insert(now);
            }
            Event::Ready { container, .. }
            | Event::Unready { container, .. }
            | Event::Started { container, .. }
            | Event::Heard { container } => self.heard(container),
            Event::Exited {
                container, exit, ..
            } => {
                self.heard(container);
                if exit.container_signalled {
                    self.failures.excuse();
                    self.signalled.insert(container.clone());
                }
            }
            Event::Saved { container, error } => {
                self.heard(container);
                if error.is_none() {
                    self.saved.insert(container.clone());
                }
            }
            Event::Recovered { .. } => self.quiet.clear(),
            Event::Counted { .. }
            | Event::Launched { .. }
            | Event::LaunchFailed { .. }
            | Event::Warned { .. }
            | Event::Impossible { .. }
            | Event::Killed { .. }
            | Event::Scaled { .. }
            | Event::Ticked => {}
        }
    }

    /// Which roles have begun, where others wait for that: every task has run, or is over.
    fn watch_beginnings(&mut self, job: &Job) {
        let spec = self.spec.clone();
        let waited = |name: &RoleName| spec.roles.iter().any(|role| role.after.contains(name));
        if !spec.roles.iter().any(|role| waited(&role.name)) {
            return;
        }
        let tasks = job.view().tasks;
        for role in spec.roles.iter().filter(|role| waited(&role.name)) {
            let mut own = tasks.iter().filter(|task| task.task.role == role.name);
            let begun = own.all(|task| match task.state {
                TaskState::Succeeded | TaskState::Failed | TaskState::Stopped => true,
                // One that was dropped leaves; nobody waits for it.
                TaskState::Stopping => true,
                _ => self.last.contains_key(&task.task),
            });
            if begun {
                self.begun.insert(role.name.clone());
            }
        }
    }

    /// Who begins after others does.
    fn comes_after_others(&self, task: &TaskId) {
        let mut roles = self.spec.roles.iter();
        let spec = roles.find(|spec| spec.name == task.role);
        let after = spec.map(|spec| &spec.after[..]).unwrap_or_default();
        let early = after.iter().find(|name| !self.begun.contains(*name));
        assert!(
            early.is_none(),
            "{task} was launched before {early:?} has begun"
        );
        let beside = self.stands_beside(&task.role) && self.spec.gang.together;
        assert!(
            !beside || self.round_began,
            "{task} was launched and the job has not begun"
        );
    }

    /// A new master gives nobody up whom the old one had heard, for what nobody could do without a master.
    fn no_fault_of_theirs(&self, event: &Event, actions: &[Action]) {
        let Event::Recovered { live } = event else {
            return;
        };
        let ending = self.outcome.is_some()
            || actions.iter().any(|action| match action {
                Action::Record(fact) => matches!(fact.what, What::JobEnding { .. }),
                _ => false,
            });
        for action in actions {
            if let Action::Release(id) = action {
                let ours = self.ran.contains(id) && !self.condemned.contains(id);
                let alive = live.contains(id) && !self.signalled.contains(id);
                assert!(
                    ending || !ours || !alive,
                    "given up for the master's absence: {id}"
                );
            }
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

    fn recorded(&mut self, what: &What, event: &Event) {
        match what {
            What::JobEnding { outcome } => {
                assert!(self.outcome.is_none(), "decided twice");
                self.outcome = Some(outcome.clone());
                self.decided(outcome);
            }
            What::RoleScaled { role, to, .. } => {
                self.dropping = true;
                self.failures.scaled(role, *to);
            }
            What::RoundBroken { .. } => self.dropping = false,
            What::AttemptStopped { task, .. } => {
                if self.dropping {
                    self.dropped.insert(task.clone());
                }
            }
            What::AttemptStarted { task, .. } => {
                self.dropped.remove(task);
            }
            What::AttemptEnded {
                task,
                attempt,
                round,
                container,
                ending,
                next,
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
                    assert_eq!(*next, Next::Done, "an attempt failed in a calm world");
                }
            }
            What::JobStarted
            | What::RoundStarted { .. }
            | What::MembersChanged { .. }
            | What::GangGaveBack { .. }
            | What::NodeBlamed { .. }
            | What::NodeForgiven { .. }
            | What::MemoryGrew { .. }
            | What::MasterRecovered { .. }
            | What::JobFinished { .. } => {}
        }
    }

    fn ending_is_true(&self, container: &ContainerId, ending: &Ending, event: &Event) {
        match ending {
            Ending::Silent { .. } => {
                let quiet = self.quiet.contains_key(container);
                assert!(quiet, "called silent after it spoke");
            }
            Ending::Exited { .. } | Ending::Signalled { .. } => {
                if !self.signalled.contains(container) {
                    return;
                }
                let ended = match event {
                    Event::Ended { containers } => containers.iter().any(|(id, end)| {
                        id == container && matches!(end, ContainerEnd::Completed { .. })
                    }),
                    _ => false,
                };
                assert!(
                    ended,
                    "a program killed with its container was not judged by the container's end"
                );
            }
            _ => {}
        }
    }

    /// How the job ends is decided: it must be so.
    fn decided(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Succeeded => assert!(self.success(), "success without success"),
            Outcome::Killed { .. } => assert!(self.killed, "killed by nobody"),
            Outcome::Failed(Cause::Task { ending, .. }) => {
                assert!(
                    counts(ending) || self.failures.charges_node(ending),
                    "failed for nobody's fault: {ending}"
                );
                assert!(!self.blameless, "failed for nobody's fault: {ending}");
            }
            Outcome::Failed(Cause::RanTooLong { limit }) => {
                assert!(Time(0) + *limit <= self.now, "too long before its time");
            }
            Outcome::Failed(Cause::NoContainers { .. }) => {
                assert!(!self.calm, "no containers in a calm world");
            }
        }
    }

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
        assert!(
            !self.condemned.contains(container),
            "a container that is gone is counted on"
        );
        assert_eq!(
            self.launched.get(container),
            Some(task),
            "an order for another task"
        );
        assert_eq!(
            job.task_of(container).as_ref(),
            Some(task),
            "an order for another task"
        );
    }

    fn told_to_run(&mut self, run: &Run) {
        let Some(role) = self.spec.role(&run.task.role) else {
            panic!("told to run for a role that there is not");
        };
        if !self.spec.gang.together || role.restart.scope == Scope::Task || role.is_beside() {
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
            // Those who follow do without what nobody needs any more.
            let spare = self.late.followed && role.completion == Completion::Service;
            if role.tolerate > 0 || role.completion == Completion::Any || spare || role.is_beside()
            {
                continue;
            }
            let member = run.cluster.role(role.name.as_str());
            let members = |it: &&Member| it.indexes().zip(it.endpoints.clone()).collect::<Vec<_>>();
            for (index, endpoint) in member.iter().flat_map(members) {
                let task = TaskId {
                    role: role.name.clone(),
                    index,
                };
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
        if let Some((other, _)) = self.live.get(task) {
            panic!("two programs of {task} run: in c{other} and in c{at}");
        }
        let whole = |role: &RoleSpec| {
            let complete = role.tolerate == 0 && role.completion != Completion::Any;
            complete && role.restart.scope == Scope::Job && !self.is_told(role)
        };
        // Those who follow others may begin a round of their own beside what is left of an older one.
        let alone = [Completion::Follows, Completion::Beside].contains(&self.completion(task));
        let mut roles = self.spec.roles.iter().filter(|role| !role.is_beside());
        if self.spec.gang.together && !alone && roles.all(whole) {
            let mut live = self.live.iter();
            let old = live.find(|(task, (_, old))| {
                *old < round && self.completion(task) != Completion::Beside
            });
            assert!(
                old.is_none(),
                "round {round} runs beside an older one: {old:?}"
            );
        }
        assert!(!containers[at].dead, "a program starts in a dead container");
        self.live.insert(task.clone(), (at, round));
        self.last.insert(task.clone(), (at, round, None));
    }

    /// How many containers were launched.
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

    /// The newest round that anybody was told to run in.
    pub fn newest_round(&self) -> Option<u32> {
        self.rounds.keys().next_back().copied()
    }

    /// The cluster of that round.
    pub fn newest_cluster(&self) -> Option<&Cluster> {
        self.rounds.values().next_back().map(|it| &**it)
    }

    /// Whether any program is known to have succeeded.
    pub fn any_done(&self) -> bool {
        !self.done.is_empty()
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
        let silence = self.spec.deadlines.silence;
        for (container, since) in &self.quiet {
            let late = *since + silence < Time(now) && self.ran.contains(container);
            let stopped = !late || matches!(job.order(container), Order::Stop { .. });
            assert!(stopped, "a silent container is counted on");
        }
    }

    pub fn released(&mut self, container: &ContainerId) {
        self.given_back.insert(container.clone());
    }

    pub fn finished(&mut self, now: u64, outcome: &Outcome) {
        self.finishes += 1;
        assert_eq!(self.finishes, 1, "finished twice");
        assert_eq!(Some(outcome), self.outcome.as_ref(), "finished as decided");
        self.finished_at.get_or_insert(now);
    }

    /// A new master finds that the job was over when the old one died.
    pub fn found_finished(&mut self, now: u64, outcome: Option<Outcome>) {
        assert_eq!(outcome, self.outcome, "finished as decided");
        self.finished_at.get_or_insert(now);
    }

    /// Everything is over.
    pub fn at_the_end(&self, containers: &[Container], shell: &Shell) {
        assert!(self.finished_at.is_some(), "the job never finished");
        for container in &self.granted {
            assert!(
                self.given_back.contains(container) || self.told_ended.contains(container),
                "{container} was not given back"
            );
        }
        for container in containers.iter().filter(|it| self.granted.contains(&it.id)) {
            assert!(container.dead, "{} still runs", container.id);
        }
        assert!(self.live.is_empty(), "a program still runs");
        let job = shell.job.as_ref().expect("somebody is there at the end");
        assert!(
            job.finished() && job.asks().asks.is_empty(),
            "nothing is asked for"
        );
        if self.calm {
            let tasks = self.spec.tasks() as usize;
            // Who begins after others may never be asked for.
            let waits = |role: &RoleSpec| !role.after.is_empty() || role.is_beside();
            let wait = self.spec.roles.iter().any(waits);
            for used in [self.granted.len(), self.launched.len()] {
                let few = used == tasks || (wait && used < tasks);
                assert!(few, "a calm job wastes no container: {used} of {tasks}");
            }
            let failed = matches!(self.outcome, Some(Outcome::Failed(_)));
            assert!(!failed, "a calm job fails");
        }
    }
}
