//! What the backend says about containers.

use super::{Held, Job, Mutant, Place, Stage, TaskKey, Then, part::Gone};
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
        let repeated = self.known.contains(&grant.container) || self.holds(&grant.container);
        if repeated && !self.mutant.is(Mutant::RepeatedGrantIsNew) {
            return;
        }
        let task = self.asked_task(&grant);
        self.known.add(&grant.container, task);
        let Some(key) = task else {
            if !self.mutant.is(Mutant::KeepsSurplus) {
                out.push(Action::Release(grant.container));
            }
            return;
        };
        let Grant { container, node, resources, .. } = grant;
        let held = Held { task: key, node: node.clone(), quiet: None, orphan: false, heard: false };
        self.held.insert(container.clone(), held);
        self.task_mut(key).node = Some(node);
        let place = Place::Launching { on: container.clone(), since: self.now };
        self.set_place(key, place);
        out.push(Action::Launch { container, task: self.id(key), resources });
    }

    fn holds(&self, container: &ContainerId) -> bool {
        self.held.contains_key(container)
    }

    /// The task that this grant is for, if anybody still wants it.
    fn asked_task(&self, grant: &Grant) -> Option<TaskKey> {
        let avoided = self.nodes.avoids(&grant.node) && !self.mutant.is(Mutant::TakesAvoidedNodes);
        if self.stage != Stage::Active || avoided {
            return None;
        }
        let mut roles = self.spec.roles.iter();
        let role = roles.position(|spec| spec.name == grant.role)?;
        if self.is_held_back(role) {
            return None;
        }
        // The largest need that fits: a small task must not use up a container that a grown one waits for.
        let asked = &self.roles[role].asked;
        let (_, tasks) = asked.range(..=grant.resources.memory_mib).next_back()?;
        let index = *tasks.first()?;
        Some(TaskKey { role, index })
    }

    pub(super) fn on_launched(&mut self, container: &ContainerId) {
        let Some(key) = self.task_in(container) else {
            return;
        };
        if let Place::Launching { on, .. } = &self.task(key).place {
            let place = Place::Joining { on: on.clone(), since: self.now };
            self.set_place(key, place);
        }
    }

    /// Where the agent has been heard, the container was launched, whatever the backend believes.
    pub(super) fn on_launch_failed(
        &mut self,
        container: &ContainerId,
        why: String,
        out: &mut Vec<Action>,
    ) {
        let Some(key) = self.task_in(container) else {
            return;
        };
        let place = &self.task(key).place;
        if matches!(place, Place::Launching { .. } | Place::Joining { .. }) {
            self.on_fault(key, Ending::NodeFault { why }, Gone::Unsure, out);
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
        let gone = self.gone_by(key, &end);
        match self.task(key).place.clone() {
            Place::Launching { .. } | Place::Joining { .. } => {
                self.on_fault(key, Ending::before_join(end), gone, out);
            }
            Place::Ready { .. }
            | Place::Rewinding { .. }
            | Place::Starting { .. }
            | Place::Running { .. } => {
                self.on_fault(key, Ending::from_container(end), gone, out);
            }
            // What keeps the outputs from being saved is nobody's fault either.
            Place::Stopping { then: Then::Over(TaskResult::Succeeded), .. }
                if !self.spec.outputs.is_empty()
                    && !Ending::from_container(end.clone()).counts_as_failure() =>
            {
                self.on_fault(key, Ending::from_container(end), gone, out);
            }
            // The agent was told to stop and will say when it has.
            Place::Stopping { .. } if gone == Gone::AgentAlive => {}
            Place::Stopping { then, .. } => self.on_stopped(key, then, gone, None, out),
            Place::Leaving { then: Then::Judge, .. } => {
                let ending = self.judge(key, Some(end));
                self.on_fault(key, ending, Gone::Ended, out);
            }
            Place::Leaving { then, .. } if gone == Gone::Ended => self.go_on(key, then, out),
            // It leaves when its time is up: a lost node proves nothing.
            Place::Leaving { .. } => {}
            Place::Idle { .. } | Place::Asked { .. } | Place::Over { .. } => {}
        }
    }

    /// What the end of a container proves. A node is lost when the cluster no longer hears it; what ran there
    /// may run on until its agent, cut off from us or told by us, stops it.
    fn gone_by(&self, key: TaskKey, end: &ContainerExit) -> Gone {
        let lost = *end == ContainerExit::NodeLost && !self.mutant.is(Mutant::TrustsALostNode);
        if !lost || !self.may_run(key) {
            return Gone::Ended;
        }
        let on = self.task(key).place.container();
        let heard = on.and_then(|on| self.held.get(on)).is_some_and(|held| held.quiet.is_none());
        if heard { Gone::AgentAlive } else { Gone::Unsure }
    }

    pub(super) fn on_warned(&mut self, container: &ContainerId, out: &mut Vec<Action>) {
        let Some(key) = self.task_in(container) else {
            return;
        };
        if self.stage != Stage::Active {
            return;
        }
        match &self.task(key).place {
            // The agent stops its program with grace before the container is taken.
            Place::Starting { .. } | Place::Running { .. } | Place::Ready { .. } => {
                self.on_attempt_over(key, Ending::Preempted, Gone::AgentAlive, out);
            }
            Place::Launching { .. } | Place::Joining { .. } | Place::Rewinding { .. } => {
                self.on_attempt_over(key, Ending::Preempted, Gone::Unsure, out);
            }
            Place::Idle { .. }
            | Place::Asked { .. }
            | Place::Stopping { .. }
            | Place::Leaving { .. }
            | Place::Over { .. } => {}
        }
    }

    /// After the journal was replayed: what the backend says is alive decides, and nobody has been heard yet.
    /// Whatever the old master had still to do, it may not have done.
    pub(super) fn on_recovered(&mut self, live: Vec<ContainerId>, out: &mut Vec<Action>) {
        let what = HistoryKind::MasterRecovered { live: live.len() as u32 };
        self.record(what, out);
        let live: BTreeSet<_> = live.into_iter().collect();
        let nobodys: Vec<_> = live.iter().filter(|it| !self.holds(it)).cloned().collect();
        self.wait_anew();
        let held: Vec<_> = self.held.keys().cloned().collect();
        for container in &held {
            let Some(key) = self.task_in(container) else {
                continue;
            };
            if !live.contains(container) {
                if !self.mutant.is(Mutant::TrustsTheDead) {
                    self.on_ended(container, ContainerExit::NodeLost, out);
                }
                continue;
            }
            match &self.task(key).place {
                // Whether the launch was carried out cannot be known.
                Place::Launching { .. } => self.on_fault(key, Ending::Lost, Gone::Unsure, out),
                // Nor whether the release was.
                Place::Leaving { then, .. } if *then != Then::Judge => {
                    out.push(Action::Release(container.clone()));
                }
                _ => {}
            }
        }
        if self.mutant.is(Mutant::ForgetsOrphans) {
            return;
        }
        for container in nobodys {
            self.known.add(&container, None);
            out.push(Action::Release(container));
        }
    }

    /// Nobody could meet a deadline while there was no master: every wait begins again.
    fn wait_anew(&mut self) {
        let now = self.now;
        for held in self.held.values_mut() {
            held.quiet = Some(now);
            held.orphan = true;
            held.heard = false;
        }
        let keys: Vec<_> = self.held.values().map(|held| held.task).collect();
        for key in keys {
            if self.mutant.is(Mutant::KeepsOldDeadlines) {
                self.arm(key);
                continue;
            }
            match &mut self.task_mut(key).place {
                Place::Launching { since, .. }
                | Place::Joining { since, .. }
                | Place::Starting { since, .. }
                | Place::Rewinding { since, .. }
                | Place::Stopping { since, .. } => *since = now,
                Place::Leaving { .. }
                | Place::Ready { .. }
                | Place::Running { .. }
                | Place::Idle { .. }
                | Place::Asked { .. }
                | Place::Over { .. } => {}
            }
            self.arm(key);
        }
        self.gather_anew();
        self.doubt_anew();
    }
}
