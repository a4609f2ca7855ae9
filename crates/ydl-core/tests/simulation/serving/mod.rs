//! Jobs that serve: gateways, replicas, and what users and the cluster do to them.

pub mod gateway;
pub mod service;

use super::world::{Happening, World};
use ydl_core::{ContainerExit, Event, RoleName, Span, serve::RouteState, spec::RevisionSpec};

/// Time in milliseconds after the last fault until all replicas serve.
const SERVES_AFTER: u64 = 300_000;
const GATEWAYS: usize = 2;

/// Programs of a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quality {
    Good,
    NeverServes,
    Crashes,
    /// It serves errors, and is judged bad.
    Errs,
}

impl World {
    pub fn begin_serving(&mut self) {
        if !self.plan.serves() {
            return;
        }
        for gateway in 0..GATEWAYS {
            self.gateways.add();
            self.after(100 + gateway as u64, Happening::GatewayReturns { gateway });
        }
    }

    fn server(&self) -> RoleName {
        self.plan.spec.roles[0].name.clone()
    }

    /// A replica's program has started: it loads, serves, and may fail.
    pub fn replica_starts(&mut self, at: usize, round: u32, plan: u64) {
        let quality = self.checks.service.quality_in(&self.containers[at].id);
        let loads = self.random.from(200, 4_000);
        if quality != Quality::NeverServes && quality != Quality::Crashes {
            self.after(loads, Happening::ProbeChanges { at, round, serves: true });
        }
        let fails = self.faults().fails;
        let fate = match quality {
            Quality::Crashes => Some((super::report::Fate::Code(2), 3_000)),
            _ if self.struck(fails, 10) => Some((super::report::Fate::Code(1), 30_000)),
            _ if self.struck(fails, 5) => Some((super::report::Fate::Code(0), 30_000)),
            _ => None,
        };
        if let Some((fate, most)) = fate {
            let wait = self.random.from(100, most);
            self.after(wait, Happening::ProgramEnds { at, round, fate, plan });
        }
    }

    pub fn probe_changes(&mut self, at: usize, round: u32, serves: bool) {
        let Some(agent) = self.agent(at) else {
            return;
        };
        let hung = agent.hung;
        let program = agent.program.as_mut().filter(|it| it.round == round && !it.stopping);
        let Some(program) = program.filter(|_| !hung) else {
            return;
        };
        program.changes += 1;
        let change = program.changes;
        self.report(at, super::report::Report::Probed { change, serves });
        let flaps = self.faults().unready;
        if !serves || self.struck(flaps, 30) {
            let wait = self.random.from(500, 6_000);
            self.after(wait, Happening::ProbeChanges { at, round, serves: !serves });
        }
    }

    /// Something happens to the service.
    pub fn strike_service(&mut self) {
        let role = self.server();
        match self.random.below(10) {
            0..=2 => self.update(),
            3 => self.judge(),
            4 if self.random.percent(30) => self.handle(Event::UndoRequested { role }),
            5 => self.autoscale(),
            6 => self.handle(Event::Wanted { role }),
            7 if self.plan.faults.nodes_die => self.drain_node(),
            8 => {
                let gateway = self.random.below(GATEWAYS as u64) as usize;
                self.gateways.dies(gateway);
                let wait = self.random.from(500, 8_000);
                self.after(wait, Happening::GatewayReturns { gateway });
            }
            9 if self.plan.faults.master_dies => self.master_dies(),
            _ => {}
        }
    }

    fn update(&mut self) {
        let role = self.server();
        let qualities = [
            Quality::Good,
            Quality::Good,
            Quality::Good,
            Quality::NeverServes,
            Quality::Crashes,
            Quality::Errs,
        ];
        let quality = *self.random.pick(&qualities);
        let canary = self.random.percent(25).then(|| self.random.from(1, 50) as u32);
        let Some(job) = &self.shell.job else {
            return;
        };
        let revision = self.checks.service.next_revision();
        if job.check_update(&role, revision, canary).is_ok() && job.outcome().is_none() {
            self.checks.service.plan_revision(revision, quality);
        }
        let spec = &self.plan.spec.roles[0];
        let spec = RevisionSpec {
            command: spec.command.clone(),
            environment: None,
            env: spec.env.clone(),
            inputs: Vec::new(),
        };
        self.handle(Event::Updated { role, revision, spec: Box::new(spec), canary });
    }

    /// The error rates of an update are compared, or a user promotes it.
    fn judge(&mut self) {
        let role = self.server();
        if let Some((revision, quality)) = self.checks.service.open_revision() {
            let good = quality == Quality::Good;
            self.handle(Event::Judged { role, revision, good });
        }
    }

    /// An update that nothing else ends is judged: a canary, or one that serves errors.
    pub fn judge_open(&mut self) {
        let open = self.checks.service.open_revision();
        if open.is_some_and(|(_, it)| matches!(it, Quality::Good | Quality::Errs)) {
            self.judge();
        }
    }

    fn autoscale(&mut self) {
        let role = self.server();
        let Some(limits) = self.plan.spec.roles[0].serve.as_ref().map(|it| it.replicas) else {
            return;
        };
        let instances = self.random.from(u64::from(limits.min), u64::from(limits.max)) as u32;
        let routes = self.shell.job.as_ref().map(|job| job.routes().replicas.clone());
        let idle = routes.unwrap_or_default().into_iter().map(|route| route.task).collect();
        self.handle(Event::Scaled { role, instances, because: "2.00 requests".into(), idle });
    }

    /// Containers of a node are taken, after a notice.
    fn drain_node(&mut self) {
        let node = self.random.below(self.nodes.len() as u64) as usize;
        let alive = |at: &usize| {
            let it = &self.containers[*at];
            it.node == node && it.agent.is_some() && it.allocated
        };
        let all: Vec<usize> = (0..self.containers.len()).filter(alive).collect();
        let time = self.random.from(5_000, 40_000);
        let containers: Vec<_> = all.iter().map(|at| self.containers[*at].id.clone()).collect();
        if containers.is_empty() {
            return;
        }
        for at in all {
            let end = ContainerExit::Released;
            self.after(time, Happening::ContainerSignalled { at, end });
        }
        self.handle(Event::NodeDraining { containers, time: Span(time) });
    }

    pub fn plan_must_serve(&mut self) {
        self.after(SERVES_AFTER, Happening::MustServe);
        for wait in [60_000, 120_000] {
            self.after(wait, Happening::Judgement);
        }
    }

    /// Long after the last fault, all replicas serve, and no update is open.
    pub fn must_serve(&mut self) {
        let role = self.server();
        if let Some(job) = self.shell.job.as_ref().filter(|job| job.outcome().is_none()) {
            assert!(!job.is_updating(&role), "an update does not end");
            let size = job.role_views()[0].instances;
            let routes = job.routes().replicas.iter();
            let serving = routes.filter(|it| it.state == RouteState::Serving).count() as u32;
            let view = job.view();
            assert_eq!(serving, size, "replicas do not serve: {} {:?}", view.reason, view.tasks);
            assert_eq!(job.routes().replicas.len() as u32, size, "a replica drains forever");
        }
        self.client_kills(false);
    }
}
