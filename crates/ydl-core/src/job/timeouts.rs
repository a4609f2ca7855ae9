//! What a deadline says when it passes.

use super::{Job, Mutant, NextStep, Phase, Stage, TaskKey, release::ContainerFate, timers::Timer};
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
        let phase = self.phase_deadline(key);
        let silence = self
            .silent_since(key)
            .map(|since| since + self.spec.timeouts.heartbeat)
            .filter(|_| !self.mutant.is(Mutant::NoHeartbeatTimeout));
        match (phase, silence) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn phase_deadline(&self, key: TaskKey) -> Option<Time> {
        let d = &self.spec.timeouts;
        let task = self.task(key);
        match &task.phase {
            Phase::BackingOff { until, .. } => Some(*until),
            // A gathering has a deadline for all of its members, and tasks that start on their own may wait for
            // each other's containers as long as any of them has one.
            Phase::Asked { since } => {
                let alone = task.pending.is_none() && self.starts_together(key.role);
                alone.then(|| *since + d.allocation)
            }
            Phase::Launching { since, .. } => Some(*since + d.launch),
            // Data comes before an agent is ready; the agent itself gives up when none comes for a while. Of one that was
            // never heard nothing is known to come.
            Phase::Joining { on, since } if self.downloads_inputs(key) && self.has_reported(on) => {
                Some(*since + (d.join + d.fetch))
            }
            Phase::Joining { since, .. } => Some(*since + d.join),
            Phase::Starting { .. } if self.mutant.is(Mutant::NoStartTimeout) => None,
            Phase::Starting { since, .. } => Some(*since + d.start),
            // What its program has changed of its data comes anew.
            Phase::Restarting { since, ended: true, .. } => Some(*since + (d.join + d.fetch)),
            Phase::Restarting { since, .. } => Some(*since + (d.grace + d.stop)),
            Phase::Stopping { since, save, .. } => {
                let saving = *save && !self.spec.outputs.is_empty();
                let end = *since + (d.grace + d.stop);
                Some(if saving { end + d.upload } else { end })
            }
            Phase::Releasing { until, .. } => Some(*until),
            Phase::Ready { .. } | Phase::Running { .. } | Phase::Finished { .. } => None,
        }
    }

    /// Whether data comes to the task before its program starts.
    pub(super) fn downloads_inputs(&self, key: TaskKey) -> bool {
        let role = &self.spec.roles[key.role];
        let mut inputs = self.spec.inputs_of(role);
        inputs.any(|input| input.form.is_fetched())
    }

    /// Whether the agent there has spoken to this master.
    fn has_reported(&self, container: &ContainerId) -> bool {
        self.held.get(container).is_some_and(|held| held.reported)
    }

    /// Whether it matters that this agent is heard for the first time: while its data comes it has nothing to report.
    pub fn expects_first_report(&self, container: &ContainerId) -> bool {
        let key = self.task_in(container);
        key.is_some_and(|key| self.downloads_inputs(key)) && !self.has_reported(container)
    }

    /// Since when the task's agent misses its beats, where that matters: an agent that was never heard is late,
    /// one that leaves need not be heard.
    fn silent_since(&self, key: TaskKey) -> Option<Time> {
        match &self.task(key).phase {
            Phase::Ready { on, .. }
            | Phase::Starting { on, .. }
            | Phase::Running { on, .. }
            | Phase::Restarting { on, .. }
            | Phase::Stopping { on, .. } => self.held.get(on)?.silent_since,
            // Data may come for hours, and its agent beats meanwhile.
            Phase::Joining { on, .. } if self.downloads_inputs(key) => {
                let heard = self.held.get(on).filter(|held| !held.orphaned);
                heard?.silent_since
            }
            Phase::Launching { .. }
            | Phase::Joining { .. }
            | Phase::Releasing { .. }
            | Phase::BackingOff { .. }
            | Phase::Asked { .. }
            | Phase::Finished { .. } => None,
        }
    }

    pub(super) fn arm(&mut self, key: TaskKey) {
        let at = self.deadline(key);
        self.timers.arm(Timer::Task(key), at);
    }

    /// Deadlines that have passed.
    pub(super) fn run_timers(&mut self, out: &mut Vec<Action>) {
        while let Some(timer) = self.timers.pop(self.now) {
            match timer {
                Timer::Task(key) => self.on_task_timer(key, out),
                Timer::PendingRound(round) => self.on_pending_round_timer(round, out),
                Timer::Starvation => {
                    let missing = self.describe_missing(self.starvation_since);
                    self.fail(Cause::NoContainers { missing }, out);
                }
                Timer::Run => {
                    if let Some(limit) = self.spec.timeouts.run {
                        self.fail(Cause::RunTimeout { limit }, out);
                    }
                }
                // What follows from it is settled afterwards.
                Timer::Followers | Timer::Suspicion => {}
                Timer::Readmission => self.on_readmission_timer(out),
            }
        }
    }

    fn on_task_timer(&mut self, key: TaskKey, out: &mut Vec<Action>) {
        if self.deadline(key).is_none_or(|at| at > self.now) {
            // A beat or an answer has moved it since it was armed.
            self.arm(key);
            return;
        }
        let phase = self.task(key).phase.clone();
        match &phase {
            Phase::BackingOff { .. } => self.ask(key),
            Phase::Asked { since } => {
                let missing = self.describe_missing(Some(*since));
                self.fail(Cause::NoContainers { missing }, out);
            }
            Phase::Launching { .. } => self.on_timeout(key, TimeoutKind::Launch, out),
            Phase::Joining { .. } => self.on_timeout(key, TimeoutKind::Join, out),
            Phase::Ready { .. } | Phase::Starting { .. } | Phase::Running { .. } => {
                self.on_timeout(key, TimeoutKind::Start, out);
            }
            Phase::Restarting { ended: true, .. } => self.on_timeout(key, TimeoutKind::Join, out),
            Phase::Restarting { .. } => self.on_timeout(key, TimeoutKind::Stop, out),
            Phase::Stopping { then: NextStep::Finish(TaskResult::Succeeded), .. }
                if self.cannot_upload(key) =>
            {
                self.on_timeout(key, TimeoutKind::Stop, out)
            }
            Phase::Stopping { then, .. } => {
                self.on_stopped(key, then.clone(), ContainerFate::Unknown, None, out);
            }
            Phase::Releasing { then: NextStep::Diagnose, .. } => {
                let ending = self.diagnose(key, None);
                self.on_fault(key, ending, ContainerFate::Unknown, out);
            }
            // Its end was never confirmed. By now the agent, cut off from us, has stopped by itself.
            Phase::Releasing { then, .. } => self.advance(key, then.clone(), out),
            Phase::Finished { .. } => {}
        }
    }

    /// Whether outputs are wanted from an agent that is not heard. What keeps it from being heard keeps them from being
    /// saved, and that is not the task's fault.
    fn cannot_upload(&self, key: TaskKey) -> bool {
        let wanted = self.stage == Stage::Active && !self.spec.outputs.is_empty();
        wanted && self.silent_since(key).is_some()
    }

    /// An agent was quiet for too long, or else did not do what was waited for. One that is quiet when it is late
    /// may be on a node that is off: it is not called stubborn.
    fn on_timeout(&mut self, key: TaskKey, wait: TimeoutKind, out: &mut Vec<Action>) {
        let ending = match self.silent_since(key) {
            Some(since) => Ending::HeartbeatTimeout { silent_for: self.now - since },
            None => {
                Ending::TimedOut { timeout: wait, after: self.now - self.task(key).phase.since() }
            }
        };
        self.on_fault(key, ending, ContainerFate::Unknown, out);
    }
}
