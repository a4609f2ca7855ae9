//! Effects to perform once their causes are durable.

use super::{
    agents::Seen,
    inbox::{Answer, Kept},
    links::Passed,
};
use tokio::sync::oneshot;
use ydl_core::{Action, ContainerId, TaskId};

/// Externally visible effect.
#[derive(Debug)]
pub(super) enum Effect {
    /// Action of the core.
    Act(Action),
    /// Frame for an agent's program.
    Pass(Passed),
    /// Response to a request.
    Answer(oneshot::Sender<Answer>, Answer),
    /// The frames of an agent are durable; its response carries frames for it.
    Said {
        task: TaskId,
        /// Number of the agent's connection.
        number: u64,
        answer: oneshot::Sender<Answer>,
    },
    /// The reports of an agent are durable; it waits for its order, which is read when this is performed.
    Listen { container: ContainerId, seen: Seen, answer: oneshot::Sender<Answer>, kept: Kept },
}

/// Effects in the order of their decisions.
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
