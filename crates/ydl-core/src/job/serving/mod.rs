//! Serving roles: their tasks are replicas behind gateways.
//!
//! * `mod.rs` (here): the state of a serving role, its size, and the events about it.
//! * `rollout`: updates to a new revision, which are watched, and promoted or rolled back.
//! * `reconcile`: the difference between the replicas that there are and those that are wanted.
//! * `drain`: replicas that finish their requests before they are stopped, and probes.
//! * `routes`: the route table.

mod drain;
mod reconcile;
mod rollout;
mod routes;

use super::{Job, JobProgress, Mutant, Phase, Stage, TaskKey};
use crate::{
    action::Action,
    history::HistoryKind,
    id::{ContainerId, RoleName, TaskId},
    serve::{RouteState, RouteTable},
    spec::{RevisionSpec, Serve},
    time::Time,
};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    format,
    string::{String, ToString},
    vec::Vec,
};
pub(super) use drain::Draining;
use rollout::Rollout;

/// Number of the revision that a job is submitted with.
const FIRST_REVISION: u32 = 1;

/// State of a serving role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Serving {
    /// Number of replicas that are asked for.
    pub(super) size: u32,
    /// Specifications of the revisions in use, and of the one before.
    revisions: BTreeMap<u32, RevisionSpec>,
    /// Highest revision number.
    newest: u32,
    /// Revision that replicas should run.
    stable: u32,
    /// True once a replica of some stable revision has served.
    pub(super) proven: bool,
    /// Stable revision before this one.
    previous: Option<u32>,
    /// Revision that was rolled back and that replicas may still run.
    rejected: Option<u32>,
    rollout: Option<Rollout>,
    /// Replicas that are removed first.
    idle: Vec<u32>,
}

impl Serving {
    pub(super) fn revision(&self, revision: u32) -> Option<&RevisionSpec> {
        self.revisions.get(&revision)
    }
}

/// State of a task as a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReplicaState {
    /// Revision that it runs; 0 if its role does not serve.
    pub(super) revision: u32,
    /// Its agent's probe succeeds.
    pub(super) served: bool,
    /// Number of the last change of the probe in this attempt.
    pub(super) probed: u32,
    /// The probe has succeeded in this attempt.
    pub(super) has_served: bool,
    /// Time since which its program runs without ever having served.
    pub(super) loading_since: Option<Time>,
    /// Its container will be taken: it is drained by this time at the latest.
    pub(super) leaving: Option<Time>,
    /// It was removed and finishes its requests.
    pub(super) draining: Option<Draining>,
}

impl ReplicaState {
    /// Forgets what belongs to an attempt that is over, or to its container.
    pub(super) fn phase_changed(&mut self, old: &Phase, new: &Phase, keeps_served: bool) {
        if let Phase::Running { since, .. } = new {
            self.loading_since = (self.revision > 0).then_some(*since);
        } else {
            self.loading_since = None;
            self.probed = 0;
            self.served &= keeps_served;
            self.has_served &= keeps_served;
            self.draining = None;
        }
        if old.container() != new.container() {
            self.leaving = None;
        }
    }
}

/// Revision of a serving role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// Its number.
    pub revision: u32,
    /// Number of replicas that should run it.
    pub want: u32,
    /// Number of replicas that run it or will, without those that are removed.
    pub replicas: u32,
    /// Number of replicas that serve with it.
    pub serving: u32,
}

impl Job {
    pub(super) fn serve(&self, role: usize) -> Option<&Serve> {
        self.spec.roles[role].serve.as_ref()
    }

    /// Returns the route table.
    pub fn routes(&self) -> &RouteTable {
        &self.routes
    }

    /// Returns the revisions that replicas of a role should run, the stable one first.
    pub fn revisions(&self, name: &RoleName) -> Vec<Revision> {
        let role = self.spec.roles.iter().position(|spec| spec.name == *name);
        let Some((role, serving)) = role.and_then(|role| Some((role, self.serving(role)?))) else {
            return Vec::new();
        };
        let wants = self.wanted_replicas(role);
        let candidate = serving.rollout.as_ref().map(|rollout| (rollout.candidate, wants.batch));
        let all = [(serving.stable, wants.stable)].into_iter().chain(candidate);
        let all = all.map(|(revision, want)| {
            let own = self.replicas(role);
            let own: Vec<_> =
                own.filter(|key| self.task(*key).replica.revision == revision).collect();
            let serving = own.iter().filter(|key| self.is_ready(**key)).count() as u32;
            Revision { revision, want, replicas: own.len() as u32, serving }
        });
        all.collect()
    }

    /// Returns the revision that a container runs, with its specification.
    pub fn revision_in(&self, container: &ContainerId) -> Option<(u32, &RevisionSpec)> {
        let key = self.held.get(container)?.task;
        let revision = self.task(key).replica.revision;
        Some((revision, self.serving(key.role)?.revisions.get(&revision)?))
    }

    pub(super) fn serving(&self, role: usize) -> Option<&Serving> {
        self.roles[role].serving.as_ref()
    }

    fn serving_mut(&mut self, role: usize) -> Option<&mut Serving> {
        self.roles[role].serving.as_mut()
    }

