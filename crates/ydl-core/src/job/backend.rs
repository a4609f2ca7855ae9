//! Events from the backend.

use super::{HeldContainer, Job, Mutant, NextStep, Phase, Stage, TaskKey, release::ContainerFate};
use crate::{
    action::Action,
    ending::{Ending, TaskResult},
    event::{ContainerExit, Grant},
    history::HistoryKind,
    id::ContainerId,
};
use alloc::{collections::BTreeSet, string::String, vec::Vec};

impl Job {
    pub(super) fn on_granted(&mut self, grant: Grant, out: &mut Vec<Action>) {
        let repeated = self.grants.contains(&grant.container) || self.holds(&grant.container);
        if repeated && !self.mutant.is(Mutant::RepeatedGrantIsNew) {
            return;
        }
        let task = self.asked_task(&grant);
        self.grants.add(&grant.container, task);
        let Some(key) = task else {
            if !self.mutant.is(Mutant::KeepsSurplus) {
                out.push(Action::Release(grant.container));
            }
            return;
        };
        let Grant { container, node, resources, .. } = grant;
        let held = HeldContainer {
            task: key,
            node: node.clone(),
            silent_since: None,
            orphaned: false,
            reported: false,
        };
        self.held.insert(container.clone(), held);
        self.task_mut(key).node = Some(node);
        let phase = Phase::Launching { on: container.clone(), since: self.now };
        self.set_phase(key, phase);
        out.push(Action::Launch { container, task: self.id(key), resources });
    }

    fn holds(&self, container: &ContainerId) -> bool {
        self.held.contains_key(container)
    }

    /// Returns the task that a grant is for, if one still waits for it.
    fn asked_task(&self, grant: &Grant) -> Option<TaskKey> {
        let excluded =
            self.nodes.is_excluded(&grant.node) && !self.mutant.is(Mutant::UsesExcludedNodes);
        if self.stage != Stage::Active || excluded {
            return None;
        }
        let mut roles = self.spec.roles.iter();
        let role = roles.position(|spec| spec.name == grant.role)?;
        if self.is_blocked(role) {
            return None;
        }
        // The largest ask that fits: a small task must not use a container that a larger one waits
        // for.
        let requested = &self.roles[role].requested;
        let (_, tasks) = requested.range(..=grant.resources.memory_mib).next_back()?;
        let index = *tasks.first()?;
        Some(TaskKey { role, index })
    }

    pub(super) fn on_launched(&mut self, container: &ContainerId) {
        let Some(key) = self.task_in(container) else {
            return;
        };
        if let Phase::Launching { on, .. } = &self.task(key).phase {
            let phase = Phase::Joining { on: on.clone(), since: self.now };
            self.set_phase(key, phase);
        }
    }

    /// Handles a failed launch. If the agent has reported, the container was launched, whatever the
    /// backend reports.
    pub(super) fn on_launch_failed(
        &mut self,
        container: &ContainerId,
        reason: String,
        out: &mut Vec<Action>,
    ) {
        let Some(key) = self.task_in(container) else {
            return;
        };
        let phase = &self.task(key).phase;
        if matches!(phase, Phase::Launching { .. } | Phase::Joining { .. }) {
            self.on_fault(key, Ending::NodeFault { reason }, ContainerFate::Unknown, out);
        }
    }

    pub(super) fn on_ended(
        &mut self,
        container: &ContainerId,
        end: ContainerExit,
        out: &mut Vec<Action>,
    ) {
        let Some(key) = self.task_in(container) else {
            return;
        };
        let fate = self.container_fate(key, &end);
        if let ContainerExit::MemoryLimit { .. } = end {
            self.revise_cause(key, Ending::from_container(end.clone()), out);
        }
        match self.task(key).phase.clone() {
            Phase::Launching { .. } | Phase::Joining { .. } => {
                self.on_fault(key, Ending::before_join(end), fate, out);
            }
            Phase::Ready { .. }
            | Phase::Restarting { .. }
            | Phase::Starting { .. }
            | Phase::Running { .. } => {
                self.on_fault(key, Ending::from_container(end), fate, out);
            }
            // A fault that prevents the upload is not a failure of the task.
            Phase::Stopping { then: NextStep::Finish(TaskResult::Succeeded), .. }
                if !self.spec.outputs.is_empty()
                    && !Ending::from_container(end.clone()).counts_as_failure() =>
            {
                self.on_fault(key, Ending::from_container(end), fate, out);
            }
            // The agent was told to stop and will report when it has.
            Phase::Stopping { .. } if fate == ContainerFate::AgentAlive => {}
            Phase::Stopping { then, .. } => self.on_stopped(key, then, fate, None, out),
            Phase::Releasing { then: NextStep::Diagnose, .. } => {
                let ending = self.diagnose(key, Some(end));
                self.on_fault(key, ending, ContainerFate::Ended, out);
            }
            Phase::Releasing { then, .. } if fate == ContainerFate::Ended => {
                self.advance(key, then, out)
            }
            // The release ends by its timeout: a lost node proves nothing.
            Phase::Releasing { .. } => {}
            Phase::BackingOff { .. } | Phase::Requested { .. } | Phase::Finished { .. } => {}
        }
    }

