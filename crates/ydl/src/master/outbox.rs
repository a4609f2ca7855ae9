//! What is to be done once that which led to it is safe in the diary.

use super::{
    agents::Seen,
    inbox::{Answer, Kept},
    links::Passed,
};
use tokio::sync::oneshot;
use ydl_core::{Action, ContainerId, TaskId};

/// Something the master does that others see.
#[derive(Debug)]
pub(super) enum Effect {
    /// What the core says.
    Act(Action),
    /// An agent is told what its program is to be told.
    Pass(Passed),
    /// Somebody is answered.
    Answer(oneshot::Sender<Answer>, Answer),
    /// What an agent said of its program's links is kept; what it is to be told goes with the answer.
    Said {
        task: TaskId,
        /// Of its connection.
        number: u64,
        answer: oneshot::Sender<Answer>,
    },
    /// What an agent said is kept; it waits for its order, which is read when its turn comes.
    Listen { container: ContainerId, seen: Seen, answer: oneshot::Sender<Answer>, kept: Kept },
}

/// Effects in the order in which they were decided.
#[derive(Debug, Default)]
pub(super) struct Outbox(Vec<Effect>);

impl Outbox {
    pub(super) fn act(&mut self, actions: Vec<Action>) {
        self.0.extend(actions.into_iter().map(Effect::Act));
    }

    pub(super) fn answer(&mut self, to: oneshot::Sender<Answer>, with: impl Into<Answer>) {
        self.0.push(Effect::Answer(to, with.into()));
    }

    pub(super) fn pass(&mut self, passed: Vec<Passed>) {
        self.0.extend(passed.into_iter().map(Effect::Pass));
    }

    pub(super) fn push(&mut self, effect: Effect) {
        self.0.push(effect);
    }

    pub(super) fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.0)
    }
}