    /// Prepares the serving roles of a new job, whose tasks exist.
    pub(super) fn begin_serving(&mut self) {
        for role in 0..self.roles.len() {
            let spec = &self.spec.roles[role];
            if spec.serve.is_none() {
                continue;
            }
            let first = RevisionSpec {
                command: spec.command.clone(),
                environment: spec.environment.clone(),
                env: spec.env.clone(),
                inputs: self.spec.inputs_of(spec).cloned().collect(),
            };
            self.roles[role].serving = Some(Serving {
                size: spec.instances,
                revisions: BTreeMap::from([(FIRST_REVISION, first)]),
                newest: FIRST_REVISION,
                stable: FIRST_REVISION,
                proven: false,
                previous: None,
                rejected: None,
                rollout: None,
                idle: Vec::new(),
            });
            for task in &mut self.roles[role].tasks {
                task.replica.revision = FIRST_REVISION;
            }
        }
    }

    /// Applies the consequences of an event to the serving roles.
    pub(super) fn settle_serving(&mut self, out: &mut Vec<Action>) {
        for role in 0..self.roles.len() {
            let serves = self.serving(role).is_some() && self.stage == Stage::Active;
            if serves && self.done() == JobProgress::Incomplete {
                self.advance_rollout(role, out);
                self.reconcile(role, out);
                self.forget_revisions(role);
            }
        }
    }

    /// Sets the number of replicas that are asked for.
    pub(super) fn set_size(
        &mut self,
        role: usize,
        to: u32,
        reason: Option<String>,
        out: &mut Vec<Action>,
    ) {
        let Some(limits) = self.serve(role).map(|serve| serve.replicas) else {
            return;
        };
        let to = to.clamp(limits.min, limits.max);
        let name = self.spec.roles[role].name.clone();
        let Some(serving) = self.serving_mut(role) else {
            return;
        };
        let from = core::mem::replace(&mut serving.size, to);
        if from != to {
            self.record(HistoryKind::RoleScaled { role: name, from, to, reason }, out);
        }
    }

    /// Applies a decision of the autoscaler. The least busy replicas are removed first.
    pub(super) fn on_scaled(
        &mut self,
        name: &RoleName,
        instances: u32,
        (because, idle): (String, Vec<TaskId>),
        out: &mut Vec<Action>,
    ) {
        let Some(role) = self.serving_role(name) else {
            return;
        };
        if let Some(serving) = self.serving_mut(role) {
            serving.idle =
                idle.iter().filter(|task| task.role == *name).map(|task| task.index).collect();
        }
        self.set_size(role, instances, Some(because), out);
    }

    /// Starts a replica for a request, if there is none.
    pub(super) fn on_wanted(&mut self, name: &RoleName, out: &mut Vec<Action>) {
        if let Some(role) = self.serving_role(name)
            && self.serving(role).is_some_and(|serving| serving.size == 0)
        {
            self.set_size(role, 1, Some("a request arrived".to_string()), out);
        }
    }

    /// Returns true if a serving role waits for a request, or for containers without a timeout.
    pub(super) fn may_be_idle(&self) -> bool {
        let mut serving = self.roles.iter().filter_map(|role| role.serving.as_ref());
        serving.any(|serving| serving.size == 0 || serving.proven)
    }

    /// Describes updates, and roles without replicas.
    pub(super) fn describe_serving(&self) -> Vec<String> {
        let roles = self.spec.roles.iter().zip(&self.roles);
        let serving = roles.filter_map(|(spec, role)| Some((spec, role.serving.as_ref()?)));
        let each = serving.filter_map(|(spec, serving)| {
            let name = &spec.name;
            match &serving.rollout {
                Some(rollout) => {
                    let revision = rollout.candidate;
                    Some(format!("`{name}` is updated to revision {revision}"))
                }
                None if serving.size == 0 => Some(format!("`{name}` waits for a request")),
                None => None,
            }
        });
        each.collect()
    }

    /// Returns the index of a serving role of an active job.
    fn serving_role(&self, name: &RoleName) -> Option<usize> {
        let role = self.spec.roles.iter().position(|spec| spec.name == *name)?;
        (self.stage == Stage::Active && self.serving(role).is_some()).then_some(role)
    }

    /// Returns the replicas of a role that are not removed.
    fn replicas(&self, role: usize) -> impl Iterator<Item = TaskKey> + use<> {
        self.task_keys(Some(role)).into_iter()
    }

    /// Returns true if a replica serves and stays.
    fn is_ready(&self, key: TaskKey) -> bool {
        let task = self.task(key);
        let runs = matches!(task.phase, Phase::Running { .. });
        runs && task.replica.served && task.replica.leaving.is_none() && !task.dropped
    }

    /// Forgets the specifications of revisions that no replica runs.
    fn forget_revisions(&mut self, role: usize) {
        let tasks = self.roles[role].tasks.iter();
        let used = tasks.filter(|task| !task.dropped || task.phase.container().is_some());
        let mut used: BTreeSet<u32> = used.map(|task| task.replica.revision).collect();
        if let Some(serving) = self.serving_mut(role) {
            used.insert(serving.stable);
            used.extend(serving.previous);
            used.extend(serving.rollout.as_ref().map(|rollout| rollout.candidate));
            serving.rejected = serving.rejected.filter(|revision| used.contains(revision));
            serving.revisions.retain(|revision, _| used.contains(revision));
        }
    }
}
