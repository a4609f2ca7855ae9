//! Consequences of the end of an attempt: applies the failure table of ARCHITECTURE.md.
//!
//! An attempt ends by its program (`agent`), by its container (`backend`) or by a timeout
//! (`timeouts`). All of them lead to [`Job::on_attempt_over`].

use super::{Job, Mutant, NextStep, Phase, Stage, TaskKey, release::ContainerFate};
use crate::{
    action::Action,
    ending::{Cause, Ending, Outcome, TaskResult},
    event::{ContainerExit, ProgramExit},
    history::{Disposition, HistoryKind, RestartCause},
    spec::{Completion, RestartScope},
    time::{Span, Time},
};
use alloc::{collections::VecDeque, format, string::ToString, vec::Vec};

/// Consecutive attempts of a task that may end by node faults; further ones count as failures.
const MAX_NODE_FAULTS: u32 = 5;

/// Decision about an ended attempt. The history shows it as a [`Disposition`]; the task's
/// [`NextStep`] after the release of its container follows from it.
enum Verdict {
    /// Retry after a backoff; the flag is true if a restart is used up.
    Retry(Span, bool),
    Tolerate,
    /// The job fails, unless the failure follows from the loss of a peer.
    Suspect,
    FailJob,
}

impl Ending {
    /// Returns the ending for a program's exit.
    pub(super) fn from_exit(exit: &ProgramExit) -> Ending {
        if let Some(reason) = &exit.not_started {
            return Ending::NotStarted { reason: reason.clone() };
        }
        match (exit.code, exit.signal) {
            (Some(0), _) => Ending::Succeeded,
            _ if exit.port_taken.is_some() => {
                Ending::PortTaken { port: exit.port_taken.unwrap_or_default() }
            }
            _ if exit.outdated => Ending::Outdated,
            (Some(code), _) => Ending::Exited { code },
            (None, Some(signal)) => Ending::Signalled { signal },
            (None, None) => Ending::Signalled { signal: 9 },
        }
    }

    /// Returns the ending for a container whose agent sent no report.
    pub(super) fn from_container(end: ContainerExit) -> Ending {
        match end {
            ContainerExit::Completed { status } => Ending::AgentDied { status },
            ContainerExit::MemoryLimit { used_mib, limit_mib } => {
                Ending::MemoryLimit { used_mib, limit_mib }
            }
            ContainerExit::Preempted => Ending::Preempted,
            ContainerExit::NodeLost | ContainerExit::Released => Ending::Lost,
            ContainerExit::NodeFault { reason } => Ending::NodeFault { reason },
        }
    }

    /// Returns the ending for a container whose agent never reported: a container that cannot run
    /// an agent is a node fault.
    pub(super) fn before_join(end: ContainerExit) -> Ending {
        match end {
            ContainerExit::Completed { status } => Ending::NodeFault {
                reason: format!("the agent ended with status {status} before it was ready"),
            },
            other => Ending::from_container(other),
        }
    }
}

impl Job {
    /// Handles the failure of a container or agent. While the job is ending, it only completes the
    /// stop.
    pub(super) fn on_fault(
        &mut self,
        key: TaskKey,
        ending: Ending,
        fate: ContainerFate,
        out: &mut Vec<Action>,
    ) {
        if self.stage == Stage::Active {
            self.on_attempt_over(key, ending, fate, out);
        } else {
            self.release(key, NextStep::Finish(TaskResult::Stopped), fate, false, out);
        }
    }

