//! Replicas that are wanted, compared with those that there are.
//!
//! Replicas are added up to the size and the surge, under indexes whose earlier tasks have ended.
//! Ready ones are removed only while the others are enough: the size, less those that may be
//! unavailable.

use super::{Job, Mutant, TaskKey};
use crate::{
    action::Action,
    job::{NextStep, Phase},
};
use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};

/// Numbers of replicas that are wanted.
pub(super) struct WantedReplicas {
    /// Replicas of the stable revision.
    pub(super) stable: u32,
    /// Replicas of a new revision that is watched.
    pub(super) batch: u32,
    /// Least number of ready replicas.
    least: u32,
    /// Greatest number of replicas, without those that leave.
    most: u32,
}

impl Job {
    pub(super) fn wanted_replicas(&self, role: usize) -> WantedReplicas {
        let (Some(serve), Some(serving)) = (self.serve(role), self.serving(role)) else {
            return WantedReplicas { stable: 0, batch: 0, least: 0, most: 0 };
        };
        let (surge, unavailable) = (serve.update.surge, serve.update.unavailable);
        let size = serving.size;
        let batch = serving.rollout.as_ref().map_or(0, |rollout| rollout.batch);
        let room = if self.mutant.is(Mutant::StopsOldBeforeWatch) { 0 } else { surge };
        WantedReplicas {
            stable: size.saturating_sub(batch.saturating_sub(room)),
            batch,
            least: size.saturating_sub(unavailable),
            most: size.saturating_add(surge.max(u32::from(size == 0))),
        }
    }

    /// Adds and removes replicas.
    pub(super) fn reconcile(&mut self, role: usize, out: &mut Vec<Action>) {
        let wanted = self.wanted_replicas(role);
        let Some(serving) = self.serving(role) else {
            return;
        };
        let candidate = serving.rollout.as_ref().map(|rollout| rollout.candidate);
        let mut wants = BTreeMap::from([(serving.stable, wanted.stable)]);
        wants.extend(candidate.map(|candidate| (candidate, wanted.batch)));
        self.remove_unreachable(role, out);
        self.remove_surplus(role, &wants, wanted.least, out);
        self.remove_leaving(role, wanted.least, out);
        let here = self.replicas(role).map(|key| &self.task(key).replica);
        let here = here.filter(|it| it.leaving.is_none()).map(|it| it.revision);
        let here: Vec<u32> = here.collect();
        let mut room = wanted.most.saturating_sub(here.len() as u32);
        for (revision, want) in wants {
            let has = here.iter().filter(|it| **it == revision).count() as u32;
            for _ in 0..want.saturating_sub(has).min(room) {
                self.add_replica(role, revision);
                room -= 1;
            }
        }
    }

    /// Removes replicas of other revisions and those beyond their number. A replica that loads is
    /// kept, unless its revision is not wanted at all.
    fn remove_surplus(
        &mut self,
        role: usize,
        wants: &BTreeMap<u32, u32>,
        least: u32,
        out: &mut Vec<Action>,
    ) {
        let mut ready = self.replicas(role).filter(|key| self.is_ready(*key)).count() as u32;
        let careless = self.mutant.is(Mutant::IgnoresUnavailable);
        let impatient = self.mutant.is(Mutant::RemovesLoadingReplicas);
        let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
        for key in self.replicas(role) {
            let replica = &self.task(key).replica;
            *counts.entry(replica.revision).or_default() += u32::from(replica.leaving.is_none());
        }
        for key in self.removal_order(role) {
            let task = self.task(key);
            let revision = task.replica.revision;
            let want = wants.get(&revision).copied();
            let has = counts.get(&revision).copied().unwrap_or_default();
            if task.replica.leaving.is_some() || has <= want.unwrap_or_default() {
                continue;
            }
            let is_ready = self.is_ready(key);
            let is_loading = !is_ready && task.phase.container().is_some();
            let keeps = match (is_ready, want) {
                (true, _) => ready <= least && !careless,
                (false, Some(_)) => is_loading && !impatient,
                (false, None) => false,
            };
            if keeps {
                continue;
            }
            ready -= u32::from(is_ready);
            counts.insert(revision, has - 1);
            self.retire(key, out);
        }
    }

