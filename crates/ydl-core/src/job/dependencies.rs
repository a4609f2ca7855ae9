//! Roles with dependencies: their tasks ask for containers only after every task of those roles has
//! run.

use super::{Job, Mutant, Phase, RoleState};
use crate::spec::{Completion, RoleSpec};

impl Job {
    /// Returns true if the role waits for its dependencies. Once released it is never blocked
    /// again: a retried task waits for no other role.
    pub(super) fn is_blocked(&self, role: usize) -> bool {
        let after = &self.spec.roles[role].depends_on;
        if self.waits_for_job_start(role) {
            return true;
        }
        if after.is_empty() || self.mutant.is(Mutant::IgnoresDependencies) {
            return false;
        }
        let roles = self.spec.roles.iter().zip(&self.roles);
        let mut before = roles.filter(|(spec, _)| after.contains(&spec.name));
        before.any(|(_, role)| !role.all_ran)
    }

    /// Returns true for a sidecar of a job that has not started: it must not take resources that
    /// the job's own tasks need.
    pub(super) fn waits_for_job_start(&self, role: usize) -> bool {
        let name = &self.spec.roles[role].name;
        let mut others = self.spec.roles.iter();
        let first = others.any(|other| other.depends_on.contains(name));
        let waits = !self.has_started && !first && self.stands_beside(role);
        waits && !self.mutant.is(Mutant::StartsSidecarsFirst)
    }

    /// Updates which roles have started: those whose tasks have all run or finished.
    pub(super) fn update_started_roles(&mut self) {
        for at in 0..self.roles.len() {
            let name = &self.spec.roles[at].name;
            let mut others = self.spec.roles.iter();
            let role = &self.roles[at];
            if role.all_ran || !others.any(|other| other.depends_on.contains(name)) {
                continue;
            }
            let mut wanted = role.tasks.iter().filter(|task| !task.dropped);
            let begun =
                wanted.all(|task| task.has_run || matches!(task.phase, Phase::Finished { .. }));
            self.roles[at].all_ran = begun;
        }
    }

    /// Returns true if tasks that start on their own all wait for containers that may never be
    /// granted.
    pub(super) fn is_starved(&self) -> bool {
        let roles = || self.spec.roles.iter().zip(&self.roles).enumerate();
        // Followers need not end before other roles.
        let optional = [Completion::Service, Completion::Follows, Completion::Sidecar];
        let ends = |spec: &RoleSpec| !optional.contains(&spec.completion);
        let needed = |at: usize, spec: &RoleSpec| ends(spec) || self.blocks_others(at);
        let mut relevant = roles().filter(|(at, (spec, _))| needed(*at, spec)).peekable();
        let asks = |role: &RoleState| !role.requested.is_empty();
        if relevant.peek().is_none() {
            // Containers of sidecars are not released for them, and sidecars are not required.
            let mut held = self.held.values();
            let none = held.all(|held| self.stands_beside(held.task.role));
            let mut own = roles().filter(|(at, _)| !self.stands_beside(*at));
            // A service that has served waits for its containers as long as it takes.
            let proven = |role: &RoleState| role.serving.as_ref().is_some_and(|it| it.proven);
            return none && own.any(|(_, (_, role))| asks(role) && !proven(role));
        }
        let mut requested = false;
        for (at, (spec, role)) in relevant {
            if self.is_blocked(at) {
                continue;
            }
            // A service keeps its containers, so its other tasks cannot get them.
            if role.holding() > 0 && (ends(spec) || !asks(role)) {
                return false;
            }
            requested |= asks(role);
        }
        requested
    }

    /// Returns true if other roles depend on it and it has not run.
    fn blocks_others(&self, role: usize) -> bool {
        let name = &self.spec.roles[role].name;
        let mut others = self.spec.roles.iter();
        !self.roles[role].all_ran && others.any(|other| other.depends_on.contains(name))
    }
}
