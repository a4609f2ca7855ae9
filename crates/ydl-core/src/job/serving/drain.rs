//! Probes and draining: a replica leaves the routes before its program is stopped.

use super::{Job, Mutant, Phase, RouteState, Stage, TaskKey};
use crate::{
    action::Action,
    ending::TimeoutKind,
    history::HistoryKind,
    id::ContainerId,
    time::{Span, Time},
};
use alloc::vec::Vec;

/// Replica that was removed and finishes its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::job) struct Draining {
    /// Time at which it is stopped at the latest.
    until: Time,
    /// First version of the routes without it.
    version: u64,
}

impl Job {
    /// Records that the probe of a replica succeeds or fails now.
    pub(in crate::job) fn on_probed(&mut self, container: &ContainerId, change: u32, serves: bool) {
        let Some(key) = self.record_report(container) else {
            return;
        };
        if self.serving(key.role).is_none()
            || !matches!(self.task(key).phase, Phase::Running { .. })
        {
            return;
        }
        let late = self.mutant.is(Mutant::BelievesLateProbes);
        let replica = &mut self.task_mut(key).replica;
        if change <= replica.probed && !late {
            return;
        }
        replica.probed = change;
        replica.served = serves;
        if serves {
            replica.has_served = true;
            replica.loading_since = None;
            let revision = replica.revision;
            if let Some(serving) = self.serving_mut(key.role) {
                serving.proven |= serving.stable == revision;
            }
        }
        self.arm(key);
    }

    /// Stops a replica that has finished its requests, if no gateway has older routes.
    pub(in crate::job) fn on_drained(
        &mut self,
        container: &ContainerId,
        version: u64,
        out: &mut Vec<Action>,
    ) {
        let Some(key) = self.task_in(container) else {
            return;
        };
        let trusts = self.mutant.is(Mutant::IgnoresRouteVersion);
        let draining = self.task(key).replica.draining;
        if draining.is_some_and(|draining| version >= draining.version || trusts) {
            self.remove_task(key, out);
        }
    }

    /// Prepares for the loss of containers. Their replicas are replaced first if there is time, and
    /// then drained.
    pub(in crate::job) fn on_leaving(
        &mut self,
        container: &ContainerId,
        time: Option<Span>,
        out: &mut Vec<Action>,
    ) {
        let Some(key) = self.task_in(container) else {
            return;
        };
        let Some(drain) = self.serve(key.role).map(|serve| serve.drain) else {
            return;
        };
        let task = self.task(key);
        if task.dropped || task.replica.leaving.is_some() || self.stage != Stage::Active {
            return;
        }
        let by = self.now + Span(time.map_or(0, |time| time.0.saturating_sub(drain.0)));
        self.task_mut(key).replica.leaving = Some(by);
        if by <= self.now {
            self.retire(key, out);
        } else {
            self.arm(key);
        }
    }

    pub(super) fn drain(&mut self, key: TaskKey, out: &mut Vec<Action>) {
        let drain = self.serve(key.role).map_or(Span(0), |serve| serve.drain);
        let draining = Draining { until: self.now + drain, version: self.routes.version + 1 };
        self.task_mut(key).replica.draining = Some(draining);
        let (task, attempt) = (self.id(key), self.task(key).attempt);
        self.record(HistoryKind::ReplicaDraining { task, attempt }, out);
        self.arm(key);
    }

    /// Returns the deadline of a replica, besides those of its phase.
    pub(in crate::job) fn replica_deadline(&self, key: TaskKey) -> Option<Time> {
        let serve = self.serve(key.role)?;
        let task = self.task(key);
        let runs = matches!(task.phase, Phase::Running { .. });
        let replica = &task.replica;
        let endless = self.mutant.is(Mutant::IgnoresDrainTimeout);
        let drained = replica.draining.map(|it| it.until).filter(|_| !endless);
        let leaves = replica.leaving.filter(|_| !task.dropped && task.phase.container().is_some());
        let loads = replica.loading_since.filter(|_| runs && !task.dropped);
        let loaded = loads.map(|since| since + serve.within);
        [drained, leaves, loaded].into_iter().flatten().min()
    }

    /// Handles an expired deadline of a replica. Returns false if another one has expired.
    pub(in crate::job) fn on_replica_timer(&mut self, key: TaskKey, out: &mut Vec<Action>) -> bool {
        if self.replica_deadline(key).is_none_or(|at| at > self.now) {
            return false;
        }
        let now = self.now;
        let replica = &self.task(key).replica;
        if replica.draining.is_some_and(|it| it.until <= now) {
            self.remove_task(key, out);
        } else if replica.leaving.is_some_and(|by| by <= now) && !self.task(key).dropped {
            self.retire(key, out);
        } else {
            self.on_timeout(key, TimeoutKind::Serve, out);
        }
        self.arm(key);
        true
    }

    /// Restarts the waits of a replica: nothing could be reported without a master.
    pub(in crate::job) fn restart_replica_waits(&mut self, key: TaskKey) {
        let now = self.now;
        let drain = self.serve(key.role).map_or(Span(0), |serve| serve.drain);
        let replica = &mut self.task_mut(key).replica;
        replica.loading_since = replica.loading_since.map(|_| now);
        if let Some(draining) = &mut replica.draining {
            draining.until = now + drain;
        }
    }

    /// Returns the use of a replica that has served.
    pub(super) fn route_state(&self, key: TaskKey) -> Option<RouteState> {
        let task = self.task(key);
        let stopping = matches!(task.phase, Phase::Stopping { .. });
        let runs = matches!(task.phase, Phase::Running { .. });
        if stopping && self.mutant.is(Mutant::RoutesToStopped) {
            return Some(RouteState::Serving);
        }
        match &task.replica {
            _ if !runs => None,
            it if it.draining.is_some() => Some(RouteState::Draining),
            it if it.served => Some(RouteState::Serving),
            _ => None,
        }
    }
}