    pub(super) fn on_attempt_over(
        &mut self,
        key: TaskKey,
        ending: Ending,
        fate: ContainerFate,
        out: &mut Vec<Action>,
    ) {
        let ending = match self.excuse(key, ending) {
            // A model server has no end of its own.
            Ending::Succeeded if self.serving(key.role).is_some() => Ending::Exited { code: 0 },
            other => other,
        };
        self.task_mut(key).last_ending = Some(ending.to_string());
        if ending == Ending::Succeeded {
            // The task has succeeded once its outputs are uploaded; see `on_stopped`.
            self.release(key, NextStep::Finish(TaskResult::Succeeded), fate, true, out);
            self.continue_without_finished(key.role, out);
            return;
        }
        let removed = self.serving(key.role).is_some() && self.task(key).dropped;
        if self.is_spare(key) || self.task(key).stopped || removed {
            self.record_ended(key, &ending, Disposition::NoAction, out);
            self.leave_pending_round(key);
            self.release(key, NextStep::Finish(TaskResult::Stopped), fate, true, out);
            return;
        }
        let ran = matches!(
            self.task(key).phase,
            Phase::Starting { .. } | Phase::Running { .. } | Phase::Restarting { ended: false, .. }
        );
        let exonerated = match ran && !ending.counts_as_failure() {
            true => self.exonerate(key, out),
            false => Vec::new(),
        };
        let had_succeeded = matches!(
            self.task(key).phase,
            Phase::Stopping { then: NextStep::Finish(TaskResult::Succeeded), .. }
        );
        let verdict = match self.decide(key, &ending) {
            Verdict::FailJob if self.is_suspect(key, &ending) => Verdict::Suspect,
            verdict => verdict,
        };
        let next = match verdict {
            Verdict::Retry(after, _) => Disposition::Retry { after },
            Verdict::Tolerate => Disposition::Tolerated,
            Verdict::Suspect => Disposition::Suspected,
            Verdict::FailJob => Disposition::FailJob,
        };
        self.record_ended(key, &ending, next, out);
        // Failures of sidecars do not exclude nodes for the job.
        let node = self.task(key).node.clone();
        let node = node.filter(|_| !matches!(verdict, Verdict::Suspect));
        let node = node.filter(|_| !self.spec.roles[key.role].is_sidecar());
        let node_charge = node.and_then(|node| self.charge_node(&node, key, &ending, out));
        match verdict {
            Verdict::Retry(after, counted) => {
                self.grow_memory(key, &ending, out);
                let at = self.now + after;
                let is_outside = self.is_outside_running_round(key);
                self.release(key, NextStep::Retry { at }, fate, false, out);
                if is_outside {
                    self.restart_exonerated(exonerated, out);
                    return;
                }
                match had_succeeded && !self.mutant.is(Mutant::ContinuesWithoutFailedUpload) {
                    // Its outputs are lost, and its peers may be about to end without it.
                    true => self.restart_scope(key, Some(&ending), out),
                    false => self.restart_others(key, Some(&ending), out),
                }
                // A program that never ran cannot have failed because of a peer.
                let failed = matches!(ending, Ending::Exited { .. } | Ending::Signalled { .. });
                if counted && failed {
                    self.remember_charged_failure(key, node_charge);
                }
                self.restart_exonerated(exonerated, out);
            }
            Verdict::Tolerate => {
                self.leave_pending_round(key);
                self.roles[key.role].failed += 1;
                self.release(key, NextStep::Finish(TaskResult::Failed(ending)), fate, true, out);
            }
            Verdict::Suspect => {
                let cause = self.cause(key, ending.clone());
                if self.suspicion.is_none() {
                    self.failed_at = Some(self.ended_at(key));
                }
                self.roles[key.role].failures.pop_back();
                self.roles[key.role].failed += 1;
                self.release(key, NextStep::Finish(TaskResult::Failed(ending)), fate, true, out);
                self.suspect(key, cause);
            }
            Verdict::FailJob => {
                let suspected = self.suspicion.as_ref().map(|suspicion| suspicion.cause.clone());
                let cause = match suspected {
                    Some(cause) => cause,
                    None => {
                        self.failed_at = Some(self.ended_at(key));
                        self.cause(key, ending.clone())
                    }
                };
                self.leave_pending_round(key);
                self.roles[key.role].failed += 1;
                self.release(key, NextStep::Finish(TaskResult::Failed(ending)), fate, true, out);
                self.begin_ending(Outcome::Failed(cause), out);
            }
        }
    }

