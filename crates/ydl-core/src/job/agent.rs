//! Events from agents. Each names its container, which fences earlier attempts.

use super::{Job, Mutant, NextStep, Phase, Stage, TaskKey, release::ContainerFate};
use crate::{
    action::Action, cluster::Endpoint, ending::Ending, event::ProgramExit, history::HistoryKind,
    id::ContainerId,
};
use alloc::{string::String, vec::Vec};

impl Job {
    pub(super) fn on_agent_ready(
        &mut self,
        container: &ContainerId,
        round: u32,
        endpoint: Endpoint,
        out: &mut Vec<Action>,
    ) {
        let Some(key) = self.record_report(container) else {
            return;
        };
        let task = self.task(key);
        // Ready for an earlier round: its order already names the new one, and the agent will
        // report again.
        if round != task.round && !self.mutant.is(Mutant::AnyRoundIsReady) {
            return;
        }
        match &task.phase {
            Phase::Launching { .. } | Phase::Joining { .. } | Phase::Restarting { .. } => {
                self.task_mut(key).endpoint = Some(endpoint);
                let phase = Phase::Ready { on: container.clone(), since: self.now };
                self.set_phase(key, phase);
                if self.task(key).pending.is_none() {
                    self.start_outside_round(key, out);
                }
            }
            Phase::Ready { .. } => self.task_mut(key).endpoint = Some(endpoint),
            Phase::Starting { .. }
            | Phase::Running { .. }
            | Phase::Stopping { .. }
            | Phase::Releasing { .. }
            | Phase::BackingOff { .. }
            | Phase::Requested { .. }
            | Phase::Finished { .. } => {}
        }
    }

    pub(super) fn on_setup_failed(
        &mut self,
        container: &ContainerId,
        reason: String,
        node: bool,
        out: &mut Vec<Action>,
    ) {
        let Some(key) = self.record_report(container) else {
            return;
        };
        match &self.task(key).phase {
            Phase::Launching { .. }
            | Phase::Joining { .. }
            | Phase::Ready { .. }
            | Phase::Restarting { .. } => {
                let ending = match node {
                    true => Ending::NodeFault { reason },
                    false => Ending::SetupFailed { reason },
                };
                self.on_fault(key, ending, ContainerFate::AgentAlive, out);
            }
            // Sent before the order to run or to stop, or sent twice.
            Phase::Starting { .. }
            | Phase::Running { .. }
            | Phase::Stopping { .. }
            | Phase::Releasing { .. }
            | Phase::BackingOff { .. }
            | Phase::Requested { .. }
            | Phase::Finished { .. } => {}
        }
    }

    pub(super) fn on_started(
        &mut self,
        container: &ContainerId,
        round: u32,
        out: &mut Vec<Action>,
    ) {
        let Some(key) = self.record_report(container) else {
            return;
        };
        let task = self.task(key);
        let Phase::Starting { on, .. } = &task.phase else {
            return;
        };
        if round != task.round {
            return;
        }
        let kind = HistoryKind::AttemptStarted {
            task: self.id(key),
            attempt: task.attempt,
            round,
            container: on.clone(),
            node: self.held[on].node.clone(),
        };
        let phase = Phase::Running { on: on.clone(), since: self.now };
        self.set_phase(key, phase);
        self.record(kind, out);
    }

