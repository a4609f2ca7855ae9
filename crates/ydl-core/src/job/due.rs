//! What a deadline says when it passes.

use super::{Job, Mutant, Place, Stage, TaskKey, Then, part::Gone, timers::Timer};
use crate::{
    action::Action,
    ending::{Cause, Ending, TaskResult, TimeoutKind},
    id::ContainerId,
    time::Time,
};
use alloc::vec::Vec;

impl Job {
    /// When the task's present state must have ended.
    pub(super) fn deadline(&self, key: TaskKey) -> Option<Time> {
        let place = self.place_deadline(key);
        let silence = self
            .quiet_since(key)
            .map(|since| since + self.spec.timeouts.heartbeat)
            .filter(|_| !self.mutant.is(Mutant::WaitsForTheSilent));
        match (place, silence) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn place_deadline(&self, key: TaskKey) -> Option<Time> {
        let d = &self.spec.timeouts;
        let task = self.task(key);
        match &task.place {
            Place::Idle { until, .. } => Some(*until),
            // A gathering has a deadline for all of its members, and tasks that start on their own may wait for
            // each other's containers as long as any of them has one.
            Place::Asked { since } => {
                let alone = task.gathering.is_none() && self.gathers(key.role);
                alone.then(|| *since + d.allocation)
            }
            Place::Launching { since, .. } => Some(*since + d.launch),
            // Data comes before an agent is ready; the agent itself gives up when none comes for a while. Of one that was
            // never heard nothing is known to come.
            Place::Joining { on, since } if self.fetches(key) && self.was_heard(on) => {
                Some(*since + (d.join + d.fetch))
            }
            Place::Joining { since, .. } => Some(*since + d.join),
            Place::Starting { .. } if self.mutant.is(Mutant::NoStartDeadline) => None,
            Place::Starting { since, .. } => Some(*since + d.start),
            // What its program has changed of its data comes anew.
            Place::Rewinding { since, ended: true, .. } => Some(*since + (d.join + d.fetch)),
            Place::Rewinding { since, .. } => Some(*since + (d.grace + d.stop)),
            Place::Stopping { since, save, .. } => {
                let saving = *save && !self.spec.outputs.is_empty();
                let end = *since + (d.grace + d.stop);
                Some(if saving { end + d.upload } else { end })
            }
            Place::Leaving { until, .. } => Some(*until),
            Place::Ready { .. } | Place::Running { .. } | Place::Over { .. } => None,
        }
    }

    /// Whether data comes to the task before its program starts.
    pub(super) fn fetches(&self, key: TaskKey) -> bool {
        let role = &self.spec.roles[key.role];
        let mut inputs = self.spec.inputs_of(role);
        inputs.any(|input| input.form.is_fetched())
    }

    /// Whether the agent there has spoken to this master.
    fn was_heard(&self, container: &ContainerId) -> bool {
        self.held.get(container).is_some_and(|held| held.heard)
    }

    /// Whether it matters that this agent is heard for the first time: while its data comes it has nothing to report.
    pub fn listens_for(&self, container: &ContainerId) -> bool {
        let key = self.task_in(container);
        key.is_some_and(|key| self.fetches(key)) && !self.was_heard(container)
    }

    /// Since when the task's agent misses its beats, where that matters: an agent that was never heard is late,
    /// one that leaves need not be heard.
    fn quiet_since(&self, key: TaskKey) -> Option<Time> {
        match &self.task(key).place {
            Place::Ready { on, .. }
            | Place::Starting { on, .. }
            | Place::Running { on, .. }
            | Place::Rewinding { on, .. }
            | Place::Stopping { on, .. } => self.held.get(on)?.quiet,
            // Data may come for hours, and its agent beats meanwhile.
            Place::Joining { on, .. } if self.fetches(key) => {
                let heard = self.held.get(on).filter(|held| !held.orphan);
                heard?.quiet
            }
            Place::Launching { .. }
            | Place::Joining { .. }
            | Place::Leaving { .. }
            | Place::Idle { .. }
            | Place::Asked { .. }
            | Place::Over { .. } => None,
        }
    }

    pub(super) fn arm(&mut self, key: TaskKey) {
        let at = self.deadline(key);
        self.timers.arm(Timer::Task(key), at);
    }

    /// Deadlines that have passed.
    pub(super) fn on_due(&mut self, out: &mut Vec<Action>) {
        while let Some(timer) = self.timers.pop(self.now) {
            match timer {
                Timer::Task(key) => self.on_task_due(key, out),
                Timer::Gathering(round) => self.on_gathering_due(round, out),
                Timer::Starved => {
                    let missing = self.missing(self.starved_since);
                    self.fail(Cause::NoContainers { missing }, out);
                }
                Timer::Run => {
                    if let Some(limit) = self.spec.timeouts.run {
                        self.fail(Cause::RunTimeout { limit }, out);
                    }
                }
                // What follows from it is settled afterwards.
                Timer::Followed | Timer::Doubt => {}
                Timer::Forgive => self.on_forgiving_due(out),
            }
        }
    }

    fn on_task_due(&mut self, key: TaskKey, out: &mut Vec<Action>) {
        if self.deadline(key).is_none_or(|at| at > self.now) {
            // A beat or an answer has moved it since it was armed.
            self.arm(key);
            return;
        }
        let place = self.task(key).place.clone();
        match &place {
            Place::Idle { .. } => self.ask(key),
            Place::Asked { since } => {
                let missing = self.missing(Some(*since));
                self.fail(Cause::NoContainers { missing }, out);
            }
            Place::Launching { .. } => self.on_late(key, TimeoutKind::Launch, out),
            Place::Joining { .. } => self.on_late(key, TimeoutKind::Join, out),
            Place::Ready { .. } | Place::Starting { .. } | Place::Running { .. } => {
                self.on_late(key, TimeoutKind::Start, out);
            }
            Place::Rewinding { ended: true, .. } => self.on_late(key, TimeoutKind::Join, out),
            Place::Rewinding { .. } => self.on_late(key, TimeoutKind::Stop, out),
            Place::Stopping { then: Then::Over(TaskResult::Succeeded), .. }
                if self.cannot_save(key) =>
            {
                self.on_late(key, TimeoutKind::Stop, out)
            }
            Place::Stopping { then, .. } => {
                self.on_stopped(key, then.clone(), Gone::Unsure, None, out);
            }
            Place::Leaving { then: Then::Judge, .. } => {
                let ending = self.judge(key, None);
                self.on_fault(key, ending, Gone::Unsure, out);
            }
            // Its end was never confirmed. By now the agent, cut off from us, has stopped by itself.
            Place::Leaving { then, .. } => self.go_on(key, then.clone(), out),
            Place::Over { .. } => {}
        }
    }

    /// Whether outputs are wanted from an agent that is not heard. What keeps it from being heard keeps them from being
    /// saved, and that is not the task's fault.
    fn cannot_save(&self, key: TaskKey) -> bool {
        let wanted = self.stage == Stage::Active && !self.spec.outputs.is_empty();
        wanted && self.quiet_since(key).is_some()
    }

    /// An agent was quiet for too long, or else did not do what was waited for. One that is quiet when it is late
    /// may be on a node that is off: it is not called stubborn.
    fn on_late(&mut self, key: TaskKey, wait: TimeoutKind, out: &mut Vec<Action>) {
        let ending = match self.quiet_since(key) {
            Some(since) => Ending::HeartbeatTimeout { silent_for: self.now - since },
            None => {
                Ending::TimedOut { timeout: wait, after: self.now - self.task(key).place.since() }
            }
        };
        self.on_fault(key, ending, Gone::Unsure, out);
    }
}
