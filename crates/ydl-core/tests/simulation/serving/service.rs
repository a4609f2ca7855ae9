//! Invariants of a service: who gets requests, how many serve, and how updates go.

use super::{super::checks::Checks, Quality};
use std::collections::{BTreeMap, BTreeSet};
use ydl_core::{
    Action, ContainerId, Event, HistoryKind, Job, JobSpec, Order, RolloutEnd, Time,
    serve::{RouteState, RouteTable},
    spec::Serve,
};

/// Knowledge about a service.
#[derive(Default)]
pub struct Service {
    spec: Option<Serve>,
    size: u32,
    qualities: BTreeMap<u32, Quality>,
    revisions: BTreeMap<ContainerId, u32>,
    stable: u32,
    /// A stable revision has served.
    proven: bool,
    previous: Option<u32>,
    open: Option<Open>,
    /// Containers whose probe succeeds.
    serves: BTreeSet<ContainerId>,
    has_served: BTreeSet<ContainerId>,
    /// Number of the last change of each probe.
    changes: BTreeMap<ContainerId, u32>,
    /// Draining containers, since when.
    drains: BTreeMap<ContainerId, Time>,
    /// Containers that were told to stop.
    gone: BTreeSet<ContainerId>,
    /// Containers that will be taken, and by when they may wait.
    leaving: BTreeMap<ContainerId, Time>,
    routes: RouteTable,
    /// A container said to be drained that a gateway still sends requests to.
    pub still_used: Option<ContainerId>,
}

/// An update whose outcome is open.
struct Open {
    revision: u32,
    /// Number of replicas that test it.
    batch: u32,
    /// Time since which its replicas have all served once.
    all_since: Option<Time>,
}

impl Service {
    pub fn new(spec: &JobSpec) -> Service {
        let serve = spec.roles[0].serve.clone();
        Service { spec: serve, size: spec.roles[0].instances, stable: 1, ..Service::default() }
    }

    pub fn next_revision(&self) -> u32 {
        self.qualities.keys().next_back().map_or(2, |last| last + 1)
    }

    pub fn plan_revision(&mut self, revision: u32, quality: Quality) {
        self.qualities.insert(revision, quality);
    }

    pub fn open_revision(&self) -> Option<(u32, Quality)> {
        let revision = self.open.as_ref()?.revision;
        Some((revision, self.qualities[&revision]))
    }

    pub fn quality_in(&self, container: &ContainerId) -> Quality {
        let revision = self.revisions.get(container);
        let quality = revision.and_then(|revision| self.qualities.get(revision));
        quality.copied().unwrap_or(Quality::Good)
    }

    fn learn(&mut self, now: Time, event: &Event, drain: u64) {
        match event {
            Event::Served { container, change } if self.changed(container, *change) => {
                self.serves.insert(container.clone());
                self.has_served.insert(container.clone());
            }
            Event::Unserved { container, change } if self.changed(container, *change) => {
                self.serves.remove(container);
            }
            Event::PreemptionWarned { container } => {
                self.leaving.entry(container.clone()).or_insert(now);
            }
            Event::NodeDraining { containers, time } => {
                for container in containers {
                    let by = Time(now.0 + time.0.saturating_sub(drain));
                    self.leaving.entry(container.clone()).or_insert(by);
                }
            }
            Event::MasterRecovered { .. } => {
                self.drains.values_mut().for_each(|since| *since = now);
            }
            _ => {}
        }
    }

    /// Returns true if no later change of this probe is known.
    fn changed(&mut self, container: &ContainerId, change: u32) -> bool {
        let last = self.changes.entry(container.clone()).or_default();
        let new = change > *last;
        *last = change.max(*last);
        new
    }

    fn serving<'a>(&'a self, routes: &'a RouteTable) -> impl Iterator<Item = &'a ContainerId> {
        let serving = routes.replicas.iter().filter(|it| it.state == RouteState::Serving);
        serving.map(|it| &it.container)
    }

    /// Number of replicas that serve and stay.
    fn ready(&self, routes: &RouteTable) -> u32 {
        self.serving(routes).filter(|it| !self.leaving.contains_key(*it)).count() as u32
    }
}