    /// Removes replicas whose agents are silent. Their replacements need not wait until a program
    /// that was cut off has ended by itself.
    fn remove_unreachable(&mut self, role: usize, out: &mut Vec<Action>) {
        let is_gone = |key: &TaskKey| match &self.task(*key).phase {
            Phase::Releasing { on, then: NextStep::Retry { .. }, .. } => {
                self.held.get(on).is_some_and(|held| held.silent_since.is_some())
            }
            _ => false,
        };
        let gone: Vec<_> = self.replicas(role).filter(is_gone).collect();
        for key in gone {
            self.retire(key, out);
        }
    }

    /// Removes replicas whose containers will be taken, once the others are enough.
    fn remove_leaving(&mut self, role: usize, least: u32, out: &mut Vec<Action>) {
        let ready = self.replicas(role).filter(|key| self.is_ready(*key)).count() as u32;
        let hasty = self.mutant.is(Mutant::DrainsBeforeSubstitute);
        let leaving = self.replicas(role).filter(|key| self.task(*key).replica.leaving.is_some());
        for key in leaving.collect::<Vec<_>>() {
            let unused = !self.task(key).replica.served;
            if ready >= least || unused || hasty {
                self.retire(key, out);
            }
        }
    }

    /// Returns replicas in the order of their removal: those without a container, those that
    /// serve, the least busy first, and those that load. Among equals the last goes first.
    fn removal_order(&self, role: usize) -> Vec<TaskKey> {
        let idle = self.serving(role).map(|serving| &serving.idle);
        let mut keys: Vec<_> = self.replicas(role).collect();
        keys.reverse();
        keys.sort_by_key(|key| {
            let task = self.task(*key);
            let class = match task.phase.container() {
                None => 0,
                Some(_) if self.is_ready(*key) => 1,
                Some(_) => 2,
            };
            let at = idle.and_then(|idle| idle.iter().position(|index| *index == key.index));
            (class, at.unwrap_or(usize::MAX))
        });
        keys
    }

    /// Adds a replica, under the index of one that has ended, or a new one. An attempt's number is
    /// never used again.
    fn add_replica(&mut self, role: usize, revision: u32) {
        let tasks = self.roles[role].tasks.iter().zip(0..);
        let mut ended = tasks.filter(|(task, _)| task.dropped && task.phase.container().is_none());
        let index = match ended.next().map(|(_, index)| index) {
            Some(index) => {
                let key = TaskKey { role, index };
                let memory_mib = self.spec.roles[role].resources.memory_mib;
                self.recount_task(key);
                self.roles[role].want += 1;
                let task = self.task_mut(key);
                task.attempt += 1;
                task.memory_mib = memory_mib;
                task.endpoint = None;
                task.exit = None;
                task.failures = VecDeque::new();
                task.node_faults = 0;
                self.ask(key);
                index
            }
            None => {
                let index = self.roles[role].tasks.len() as u32;
                self.add_tasks(role, 1, self.round);
                index
            }
        };
        self.task_mut(TaskKey { role, index }).replica.revision = revision;
    }

    /// Removes a replica. One that has served finishes its requests first.
    pub(super) fn retire(&mut self, key: TaskKey, out: &mut Vec<Action>) {
        self.uncount(key);
        self.roles[key.role].want -= 1;
        let task = self.task(key);
        let runs = matches!(task.phase, Phase::Running { .. });
        if runs && task.replica.has_served && !self.mutant.is(Mutant::StopsWithoutDrain) {
            self.drain(key, out);
        } else {
            self.remove_task(key, out);
        }
    }
}
