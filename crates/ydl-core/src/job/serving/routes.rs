//! Route table of the job.

use super::{Job, Mutant, TaskKey};
use crate::serve::{Route, RouteState};
use alloc::vec::Vec;

impl Job {
    /// Updates the route table after an event. Its version counts the changes, so a replayed job
    /// has the same.
    pub(in crate::job) fn update_routes(&mut self) {
        if self.spec.roles.iter().all(|role| role.serve.is_none()) {
            return;
        }
        let mut replicas = Vec::new();
        for role in (0..self.roles.len()).filter(|role| self.serving(*role).is_some()) {
            replicas.extend(self.routes_of(role));
        }
        if replicas != self.routes.replicas {
            let silent = self.mutant.is(Mutant::KeepsRouteVersion)
                && replicas.len() == self.routes.replicas.len();
            self.routes.version += u64::from(!silent);
            self.routes.replicas = replicas;
        }
    }

    fn routes_of(&self, role: usize) -> Vec<Route> {
        let tasks = 0..self.roles[role].tasks.len() as u32;
        let keys = tasks.map(|index| TaskKey { role, index });
        let mut routes: Vec<Route> = keys.filter_map(|key| self.route_of(key)).collect();
        let serving = self.serving(role);
        let canary = serving.and_then(|it| it.rollout.as_ref());
        let canary = canary.and_then(|rollout| Some((rollout.candidate, rollout.canary?)));
        let rejected = serving.and_then(|it| it.rejected);
        let count = |routes: &[Route], revision: u32| {
            let gets = routes.iter().filter(|it| it.state == RouteState::Serving);
            let (own, others): (Vec<_>, Vec<_>) = gets.partition(|it| it.revision == revision);
            (own.len() as u32, others.len() as u32)
        };
        if let Some((candidate, percent)) = canary {
            let (own, others) = count(&routes, candidate);
            if own > 0 && others > 0 {
                // Together the shares are as `percent` to the rest.
                for route in &mut routes {
                    route.weight = match route.revision == candidate {
                        true => percent * others,
                        false => (100 - percent) * own,
                    };
                }
            }
        } else if let Some(rejected) = rejected
            && count(&routes, rejected).1 > 0
        {
            for route in routes.iter_mut().filter(|it| it.revision == rejected) {
                route.weight = 0;
            }
        }
        for route in routes.iter_mut().filter(|it| it.state == RouteState::Draining) {
            route.weight = 0;
        }
        routes
    }

    fn route_of(&self, key: TaskKey) -> Option<Route> {
        let state = self.route_state(key)?;
        let task = self.task(key);
        Some(Route {
            task: self.id(key),
            attempt: task.attempt,
            container: task.phase.container()?.clone(),
            revision: task.replica.revision,
            weight: 1,
            state,
        })
    }
}