    /// Replaces the ending of an orphaned agent: an agent without a master stops by itself, which
    /// is not a failure.
    fn excuse(&self, key: TaskKey, ending: Ending) -> Ending {
        let on = self.task(key).phase.container();
        let orphan = on
            .and_then(|on| self.held.get(on))
            .is_some_and(|held| held.orphaned && !self.mutant.is(Mutant::ChargesOrphans));
        match ending {
            Ending::AgentDied { .. }
            | Ending::HeartbeatTimeout { .. }
            | Ending::TimedOut { .. }
            | Ending::NodeFault { .. }
            | Ending::UploadFailed { .. }
                if orphan =>
            {
                Ending::Lost
            }
            other => other,
        }
    }

    /// Combines the reports of agent and node into an ending. If the node never reports why it
    /// ended the container, the program was not the cause.
    pub(super) fn diagnose(&self, key: TaskKey, end: Option<ContainerExit>) -> Ending {
        match (end, &self.task(key).exit) {
            (None, _) => Ending::Lost,
            (Some(ContainerExit::Completed { .. }), Some(exit)) => match Ending::from_exit(exit) {
                Ending::Succeeded => Ending::Signalled { signal: 15 },
                other => other,
            },
            (Some(end), _) => Ending::from_container(end),
        }
    }

    fn decide(&mut self, key: TaskKey, ending: &Ending) -> Verdict {
        let restart = self.spec.roles[key.role].restart;
        let now = self.now;
        let task = self.task_mut(key);
        let mut counted = ending.counts_as_failure();
        let mut after = Span(0);
        if ending.is_node_fault() {
            task.node_faults += 1;
            after = restart.backoff.delay(task.node_faults);
            counted = task.node_faults > MAX_NODE_FAULTS;
        } else {
            task.node_faults = 0;
        }
        if *ending == Ending::Preempted && self.mutant.is(Mutant::CountsPreemption) {
            counted = true;
        }
        if matches!(ending, Ending::HeartbeatTimeout { .. })
            && self.mutant.is(Mutant::CountsHeartbeatTimeout)
        {
            counted = true;
        }
        if !counted {
            return Verdict::Retry(after, false);
        }
        let role = &mut self.roles[key.role];
        let failures = match restart.scope {
            RestartScope::Task => &mut role.tasks[key.index as usize].failures,
            RestartScope::Role | RestartScope::Job => &mut role.failures,
        };
        let recent = remember(failures, now, restart.window, restart.limit);
        if recent <= restart.limit || self.mutant.is(Mutant::IgnoresRestartLimit) {
            return Verdict::Retry(restart.backoff.delay(recent), true);
        }
        if self.survives_crash_loop(key, ending) {
            return Verdict::Retry(restart.backoff.max, true);
        }
        let role = &self.roles[key.role];
        if role.failed < self.tolerated(key.role) { Verdict::Tolerate } else { Verdict::FailJob }
    }

    pub(super) fn tolerated(&self, role: usize) -> u32 {
        let spec = &self.spec.roles[role];
        match spec.completion {
            // One success is enough, so all but one may fail.
            Completion::Any => spec.tolerate.max(self.roles[role].want.saturating_sub(1)),
            Completion::Sidecar => u32::MAX,
            Completion::All | Completion::Primary | Completion::Service | Completion::Follows => {
                spec.tolerate
            }
        }
    }

    /// Returns true if a restart of the task does not affect its peers: their round has not
    /// started, or its program was never part of it.
    fn is_outside_running_round(&self, key: TaskKey) -> bool {
        let task = self.task(key);
        match &task.phase {
            Phase::Launching { .. }
            | Phase::Joining { .. }
            | Phase::Ready { .. }
            | Phase::Restarting { .. } => true,
            Phase::Starting { .. }
            | Phase::Running { .. }
            | Phase::Stopping { .. }
            | Phase::Releasing { .. }
            | Phase::BackingOff { .. }
            | Phase::Requested { .. }
            | Phase::Finished { .. } => task.pending.is_some(),
        }
    }