    /// Handles the exit of a program: one that ran, one that its agent was told to restart, or one
    /// that is being stopped.
    pub(super) fn on_exited(
        &mut self,
        container: &ContainerId,
        round: u32,
        exit: ProgramExit,
        out: &mut Vec<Action>,
    ) {
        let Some(key) = self.record_report(container) else {
            return;
        };
        let task = self.task(key);
        let signalled = exit.container_signalled && !self.mutant.is(Mutant::TrustsAgentExit);
        let was_told_to_stop = matches!(task.phase, Phase::Restarting { ended: false, .. });
        if signalled && was_told_to_stop && round < task.round {
            // The container is being ended, so its agent will not report ready.
            self.task_mut(key).exit = Some(exit);
            self.await_container_exit(key, container);
            let exonerated = self.exonerate(key, out);
            self.restart_exonerated(exonerated, out);
            return;
        }
        if let Phase::Restarting { on, ended: false, .. } = &task.phase
            && round < task.round
            && self.downloads_inputs(key)
        {
            let phase = Phase::Restarting { on: on.clone(), since: self.now, ended: true };
            self.set_phase(key, phase);
            return;
        }
        if let Phase::Stopping { .. } = &task.phase
            && round == task.round
        {
            if task.exit.is_none() {
                let ending = Ending::from_exit(&exit);
                self.task_mut(key).exit = Some(exit);
                self.revise_cause(key, ending, out);
            }
            // Peers may wait for the end of the program; the upload may take longer.
            self.retire_run(key);
            return;
        }
        let runs = matches!(task.phase, Phase::Starting { .. } | Phase::Running { .. });
        if !runs || (round != task.round && !self.mutant.is(Mutant::LateExitCounts)) {
            return;
        }
        let ending = Ending::from_exit(&exit);
        self.task_mut(key).exit = Some(exit);
        self.retire_run(key);
        if signalled {
            self.await_container_exit(key, container);
            let exonerated = self.exonerate(key, out);
            // Its peers may fail because of it before the cause is known. They are stopped now, and
            // their failures are not charged.
            let ran = self.stage == Stage::Active && self.task(key).pending.is_none();
            if ran && self.range(key.role).is_some() {
                self.restart_others(key, None, out);
            }
            self.restart_exonerated(exonerated, out);
        } else {
            self.on_attempt_over(key, ending, ContainerFate::AgentAlive, out);
        }
    }

    /// Waits for the exit of a container that its node is ending; that exit is the cause.
    fn await_container_exit(&mut self, key: TaskKey, container: &ContainerId) {
        let timeouts = &self.spec.timeouts;
        let phase = Phase::Releasing {
            on: container.clone(),
            since: self.now,
            until: self.now + (timeouts.grace + timeouts.stop),
            then: NextStep::Diagnose,
        };
        self.set_phase(key, phase);
    }

    pub(super) fn on_agent_stopped(
        &mut self,
        container: &ContainerId,
        upload_error: Option<String>,
        out: &mut Vec<Action>,
    ) {
        let Some(key) = self.record_report(container) else {
            return;
        };
        match self.task(key).phase.clone() {
            Phase::Stopping { then, .. } => {
                self.on_stopped(key, then, ContainerFate::AgentLeft, upload_error, out)
            }
            // The exit of the container is not known yet.
            Phase::Releasing { then: NextStep::Diagnose, .. } => {}
            Phase::Releasing { then, .. } => self.advance(key, then, out),
            Phase::Launching { .. }
            | Phase::Joining { .. }
            | Phase::Ready { .. }
            | Phase::Starting { .. }
            | Phase::Running { .. }
            | Phase::Restarting { .. }
            | Phase::BackingOff { .. }
            | Phase::Requested { .. }
            | Phase::Finished { .. } => {}
        }
    }

    pub(super) fn on_heartbeat_missed(&mut self, container: &ContainerId) {
        let now = self.now;
        let Some(key) = self.task_in(container) else {
            return;
        };
        // An agent that is not ready has its own timeout, except while it downloads inputs.
        match &self.task(key).phase {
            Phase::Launching { .. } => return,
            Phase::Joining { .. } if !self.downloads_inputs(key) => return,
            _ => {}
        }
        if let Some(held) = self.held.get_mut(container) {
            held.silent_since.get_or_insert(now);
        }
        self.arm(key);
    }

    /// Records that an agent has reported, and returns its task.
    pub(super) fn record_report(&mut self, container: &ContainerId) -> Option<TaskKey> {
        let key = self.task_in(container)?;
        let ignores_resumed = self.mutant.is(Mutant::IgnoresHeartbeatResumed);
        if let Some(held) = self.held.get_mut(container) {
            held.reported = true;
            if !ignores_resumed {
                held.silent_since = None;
                held.orphaned = false;
            }
        }
        Some(key)
    }
}
