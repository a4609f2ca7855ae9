//! How a task and its container part: when nothing of it can run any more, and what it does then.

use super::{Job, Mutant, Place, Stage, TaskKey, Then};
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
pub(super) enum Gone {
    /// The agent lives and obeys: it is told to stop.
    AgentAlive,
    /// The agent has stopped its program and is leaving.
    Left,
    /// The container has ended.
    Ended,
    /// We cannot know: the container is given back and its end awaited.
    Unsure,
}

impl Job {
    /// A task is done with its container, one way or another.
    pub(super) fn on_stopped(
        &mut self,
        key: TaskKey,
        then: Then,
        gone: Gone,
        error: Option<String>,
        out: &mut Vec<Action>,
    ) {
        let unsaved = match (error, gone) {
            (Some(why), _) => Some(why),
            (None, Gone::Left) => None,
            (None, _) if self.spec.outputs.is_empty() => None,
            (None, _) if self.mutant.is(Mutant::IgnoresTheUnsaved) => None,
            (None, Gone::Ended) => Some("the container ended first".to_string()),
            (None, Gone::AgentAlive | Gone::Unsure) => {
                Some("copying them took too long".to_string())
            }
        };
        let succeeded = then == Then::Over(TaskResult::Succeeded);
        match unsaved {
            Some(why) if succeeded && self.stage == Stage::Active => {
                self.on_attempt_over(key, Ending::UploadFailed { why }, gone, out);
            }
            Some(why) if succeeded => {
                let ending = Ending::UploadFailed { why };
                self.record_ended(key, &ending, Disposition::NoAction, out);
                let then = Then::Over(TaskResult::Failed(ending));
                self.part(key, then, gone, false, out);
            }
            Some(_) | None => self.part(key, then, gone, false, out),
        }
    }

    /// Separates a task from its container, as far as it is known to be gone, and goes on.
    pub(super) fn part(
        &mut self,
        key: TaskKey,
        then: Then,
        gone: Gone,
        save: bool,
        out: &mut Vec<Action>,
    ) {
        let Some(on) = self.task(key).place.container().cloned() else {
            self.go_on(key, then, out);
            return;
        };
        match gone {
            Gone::AgentAlive => {
                let place = Place::Stopping { on: on.clone(), since: self.now, save, then };
                self.set_place(key, place);
                out.push(Action::OrderChanged(on));
            }
            Gone::Ended => self.go_on(key, then, out),
            Gone::Left => {
                out.push(Action::Release(on));
                self.go_on(key, then, out);
            }
            Gone::Unsure => {
                out.push(Action::Release(on.clone()));
                // Once the job is ending nothing follows that a survivor could disturb.
                let wait = self.stage == Stage::Active
                    && self.may_run(key)
                    && !self.mutant.is(Mutant::ReplacesTheLiving);
                if wait {
                    let place =
                        Place::Leaving { since: self.now, until: self.surely_gone(&on), on, then };
                    self.set_place(key, place);
                } else {
                    self.go_on(key, then, out);
                }
            }
        }
    }

    /// When the agent in a container, were it cut off from us since it was last heard, has stopped by itself.
    /// Every answer it gets from now on tells it to stop.
    fn surely_gone(&self, container: &ContainerId) -> Time {
        let d = &self.spec.timeouts;
        let quiet = self.held.get(container).and_then(|held| held.quiet);
        let heard = quiet.map_or(self.now, |since| since.min(self.now));
        let silence = if self.mutant.is(Mutant::ForgetsTheCutOff) { Span(0) } else { d.heartbeat };
        heard + (silence + d.grace + d.stop)
    }

    /// The task has no container any more.
    pub(super) fn go_on(&mut self, key: TaskKey, then: Then, out: &mut Vec<Action>) {
        match then {
            Then::Again { at } if self.stage == Stage::Active => {
                let task = self.task_mut(key);
                task.attempt += 1;
                task.endpoint = None;
                task.exit = None;
                if at > self.now {
                    let since = self.now;
                    self.set_place(key, Place::Idle { since, until: at });
                } else {
                    self.ask(key);
                }
            }
            Then::Over(result) => {
                if result == TaskResult::Succeeded {
                    self.record_ended(key, &Ending::Succeeded, Disposition::Done, out);
                }
                self.set_over(key, result);
            }
            Then::Again { .. } | Then::Judge => {
                self.set_over(key, TaskResult::Stopped);
            }
        }
    }
}