impl Checks {
    pub fn service_is_kept(&mut self, job: &Job, event: &Event, actions: &[Action]) {
        let Some(serve) = self.service.spec.clone() else {
            return;
        };
        let now = self.now;
        self.service.learn(now, event, serve.drain.0);
        for action in actions {
            if let Action::Launch { container, .. } = action
                && let Some((revision, _)) = job.revision_in(container)
            {
                self.service.revisions.insert(container.clone(), revision);
            }
        }
        if self.outcome.is_none() {
            self.updates_are_orderly(job, event, actions, &serve);
            self.removals_are_gentle(job, event, actions, &serve);
        }
        self.routes_are_true(job);
        let stable = self.service.stable;
        let mut routes = job.routes().replicas.iter();
        self.service.proven |= stable > 1 || routes.any(|route| route.revision == stable);
        self.failures.outlives = self.service.proven || self.service.open.is_some();
        self.service.routes = job.routes().clone();
        let told = self.service.revisions.keys();
        let told = told.filter(|it| matches!(job.order(it), Order::Stop { .. }));
        let told: Vec<_> = told.cloned().collect();
        self.service.gone.extend(told);
    }

    /// Only attempts that run and serve get requests, and each change has its version.
    fn routes_are_true(&mut self, job: &Job) {
        let service = &self.service;
        let (before, routes) = (&service.routes, job.routes());
        for route in &routes.replicas {
            let runs = matches!(job.order(&route.container), Order::Run(run)
                if run.task == route.task && run.attempt == route.attempt);
            assert!(runs, "a route to an attempt that does not run: {route:?}");
            let serves = service.serves.contains(&route.container);
            let drains = route.state == RouteState::Draining;
            assert!(serves || drains, "a route to a replica that does not serve: {route:?}");
        }
        let same = before.replicas == routes.replicas;
        assert_eq!(same, before.version == routes.version, "a version for each change of routes");
        assert!(before.version <= routes.version, "routes of an older version");
    }

    fn updates_are_orderly(&mut self, job: &Job, event: &Event, actions: &[Action], serve: &Serve) {
        let now = self.now;
        let judged = match event {
            Event::Judged { revision, good, .. } => Some((*revision, *good)),
            _ => None,
        };
        if let (Some((revision, false)), Some(open)) = (judged, &self.service.open)
            && open.revision == revision
        {
            let ends = actions.iter().any(|action| match action {
                Action::Record(fact) => matches!(
                    &fact.kind,
                    HistoryKind::RolloutEnded { end: RolloutEnd::RolledBack { .. }, .. }
                ),
                _ => false,
            });
            assert!(ends, "revision {revision} was judged bad and is kept");
        }
        for action in actions {
            let Action::Record(fact) = action else {
                continue;
            };
            match &fact.kind {
                HistoryKind::RoleScaled { to, .. } => self.service.size = *to,
                HistoryKind::RolloutStarted { revision, .. } => {
                    assert!(self.service.open.is_none(), "an update during an update");
                    let (revision, batch) = (*revision, self.batch(serve));
                    self.service.open = Some(Open { revision, batch, all_since: None });
                }
                HistoryKind::RolloutEnded { revision, end, .. } => {
                    let open = self.service.open.take();
                    match (end, open) {
                        (RolloutEnd::Promoted, Some(open)) => {
                            assert_eq!(open.revision, *revision, "another update is promoted");
                            let watched =
                                open.all_since.is_some_and(|at| at + serve.update.watch <= now);
                            let judged = judged == Some((*revision, true));
                            assert!(watched || judged, "promoted before the watch is over");
                            self.service.previous = Some(self.service.stable);
                            self.service.stable = *revision;
                        }
                        (RolloutEnd::Promoted, None) => panic!("promoted without an update"),
                        (RolloutEnd::RolledBack { .. }, Some(open)) => {
                            assert_eq!(open.revision, *revision, "another update is rolled back");
                        }
                        (RolloutEnd::RolledBack { .. }, None) => {
                            assert_eq!(self.service.stable, *revision, "an old revision is undone");
                            let previous = self.service.previous.take();
                            self.service.stable = previous.expect("there is one to return to");
                        }
                    }
                }
                _ => {}
            }
        }
        let routes = job.routes();
        if let Some(open) = &mut self.service.open {
            let candidates = routes
                .replicas
                .iter()
                .filter(|it| it.state == RouteState::Serving && it.revision == open.revision);
            if candidates.count() as u32 >= open.batch {
                open.all_since.get_or_insert(now);
            }
        }
    }

