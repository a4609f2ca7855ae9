//! What follows the end of an attempt: the failure table at work.

use super::{Job, Mutant, Place, Stage, TaskKey, Then};
use crate::{
    action::Action,
    ending::{Cause, Ending, Outcome, TaskResult},
    event::{ContainerEnd, Exit},
    fact::{Next, What},
    id::ContainerId,
    spec::{Completion, Scope},
    time::{Span, Time},
};
use alloc::{
    collections::VecDeque,
    format,
    string::{String, ToString},
    vec::Vec,
};

/// So many attempts of a task in a row may end through their nodes; then it is no longer the nodes' fault.
const NODE_FAULTS: u32 = 5;

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

enum Verdict {
    /// After that wait; whether it used up a restart.
    Again(Span, bool),
    Tolerated,
    JobFails,
}

impl Ending {
    /// What an agent's report means.
    pub(super) fn from_exit(exit: &Exit) -> Ending {
        if let Some(why) = &exit.not_started {
            return Ending::NotStarted { why: why.clone() };
        }
        match (exit.code, exit.signal) {
            (Some(0), _) => Ending::Succeeded,
            _ if exit.port_taken.is_some() => Ending::PortTaken {
                port: exit.port_taken.unwrap_or_default(),
            },
            (Some(code), _) => Ending::Exited { code },
            (None, Some(signal)) => Ending::Signalled { signal },
            (None, None) => Ending::Signalled { signal: 9 },
        }
    }

    /// What the end of a container means whose agent said nothing.
    pub(super) fn from_container(end: ContainerEnd) -> Ending {
        match end {
            ContainerEnd::Completed { status } => Ending::AgentDied { status },
            ContainerEnd::MemoryLimit {
                used_mib,
                limit_mib,
            } => Ending::MemoryLimit {
                used_mib,
                limit_mib,
            },
            ContainerEnd::Preempted => Ending::Preempted,
            ContainerEnd::NodeLost | ContainerEnd::Released => Ending::Lost,
            ContainerEnd::NodeFault { why } => Ending::NodeFault { why },
        }
    }

    /// The same before the agent was ever heard: a container that cannot even run an agent is the node's fault.
    pub(super) fn before_join(end: ContainerEnd) -> Ending {
        match end {
            ContainerEnd::Completed { status } => Ending::NodeFault {
                why: format!("the agent ended with status {status} before it was ready"),
            },
            other => Ending::from_container(other),
        }
    }
}

impl Job {
    /// A task's container or agent failed it. While the job is ending that only means one thing less to wait for.
    pub(super) fn on_fault(
        &mut self,
        key: TaskKey,
        ending: Ending,
        gone: Gone,
        out: &mut Vec<Action>,
    ) {
        if self.stage == Stage::Active {
            self.on_attempt_over(key, ending, gone, out);
        } else {
            self.part(key, Then::Over(TaskResult::Stopped), gone, false, out);
        }
    }

    pub(super) fn on_attempt_over(
        &mut self,
        key: TaskKey,
        ending: Ending,
        gone: Gone,
        out: &mut Vec<Action>,
    ) {
        let ending = self.excuse(key, ending);
        self.task_mut(key).last_ending = Some(ending.to_string());
        if ending == Ending::Succeeded {
            // It has succeeded when its outputs are safe; `on_stopped` says so.
            self.part(key, Then::Over(TaskResult::Succeeded), gone, true, out);
            return;
        }
        let ran = matches!(self.task(key).place, Place::Rewinding { ended: false, .. });
        if ran && !ending.counts() {
            self.acquit(key);
        }
        let verdict = self.verdict(key, &ending);
        let next = match verdict {
            Verdict::Again(after, _) => Next::Again { after },
            Verdict::Tolerated => Next::Tolerated,
            Verdict::JobFails => Next::JobFails,
        };
        self.record_ended(key, &ending, next, out);
        if let Some(node) = self.task(key).node.clone() {
            self.blame(&node, key, &ending, out);
        }
        match verdict {
            Verdict::Again(after, counted) => {
                self.grow_memory(key, &ending, out);
                let at = self.now + after;
                let alone = self.disturbs_nobody(key);
                self.part(key, Then::Again { at }, gone, false, out);
                if !alone {
                    self.restart_others(key, Some(&ending), out);
                    // What never ran cannot have failed of another.
                    let failed = matches!(ending, Ending::Exited { .. } | Ending::Signalled { .. });
                    self.accuse(key, counted && failed);
                }
            }
            Verdict::Tolerated => {
                self.leave_gathering(key);
                self.roles[key.role].lost += 1;
                self.part(key, Then::Over(TaskResult::Failed(ending)), gone, true, out);
            }
            Verdict::JobFails => {
                let cause = self.cause(key, ending.clone());
                self.leave_gathering(key);
                self.roles[key.role].lost += 1;
                self.part(key, Then::Over(TaskResult::Failed(ending)), gone, true, out);
                self.begin_ending(Outcome::Failed(cause), out);
            }
        }
    }