    /// Applies the restart scope to the peers of a task, or continues without it; with scope `task`
    /// nothing happens to them.
    pub(super) fn restart_others(
        &mut self,
        key: TaskKey,
        ending: Option<&Ending>,
        out: &mut Vec<Action>,
    ) {
        match self.is_notified(key.role) && self.roles[key.role].runs() > 0 {
            true => self.continue_without(key, out),
            false => self.restart_scope(key, ending, out),
        }
    }

    /// Applies the restart scope of a task to its peers; with scope `task` nothing happens to them.
    pub(super) fn restart_scope(
        &mut self,
        key: TaskKey,
        ending: Option<&Ending>,
        out: &mut Vec<Action>,
    ) {
        let scope = match ending {
            _ if self.spec.roles[key.role].is_sidecar() => RestartScope::Task,
            // It gets another port, and its peers know the old one.
            Some(Ending::PortTaken { .. }) if self.starts_together(key.role) => RestartScope::Job,
            _ => self.spec.roles[key.role].restart.scope,
        };
        match scope {
            RestartScope::Task => {}
            RestartScope::Role => {
                self.restart_round(Some(key.role), (key, RestartCause::AttemptEnded), out)
            }
            RestartScope::Job => self.restart_round(None, (key, RestartCause::AttemptEnded), out),
        }
    }

    fn grow_memory(&mut self, key: TaskKey, ending: &Ending, out: &mut Vec<Action>) {
        let Some(growth) = self.spec.roles[key.role].memory_growth else {
            return;
        };
        if !matches!(ending, Ending::MemoryLimit { .. }) {
            return;
        }
        let task = self.task_mut(key);
        let grown = task.memory_mib + task.memory_mib * u64::from(growth.percent) / 100;
        let memory_mib = grown.min(growth.max_mib);
        if memory_mib > task.memory_mib {
            task.memory_mib = memory_mib;
            self.record(HistoryKind::MemoryIncreased { task: self.id(key), memory_mib }, out);
        }
    }

    pub(super) fn record_ended(
        &mut self,
        key: TaskKey,
        ending: &Ending,
        next: Disposition,
        out: &mut Vec<Action>,
    ) {
        let task = self.task(key);
        let Some(container) = task.phase.container().cloned() else {
            return;
        };
        let exit = task.exit.as_ref();
        let kind = HistoryKind::AttemptEnded {
            task: self.id(key),
            attempt: task.attempt,
            round: task.round,
            node: self.held[&container].node.clone(),
            container,
            ending: ending.clone(),
            disposition: next,
            peak_memory_mib: exit.map_or(0, |exit| exit.peak_memory_mib),
            stderr_tail: exit.map(|exit| exit.stderr_tail.clone()).unwrap_or_default(),
        };
        self.record(kind, out);
    }

    pub(super) fn cause(&self, key: TaskKey, ending: Ending) -> Cause {
        let task = self.task(key);
        Cause::Task {
            task: self.id(key),
            attempt: task.attempt,
            node: task.node.clone(),
            container: task.phase.container().cloned(),
            ending,
            stderr_tail: task.exit.as_ref().map(|e| e.stderr_tail.clone()).unwrap_or_default(),
        }
    }
}

/// Records a failure and returns the number of recent ones.
fn remember(failures: &mut VecDeque<Time>, now: Time, window: Option<Span>, limit: u32) -> u32 {
    failures.push_back(now);
    if let Some(window) = window {
        while failures.front().is_some_and(|at| *at + window <= now) {
            failures.pop_front();
        }
    }
    // Counts beyond the limit are equivalent.
    while failures.len() as u64 > u64::from(limit) + 1 {
        failures.pop_front();
    }
    failures.len() as u32
}
