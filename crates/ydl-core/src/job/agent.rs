//! What agents say. Each message names its container, and that is the fence.

use super::{Job, Mutant, Place, Stage, TaskKey, Then, part::Gone};
use crate::{
    action::Action, cluster::Endpoint, ending::Ending, event::ProgramExit, history::HistoryKind,
    id::ContainerId,
};
use alloc::{string::String, vec::Vec};

impl Job {
    pub(super) fn on_ready(
        &mut self,
        container: &ContainerId,
        round: u32,
        endpoint: Endpoint,
        out: &mut Vec<Action>,
    ) {
        let Some(key) = self.heard_from(container) else {
            return;
        };
        let task = self.task(key);
        // Ready for an earlier round: its order already names the new one, and it will say so.
        if round != task.round && !self.mutant.is(Mutant::AnyRoundIsReady) {
            return;
        }
        match &task.place {
            Place::Launching { .. } | Place::Joining { .. } | Place::Rewinding { .. } => {
                self.task_mut(key).endpoint = Some(endpoint);
                let place = Place::Ready { on: container.clone(), since: self.now };
                self.set_place(key, place);
                if self.task(key).gathering.is_none() {
                    self.start_alone(key, out);
                }
            }
            Place::Ready { .. } => self.task_mut(key).endpoint = Some(endpoint),
            Place::Starting { .. }
            | Place::Running { .. }
            | Place::Stopping { .. }
            | Place::Leaving { .. }
            | Place::Idle { .. }
            | Place::Asked { .. }
            | Place::Over { .. } => {}
        }
    }

    pub(super) fn on_unready(
        &mut self,
        container: &ContainerId,
        why: String,
        node: bool,
        out: &mut Vec<Action>,
    ) {
        let Some(key) = self.heard_from(container) else {
            return;
        };
        match &self.task(key).place {
            Place::Launching { .. }
            | Place::Joining { .. }
            | Place::Ready { .. }
            | Place::Rewinding { .. } => {
                let ending = match node {
                    true => Ending::NodeFault { why },
                    false => Ending::SetupFailed { why },
                };
                self.on_fault(key, ending, Gone::AgentAlive, out);
            }
            // Said before it was told to run or to stop, or said twice.
            Place::Starting { .. }
            | Place::Running { .. }
            | Place::Stopping { .. }
            | Place::Leaving { .. }
            | Place::Idle { .. }
            | Place::Asked { .. }
            | Place::Over { .. } => {}
        }
    }

    pub(super) fn on_started(
        &mut self,
        container: &ContainerId,
        round: u32,
        out: &mut Vec<Action>,
    ) {
        let Some(key) = self.heard_from(container) else {
            return;
        };
        let task = self.task(key);
        let Place::Starting { on, .. } = &task.place else {
            return;
        };
        if round != task.round {
            return;
        }
        let what = HistoryKind::AttemptStarted {
            task: self.id(key),
            attempt: task.attempt,
            round,
            container: on.clone(),
            node: self.held[on].node.clone(),
        };
        let place = Place::Running { on: on.clone(), since: self.now };
        self.set_place(key, place);
        self.record(what, out);
    }

    pub(super) fn on_exited(
        &mut self,
        container: &ContainerId,
        round: u32,
        exit: ProgramExit,
        out: &mut Vec<Action>,
    ) {
        let Some(key) = self.heard_from(container) else {
            return;
        };
        let task = self.task(key);
        let signalled = exit.container_signalled && !self.mutant.is(Mutant::TakesTheAgentsWord);
        let stopped = matches!(task.place, Place::Rewinding { ended: false, .. });
        if signalled && stopped && round < task.round {
            // It will not be ready again.
            self.task_mut(key).exit = Some(exit);
            self.await_judgement(key, container);
            let acquitted = self.acquit(key, out);
            self.bring_back(acquitted, out);
            return;
        }
        if let Place::Rewinding { on, ended: false, .. } = &task.place
            && round < task.round
            && self.fetches(key)
        {
            let place = Place::Rewinding { on: on.clone(), since: self.now, ended: true };
            self.set_place(key, place);
            return;
        }
        if let Place::Stopping { .. } = &task.place
            && round == task.round
        {
            // Others may wait until it runs no more; what it has made may take long to be saved.
            self.task_mut(key).exit.get_or_insert(exit);
            self.fall_silent(key);
            return;
        }
        let runs = matches!(task.place, Place::Starting { .. } | Place::Running { .. });
        if !runs || (round != task.round && !self.mutant.is(Mutant::LateExitCounts)) {
            return;
        }
        let ending = Ending::from_exit(&exit);
        self.task_mut(key).exit = Some(exit);
        self.fall_silent(key);
        if signalled {
            self.await_judgement(key, container);
            let acquitted = self.acquit(key, out);
            // Its peers may die of it before the cause is known: they are stopped now, and their deaths are nobody's.
            let ran = self.stage == Stage::Active && self.task(key).gathering.is_none();
            if ran && self.range(key.role).is_some() {
                self.restart_others(key, None, out);
            }
            self.bring_back(acquitted, out);
        } else {
            self.on_attempt_over(key, ending, Gone::AgentAlive, out);
        }
    }

    /// The node is ending the container: what it says of the container's end is the cause.
    fn await_judgement(&mut self, key: TaskKey, container: &ContainerId) {
        let deadlines = &self.spec.timeouts;
        let place = Place::Leaving {
            on: container.clone(),
            since: self.now,
            until: self.now + (deadlines.grace + deadlines.stop),
            then: Then::Judge,
        };
        self.set_place(key, place);
    }

    pub(super) fn on_saved(
        &mut self,
        container: &ContainerId,
        error: Option<String>,
        out: &mut Vec<Action>,
    ) {
        let Some(key) = self.heard_from(container) else {
            return;
        };
        match self.task(key).place.clone() {
            Place::Stopping { then, .. } => self.on_stopped(key, then, Gone::Left, error, out),
            // How the container ends is still to be learned.
            Place::Leaving { then: Then::Judge, .. } => {}
            Place::Leaving { then, .. } => self.go_on(key, then, out),
            Place::Launching { .. }
            | Place::Joining { .. }
            | Place::Ready { .. }
            | Place::Starting { .. }
            | Place::Running { .. }
            | Place::Rewinding { .. }
            | Place::Idle { .. }
            | Place::Asked { .. }
            | Place::Over { .. } => {}
        }
    }

    pub(super) fn on_quieted(&mut self, container: &ContainerId) {
        let now = self.now;
        let Some(key) = self.task_in(container) else {
            return;
        };
        // An agent that is not ready is late, and that has its own deadline; not so while data comes.
        match &self.task(key).place {
            Place::Launching { .. } => return,
            Place::Joining { .. } if !self.fetches(key) => return,
            _ => {}
        }
        if let Some(held) = self.held.get_mut(container) {
            held.quiet.get_or_insert(now);
        }
        self.arm(key);
    }

    /// The task of a container whose agent has just spoken, which is a sign of life whatever it said.
    pub(super) fn heard_from(&mut self, container: &ContainerId) -> Option<TaskKey> {
        let key = self.task_in(container)?;
        let deaf = self.mutant.is(Mutant::DeafToTheQuiet);
        if let Some(held) = self.held.get_mut(container) {
            held.heard = true;
            if !deaf {
                held.quiet = None;
                held.orphan = false;
            }
        }
        Some(key)
    }
}