    /// An agent that no master heard stops by itself, and that is nobody's fault.
    fn excuse(&self, key: TaskKey, ending: Ending) -> Ending {
        let on = self.task(key).place.container();
        let orphan = on
            .and_then(|on| self.held.get(on))
            .is_some_and(|held| held.orphan && !self.mutant.is(Mutant::BlamesOrphans));
        match ending {
            Ending::AgentDied { .. }
            | Ending::Silent { .. }
            | Ending::TooLate { .. }
            | Ending::NodeFault { .. }
            | Ending::Unsaved { .. }
                if orphan =>
            {
                Ending::Lost
            }
            other => other,
        }
    }

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
                self.on_attempt_over(key, Ending::Unsaved { why }, gone, out);
            }
            Some(why) if succeeded => {
                let ending = Ending::Unsaved { why };
                self.record_ended(key, &ending, Next::Nothing, out);
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
                let place = Place::Stopping {
                    on: on.clone(),
                    since: self.now,
                    save,
                    then,
                };
                self.set_place(key, place);
                out.push(Action::Tell(on));
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
                    let place = Place::Leaving {
                        since: self.now,
                        until: self.surely_gone(&on),
                        on,
                        then,
                    };
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
        let d = &self.spec.deadlines;
        let quiet = self.held.get(container).and_then(|held| held.quiet);
        let heard = quiet.map_or(self.now, |since| since.min(self.now));
        let silence = if self.mutant.is(Mutant::ForgetsTheCutOff) {
            Span(0)
        } else {
            d.silence
        };
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
                    self.record_ended(key, &Ending::Succeeded, Next::Done, out);
                }
                self.set_over(key, result);
            }
            Then::Again { .. } | Then::Judge => {
                self.set_over(key, TaskResult::Stopped);
            }
        }
    }

    /// The cause of an end in which both the agent and the node had a say. When the node never says why it ended
    /// the container, it was not the program.
    pub(super) fn judge(&self, key: TaskKey, end: Option<ContainerEnd>) -> Ending {
        match (end, &self.task(key).exit) {
            (None, _) => Ending::Lost,
            (Some(ContainerEnd::Completed { .. }), Some(exit)) => match Ending::from_exit(exit) {
                Ending::Succeeded => Ending::Signalled { signal: 15 },
                other => other,
            },
            (Some(end), _) => Ending::from_container(end),
        }
    }

    fn verdict(&mut self, key: TaskKey, ending: &Ending) -> Verdict {
        let restart = self.spec.roles[key.role].restart;
        let now = self.now;
        let task = self.task_mut(key);
        let mut counted = ending.counts();
        let mut after = Span(0);
        if ending.charges_node() {
            task.node_faults += 1;
            after = restart.backoff.after(task.node_faults);
            counted = task.node_faults > NODE_FAULTS;
        } else {
            task.node_faults = 0;
        }
        if *ending == Ending::Preempted && self.mutant.is(Mutant::CountsPreemption) {
            counted = true;
        }
        if matches!(ending, Ending::Silent { .. }) && self.mutant.is(Mutant::CountsSilence) {
            counted = true;
        }
        if !counted {
            return Verdict::Again(after, false);
        }
        let role = &mut self.roles[key.role];
        let failures = match restart.scope {
            Scope::Task => &mut role.tasks[key.index as usize].failures,
            Scope::Role | Scope::Job => &mut role.failures,
        };
        let recent = remember(failures, now, restart.window, restart.limit);
        if recent <= restart.limit || self.mutant.is(Mutant::IgnoresTheLimit) {
            return Verdict::Again(restart.backoff.after(recent), true);
        }
        if role.lost < self.tolerated(key.role) {
            Verdict::Tolerated
        } else {
            Verdict::JobFails
        }
    }

    pub(super) fn tolerated(&self, role: usize) -> u32 {
        let spec = &self.spec.roles[role];
        match spec.completion {
            // One success is enough, so all but one may fail.
            Completion::Any => spec.tolerate.max(self.roles[role].want.saturating_sub(1)),
            Completion::All | Completion::Decides | Completion::Service | Completion::Follows => {
                spec.tolerate
            }
        }
    }

    /// Whether the others need not care that this task starts again: their round has not begun, or this one's
    /// program was never part of it.
    fn disturbs_nobody(&self, key: TaskKey) -> bool {
        let task = self.task(key);
        match &task.place {
            Place::Launching { .. }
            | Place::Joining { .. }
            | Place::Ready { .. }
            | Place::Rewinding { .. } => true,
            Place::Starting { .. }
            | Place::Running { .. }
            | Place::Stopping { .. }
            | Place::Leaving { .. }
            | Place::Idle { .. }
            | Place::Asked { .. }
            | Place::Over { .. } => task.gathering.is_some(),
        }
    }

    /// Who else starts again because this task does.
    pub(super) fn restart_others(
        &mut self,
        key: TaskKey,
        ending: Option<&Ending>,
        out: &mut Vec<Action>,
    ) {
        // What it had learned is lost when its outputs are, and the others may be about to end without it.
        let unsaved = matches!(ending, Some(Ending::Unsaved { .. }));
        if self.is_told(key.role) && self.roles[key.role].runs() > 0 && !unsaved {
            self.go_on_without(key, out);
            return;
        }
        let scope = match ending {
            // It will have another port, and the others have been told of the old one.
            Some(Ending::PortTaken { .. }) if self.spec.gang.together => Scope::Job,
            _ => self.spec.roles[key.role].restart.scope,
        };
        match scope {
            Scope::Task => {}
            Scope::Role => self.new_round(Some(key.role), key, out),
            Scope::Job => self.new_round(None, key, out),
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
        let memory_mib = grown.min(growth.most_mib);
        if memory_mib > task.memory_mib {
            task.memory_mib = memory_mib;
            self.record(
                What::MemoryGrew {
                    task: self.id(key),
                    memory_mib,
                },
                out,
            );
        }
    }

    fn record_ended(&mut self, key: TaskKey, ending: &Ending, next: Next, out: &mut Vec<Action>) {
        let task = self.task(key);
        let Some(container) = task.place.container().cloned() else {
            return;
        };
        let exit = task.exit.as_ref();
        let what = What::AttemptEnded {
            task: self.id(key),
            attempt: task.attempt,
            round: task.round,
            node: self.held[&container].node.clone(),
            container,
            ending: ending.clone(),
            next,
            peak_memory_mib: exit.map_or(0, |exit| exit.peak_memory_mib),
            stderr_tail: exit
                .map(|exit| exit.stderr_tail.clone())
                .unwrap_or_default(),
        };
        self.record(what, out);
    }

    pub(super) fn cause(&self, key: TaskKey, ending: Ending) -> Cause {
        let task = self.task(key);
        Cause::Task {
            task: self.id(key),
            attempt: task.attempt,
            node: task.node.clone(),
            container: task.place.container().cloned(),
            ending,
            stderr_tail: task
                .exit
                .as_ref()
                .map(|e| e.stderr_tail.clone())
                .unwrap_or_default(),
        }
    }
}

/// Adds a failure to those remembered and says how many there are now.
fn remember(failures: &mut VecDeque<Time>, now: Time, window: Option<Span>, limit: u32) -> u32 {
    failures.push_back(now);
    if let Some(window) = window {
        while failures.front().is_some_and(|at| *at + window <= now) {
            failures.pop_front();
        }
    }
    // More than the limit are all the same.
    while failures.len() as u64 > u64::from(limit) + 1 {
        failures.pop_front();
    }
    failures.len() as u32
}