    /// Returns what the exit of a container proves. The cluster reports a node as lost when its
    /// heartbeats stop; programs there may run until their agent, partitioned or ordered to, stops
    /// them.
    fn container_fate(&self, key: TaskKey, end: &ContainerExit) -> ContainerFate {
        let lost = *end == ContainerExit::NodeLost && !self.mutant.is(Mutant::TrustsLostNode);
        if !lost || !self.may_run(key) {
            return ContainerFate::Ended;
        }
        let on = self.task(key).phase.container();
        let has_reported =
            on.and_then(|on| self.held.get(on)).is_some_and(|held| held.silent_since.is_none());
        if has_reported { ContainerFate::AgentAlive } else { ContainerFate::Unknown }
    }

    pub(super) fn on_preemption_warned(&mut self, container: &ContainerId, out: &mut Vec<Action>) {
        let Some(key) = self.task_in(container) else {
            return;
        };
        if self.stage != Stage::Active {
            return;
        }
        if self.serve(key.role).is_some() {
            self.on_leaving(container, None, out);
            return;
        }
        match &self.task(key).phase {
            // The agent stops its program with grace before the container is preempted.
            Phase::Starting { .. } | Phase::Running { .. } | Phase::Ready { .. } => {
                self.on_attempt_over(key, Ending::Preempted, ContainerFate::AgentAlive, out);
            }
            Phase::Launching { .. } | Phase::Joining { .. } | Phase::Restarting { .. } => {
                self.on_attempt_over(key, Ending::Preempted, ContainerFate::Unknown, out);
            }
            Phase::BackingOff { .. }
            | Phase::Requested { .. }
            | Phase::Stopping { .. }
            | Phase::Releasing { .. }
            | Phase::Finished { .. } => {}
        }
    }

    /// Reconciles the state with the backend after a replay: only containers that the backend
    /// reports as alive are kept. No agent has reported yet, and pending actions of the old master
    /// may not have been executed.
    pub(super) fn on_master_recovered(&mut self, live: Vec<ContainerId>, out: &mut Vec<Action>) {
        let kind = HistoryKind::MasterRecovered { live: live.len() as u32 };
        self.record(kind, out);
        let live: BTreeSet<_> = live.into_iter().collect();
        let unowned: Vec<_> = live.iter().filter(|it| !self.holds(it)).cloned().collect();
        self.restart_waits();
        let held: Vec<_> = self.held.keys().cloned().collect();
        for container in &held {
            let Some(key) = self.task_in(container) else {
                continue;
            };
            if !live.contains(container) {
                if !self.mutant.is(Mutant::KeepsLostContainers) {
                    self.on_ended(container, ContainerExit::NodeLost, out);
                }
                continue;
            }
            match &self.task(key).phase {
                // The launch may not have been executed.
                Phase::Launching { .. } => {
                    self.on_fault(key, Ending::Lost, ContainerFate::Unknown, out)
                }
                // The release may not have been executed.
                Phase::Releasing { then, .. } if *then != NextStep::Diagnose => {
                    out.push(Action::Release(container.clone()));
                }
                _ => {}
            }
        }
        if self.mutant.is(Mutant::KeepsUnownedContainers) {
            return;
        }
        for container in unowned {
            self.grants.add(&container, None);
            out.push(Action::Release(container));
        }
    }

    /// Restarts every wait: no timeout could be met without a master.
    fn restart_waits(&mut self) {
        let now = self.now;
        for held in self.held.values_mut() {
            held.silent_since = Some(now);
            held.orphaned = true;
            held.reported = false;
        }
        let keys: Vec<_> = self.held.values().map(|held| held.task).collect();
        for key in keys {
            if self.mutant.is(Mutant::KeepsOldTimeouts) {
                self.arm(key);
                continue;
            }
            self.restart_replica_waits(key);
            match &mut self.task_mut(key).phase {
                Phase::Launching { since, .. }
                | Phase::Joining { since, .. }
                | Phase::Starting { since, .. }
                | Phase::Restarting { since, .. }
                | Phase::Stopping { since, .. } => *since = now,
                Phase::Releasing { .. }
                | Phase::Ready { .. }
                | Phase::Running { .. }
                | Phase::BackingOff { .. }
                | Phase::Requested { .. }
                | Phase::Finished { .. } => {}
            }
            self.arm(key);
        }
        self.restart_rollout_waits();
        self.restart_allocation_waits();
        self.renew_suspicion();
    }
}
