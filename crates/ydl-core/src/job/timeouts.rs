//! Timeouts of tasks and their consequences.

use super::{Job, Mutant, NextStep, Phase, Stage, TaskKey, release::ContainerFate, timers::Timer};
use crate::{
    action::Action,
    ending::{Cause, Ending, TaskResult, TimeoutKind},
    id::ContainerId,
    time::Time,
};
use alloc::vec::Vec;

impl Job {
    /// Returns the deadline of the task's current phase.
    pub(super) fn deadline(&self, key: TaskKey) -> Option<Time> {
        let phase = self.phase_deadline(key);
        let heartbeat = self
            .silent_since(key)
            .map(|since| since + self.spec.timeouts.heartbeat)
            .filter(|_| !self.mutant.is(Mutant::NoHeartbeatTimeout));
        [phase, heartbeat, self.replica_deadline(key)].into_iter().flatten().min()
    }

    fn phase_deadline(&self, key: TaskKey) -> Option<Time> {
        let timeouts = &self.spec.timeouts;
        let task = self.task(key);
        match &task.phase {
            Phase::BackingOff { until, .. } => Some(*until),
            // A pending round has one timeout for all its members, and tasks that start on their
            // own may wait for each other's containers as long as any of them has one.
            Phase::Requested { since } => {
                let is_outside_round = task.pending.is_none() && self.starts_together(key.role);
                is_outside_round.then(|| *since + timeouts.allocation)
            }
            Phase::Launching { since, .. } => Some(*since + timeouts.launch),
            // Inputs are downloaded before an agent is ready; the agent itself gives up when the
            // download stalls. An agent that never reported downloads nothing.
            Phase::Joining { on, since } if self.downloads_inputs(key) && self.has_reported(on) => {
                Some(*since + (timeouts.join + timeouts.fetch))
            }
            Phase::Joining { since, .. } => Some(*since + timeouts.join),
            Phase::Starting { .. } if self.mutant.is(Mutant::NoStartTimeout) => None,
            Phase::Starting { since, .. } => Some(*since + timeouts.start),
            // Inputs that the program has changed are downloaded again.
            Phase::Restarting { since, ended: true, .. } => {
                Some(*since + (timeouts.join + timeouts.fetch))
            }
            Phase::Restarting { since, .. } => Some(*since + (timeouts.grace + timeouts.stop)),
            Phase::Stopping { since, save, .. } => {
                let saving = *save && !self.spec.outputs.is_empty();
                let end = *since + (timeouts.grace + timeouts.stop);
                Some(if saving { end + timeouts.upload } else { end })
            }
            Phase::Releasing { until, .. } => Some(*until),
            Phase::Ready { .. } | Phase::Running { .. } | Phase::Finished { .. } => None,
        }
    }

    /// Returns true if inputs are downloaded before the program starts.
    pub(super) fn downloads_inputs(&self, key: TaskKey) -> bool {
        let role = &self.spec.roles[key.role];
        let replica = self.serving(key.role);
        if let Some(spec) = replica.and_then(|it| it.revision(self.task(key).replica.revision)) {
            return spec.inputs.iter().any(|input| input.form.is_fetched());
        }
        let mut inputs = self.spec.inputs_of(role);
        inputs.any(|input| input.form.is_fetched())
    }

    /// Returns true if the agent has reported to this master.
    fn has_reported(&self, container: &ContainerId) -> bool {
        self.held.get(container).is_some_and(|held| held.reported)
    }

    /// Returns true if the first report of this agent matters: during a download it has nothing
    /// else to report.
    pub fn expects_first_report(&self, container: &ContainerId) -> bool {
        let key = self.task_in(container);
        key.is_some_and(|key| self.downloads_inputs(key)) && !self.has_reported(container)
    }

    /// Returns the time since which the agent misses heartbeats, if it matters: an agent that never
    /// reported has another timeout, and one that exits need not report.
    fn silent_since(&self, key: TaskKey) -> Option<Time> {
        match &self.task(key).phase {
            Phase::Ready { on, .. }
            | Phase::Starting { on, .. }
            | Phase::Running { on, .. }
            | Phase::Restarting { on, .. }
            | Phase::Stopping { on, .. } => self.held.get(on)?.silent_since,
            // A download may take hours, and the agent sends heartbeats meanwhile.
            Phase::Joining { on, .. } if self.downloads_inputs(key) => {
                let held = self.held.get(on).filter(|held| !held.orphaned);
                held?.silent_since
            }
            Phase::Launching { .. }
            | Phase::Joining { .. }
            | Phase::Releasing { .. }
            | Phase::BackingOff { .. }
            | Phase::Requested { .. }
            | Phase::Finished { .. } => None,
        }
    }

    pub(super) fn arm(&mut self, key: TaskKey) {
        let at = self.deadline(key);
        self.timers.arm(Timer::Task(key), at);
    }

    /// Handles expired timers.
    pub(super) fn run_timers(&mut self, out: &mut Vec<Action>) {
        while let Some(timer) = self.timers.pop(self.now) {
            match timer {
                Timer::Task(key) => self.on_task_timer(key, out),
                Timer::PendingRound(round) => self.on_pending_round_timer(round, out),
                Timer::Starvation => {
                    let missing = self.describe_missing(self.starvation_since);
                    self.fail(Cause::NoContainers { missing }, out);
                }
                Timer::RunTimeout => {
                    if let Some(limit) = self.spec.timeouts.run {
                        self.fail(Cause::RunTimeout { limit }, out);
                    }
                }
                // `settle` applies the consequences.
                Timer::Followers | Timer::Suspicion | Timer::Rollout(_) => {}
                Timer::Readmission => self.on_readmission_timer(out),
            }
        }
    }

    fn on_task_timer(&mut self, key: TaskKey, out: &mut Vec<Action>) {
        if self.deadline(key).is_none_or(|at| at > self.now) {
            // A heartbeat or a report has moved the deadline since the timer was armed.
            self.arm(key);
            return;
        }
        if self.on_replica_timer(key, out) {
            return;
        }
        let phase = self.task(key).phase.clone();
        match &phase {
            Phase::BackingOff { .. } => self.ask(key),
            Phase::Requested { since } => {
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
            // Its exit was never confirmed. By now the agent, if partitioned, has stopped by
            // itself.
            Phase::Releasing { then, .. } => self.advance(key, then.clone(), out),
            Phase::Finished { .. } => {}
        }
    }

    /// Returns true if an upload is due from a silent agent. The fault that silences the agent also
    /// prevents the upload, and is not a failure of the task.
    fn cannot_upload(&self, key: TaskKey) -> bool {
        let wanted = self.stage == Stage::Active && !self.spec.outputs.is_empty();
        wanted && self.silent_since(key).is_some()
    }

    /// Handles an expired timeout. A late agent that is also silent may be on a failed node: its
    /// ending is a heartbeat timeout.
    pub(super) fn on_timeout(&mut self, key: TaskKey, wait: TimeoutKind, out: &mut Vec<Action>) {
        let ending = match self.silent_since(key) {
            Some(since) => Ending::HeartbeatTimeout { silent_for: self.now - since },
            None => {
                Ending::TimedOut { timeout: wait, after: self.now - self.task(key).phase.since() }
            }
        };
        self.on_fault(key, ending, ContainerFate::Unknown, out);
    }
}
