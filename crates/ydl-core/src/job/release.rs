//! How a task and its container part: when nothing of it can run any more, and what it does then.

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

/// How sure we are that nothing of the attempt still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContainerFate {
    /// The agent lives and obeys: it is told to stop.
    AgentAlive,
    /// The agent has stopped its program and is leaving.
    AgentLeft,
    /// The container has ended.
    Ended,
    /// We cannot know: the container is given back and its end awaited.
    Unknown,
}

impl Job {
    /// A task is done with its container, one way or another.
    pub(super) fn on_stopped(
        &mut self,
        key: TaskKey,
        then: NextStep,
        gone: ContainerFate,
        error: Option<String>,
        out: &mut Vec<Action>,
    ) {
        let unsaved = match (error, gone) {
            (Some(why), _) => Some(why),
            (None, ContainerFate::AgentLeft) => None,
            (None, _) if self.spec.outputs.is_empty() => None,
            (None, _) if self.mutant.is(Mutant::IgnoresUploadFailure) => None,
            (None, ContainerFate::Ended) => Some("the container ended first".to_string()),
            (None, ContainerFate::AgentAlive | ContainerFate::Unknown) => {
                Some("copying them took too long".to_string())
            }
        };
        let succeeded = then == NextStep::Finish(TaskResult::Succeeded);
        match unsaved {
            Some(why) if succeeded && self.stage == Stage::Active => {
                self.on_attempt_over(key, Ending::UploadFailed { reason: why }, gone, out);
            }
            Some(why) if succeeded => {
                let ending = Ending::UploadFailed { reason: why };
                self.record_ended(key, &ending, Disposition::NoAction, out);
                let then = NextStep::Finish(TaskResult::Failed(ending));
                self.release(key, then, gone, false, out);
            }
            Some(_) | None => self.release(key, then, gone, false, out),
        }
    }

    /// Separates a task from its container, as far as it is known to be gone, and goes on.
    pub(super) fn release(
        &mut self,
        key: TaskKey,
        then: NextStep,
        gone: ContainerFate,
        save: bool,
        out: &mut Vec<Action>,
    ) {
        let Some(on) = self.task(key).phase.container().cloned() else {
            self.advance(key, then, out);
            return;
        };
        match gone {
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
                // Once the job is ending nothing follows that a survivor could disturb.
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

    /// When the agent in a container, were it cut off from us since it was last heard, has stopped by itself.
    /// Every answer it gets from now on tells it to stop.
    fn stopped_by(&self, container: &ContainerId) -> Time {
        let d = &self.spec.timeouts;
        let quiet = self.held.get(container).and_then(|held| held.silent_since);
        let heard = quiet.map_or(self.now, |since| since.min(self.now));
        let silence =
            if self.mutant.is(Mutant::IgnoresPartitionedAgents) { Span(0) } else { d.heartbeat };
        heard + (silence + d.grace + d.stop)
    }

    /// The task has no container any more.
    pub(super) fn advance(&mut self, key: TaskKey, then: NextStep, out: &mut Vec<Action>) {
        match then {
            NextStep::Retry { at } if self.stage == Stage::Active => {
                let task = self.task_mut(key);
                task.attempt += 1;
                task.endpoint = None;
                task.exit = None;
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
