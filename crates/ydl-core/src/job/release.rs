//! Release of a task's container, and the task's next step.

use super::{Job, Mutant, NextStep, Phase, Stage, TaskKey};
use crate::{
    action::Action,
    ending::{Ending, TaskResult},
    history::Disposition,
    id::ContainerId,
    time::{Span, Time},
};
use alloc::{
    string::{String, ToString},
    vec::Vec,
};

/// State of a container and its agent when it is released, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContainerFate {
    /// The agent is alive and is told to stop.
    AgentAlive,
    /// The agent has stopped its program and exits.
    AgentLeft,
    /// The container has ended.
    Ended,
    /// Unknown: the container is released and its exit awaited.
    Unknown,
}

impl Job {
    /// Handles the end of a stop.
    pub(super) fn on_stopped(
        &mut self,
        key: TaskKey,
        then: NextStep,
        fate: ContainerFate,
        error: Option<String>,
        out: &mut Vec<Action>,
    ) {
        let unsaved = match (error, fate) {
            (Some(reason), _) => Some(reason),
            (None, ContainerFate::AgentLeft) => None,
            (None, _) if self.spec.outputs.is_empty() => None,
            (None, _) if self.mutant.is(Mutant::IgnoresUploadFailure) => None,
            (None, ContainerFate::Ended) => Some("the container ended first".to_string()),
            (None, ContainerFate::AgentAlive | ContainerFate::Unknown) => {
                Some("the upload timed out".to_string())
            }
        };
        let succeeded = then == NextStep::Finish(TaskResult::Succeeded);
        match unsaved {
            Some(reason) if succeeded && self.stage == Stage::Active => {
                self.on_attempt_over(key, Ending::UploadFailed { reason }, fate, out);
            }
            Some(reason) if succeeded => {
                let ending = Ending::UploadFailed { reason };
                self.record_ended(key, &ending, Disposition::NoAction, out);
                let then = NextStep::Finish(TaskResult::Failed(ending));
                self.release(key, then, fate, false, out);
            }
            Some(_) | None => self.release(key, then, fate, false, out),
        }
    }

    /// Orders a live agent to stop, and to upload the outputs first if `save` is set. Otherwise
    /// releases the container, unless it has ended, and advances the task once no program can run
    /// there.
    pub(super) fn release(
        &mut self,
        key: TaskKey,
        then: NextStep,
        fate: ContainerFate,
        save: bool,
        out: &mut Vec<Action>,
    ) {
        let Some(on) = self.task(key).phase.container().cloned() else {
            self.advance(key, then, out);
            return;
        };
        match fate {
            ContainerFate::AgentAlive => {
                let phase = Phase::Stopping { on: on.clone(), since: self.now, save, then };
                self.set_phase(key, phase);
                out.push(Action::OrderChanged(on));
            }
            ContainerFate::Ended => self.advance(key, then, out),
            ContainerFate::AgentLeft => {
                out.push(Action::Release(on));
                self.advance(key, then, out);
            }
            ContainerFate::Unknown => {
                out.push(Action::Release(on.clone()));
                // Once the job is ending, no later task can conflict with a survivor.
                let wait = self.stage == Stage::Active
                    && self.may_run(key)
                    && !self.mutant.is(Mutant::ReplacesLiveTasks);
                if wait {
                    let phase =
                        Phase::Releasing { since: self.now, until: self.stopped_by(&on), on, then };
                    self.set_phase(key, phase);
                } else {
                    self.advance(key, then, out);
                }
            }
        }
    }

    /// Returns the time by which the agent, if partitioned since its last heartbeat, has stopped by
    /// itself. Every response from now on tells it to stop.
    fn stopped_by(&self, container: &ContainerId) -> Time {
        let timeouts = &self.spec.timeouts;
        let silent_since = self.held.get(container).and_then(|held| held.silent_since);
        let last_report = silent_since.map_or(self.now, |since| since.min(self.now));
        let heartbeat = if self.mutant.is(Mutant::IgnoresPartitionedAgents) {
            Span(0)
        } else {
            timeouts.heartbeat
        };
        last_report + (heartbeat + timeouts.grace + timeouts.stop)
    }

    /// Moves the task to its next phase; its container is no longer held afterwards.
    pub(super) fn advance(&mut self, key: TaskKey, then: NextStep, out: &mut Vec<Action>) {
        match then {
            NextStep::Retry { at } if self.stage == Stage::Active => {
                let forgets = self.mutant.is(Mutant::ForgetsTaskVariables);
                let task = self.task_mut(key);
                task.attempt += 1;
                task.endpoint = None;
                task.exit = None;
                if forgets {
                    task.env.clear();
                }
                if at > self.now {
                    let since = self.now;
                    self.set_phase(key, Phase::BackingOff { since, until: at });
                } else {
                    self.ask(key);
                }
            }
            NextStep::Finish(result) => {
                if result == TaskResult::Succeeded {
                    self.record_ended(key, &Ending::Succeeded, Disposition::Done, out);
                }
                self.finish_task(key, result);
            }
            NextStep::Retry { .. } | NextStep::Diagnose => {
                self.finish_task(key, TaskResult::Stopped);
            }
        }
    }
}