    /// Number of replicas that test a new revision.
    fn batch(&self, serve: &Serve) -> u32 {
        let batch =
            if serve.update.surge > 0 { serve.update.surge } else { serve.update.unavailable };
        batch.min(self.service.size.max(1))
    }

    /// Replicas are drained before they are stopped, and enough others serve.
    fn removals_are_gentle(&mut self, job: &Job, event: &Event, actions: &[Action], serve: &Serve) {
        let now = self.now;
        let routes = job.routes();
        let before = self.service.routes.clone();
        let ended: BTreeSet<_> = actions
            .iter()
            .filter_map(|action| match action {
                Action::Record(fact) => match &fact.kind {
                    HistoryKind::AttemptEnded { container, .. } => Some(container.clone()),
                    _ => None,
                },
                _ => None,
            })
            .collect();
        let stops = |container: &ContainerId| {
            let told = matches!(job.order(container), Order::Stop { .. });
            told && !ended.contains(container) && !is_end_of(event, container)
        };
        for route in &before.replicas {
            if !stops(&route.container) || matches!(event, Event::MasterRecovered { .. }) {
                continue;
            }
            let since = self.service.drains.get(&route.container).copied();
            let over = since.is_some_and(|since| since + serve.drain <= now);
            let drained =
                matches!(event, Event::Drained { container, .. } if *container == route.container);
            let drained = drained && since.is_some();
            assert!(over || drained, "stopped without a drain: {route:?}");
            let used = self.service.still_used.as_ref() == Some(&route.container);
            assert!(over || !used, "stopped while a gateway sends requests: {route:?}");
        }
        self.loading_is_kept(&stops, event);
        let least = self.service.size.saturating_sub(serve.update.unavailable);
        let ready = self.service.ready(routes);
        for route in routes.replicas.iter().filter(|it| it.state == RouteState::Draining) {
            let new = !self.service.drains.contains_key(&route.container);
            self.service.drains.entry(route.container.clone()).or_insert(now);
            let since = self.service.drains[&route.container];
            assert!(since + serve.drain > now, "a drain without an end: {route:?}");
            let served = before
                .replicas
                .iter()
                .any(|it| it.container == route.container && it.state == RouteState::Serving);
            let serves = self.service.serves.contains(&route.container);
            if !new || !served || !serves {
                continue;
            }
            let by = self.service.leaving.get(&route.container);
            let excused = by.is_some_and(|by| *by <= now);
            assert!(excused || ready >= least, "{ready} of {least} are ready after {event:?}");
            self.old_ones_are_kept(job, route.revision, by.is_some(), serve);
        }
    }

    /// While an update is open, the old replicas stay.
    fn old_ones_are_kept(&self, job: &Job, revision: u32, leaves: bool, serve: &Serve) {
        let role = &self.spec.roles[0].name;
        let old = revision == self.service.stable && self.service.open.is_some() && !leaves;
        let Some(stable) = job.revisions(role).into_iter().find(|it| it.revision == revision)
        else {
            return;
        };
        let batch = self.service.open.as_ref().map_or(0, |open| open.batch);
        let makes_room = batch.saturating_sub(serve.update.surge);
        let least = self.service.size.saturating_sub(makes_room);
        let kept = stable.replicas;
        assert!(!old || kept >= least, "{kept} of {least} old replicas while an update is watched");
    }

    /// A replica of a wanted revision is not removed while it loads.
    fn loading_is_kept(&self, stops: &impl Fn(&ContainerId) -> bool, event: &Event) {
        if matches!(event, Event::MasterRecovered { .. }) {
            return;
        }
        let service = &self.service;
        let candidate = service.open.as_ref().map(|open| open.revision);
        for (container, revision) in &service.revisions {
            let wanted = *revision == service.stable || candidate == Some(*revision);
            let known = service.has_served.contains(container)
                || service.leaving.contains_key(container)
                || service.gone.contains(container);
            if wanted && !known {
                assert!(!stops(container), "{container} was removed while it loaded");
            }
        }
    }
}

/// The event says how the program of a container ended.
fn is_end_of(event: &Event, container: &ContainerId) -> bool {
    match event {
        Event::Exited { container: it, .. } => it == container,
        Event::Ended { containers } => containers.iter().any(|(it, _)| it == container),
        _ => false,
    }
}
