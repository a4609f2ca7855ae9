//! Effects to perform once their causes are durable.

use super::{
    agents::AgentVersions,
    inbox::{DurableFlag, MasterResponse},
    links::OutgoingFrame,
};
use tokio::sync::oneshot;
use ydl_core::{Action, ContainerId, TaskId};

/// Externally visible effect.
#[derive(Debug)]
pub(super) enum Effect {
    /// Action of the core.
    Act(Action),
    /// Frame for an agent.
    Send(OutgoingFrame),
    /// Response to a request.
    Respond(oneshot::Sender<MasterResponse>, MasterResponse),
    /// Answers the POST of an agent, once its frames are durable, with the frames that wait for it.
    AnswerLinksPost {
        task: TaskId,
        /// Number of the agent's session.
        number: u64,
        respond_to: oneshot::Sender<MasterResponse>,
    },
    /// Answers the sync of an agent, once its reports are durable, with its order, which is read when this is performed.
    AnswerSync {
        container: ContainerId,
        versions: AgentVersions,
        respond_to: oneshot::Sender<MasterResponse>,
        durable: DurableFlag,
    },
}

/// Effects in the order of their decisions.
#[derive(Debug, Default)]
pub(super) struct Outbox(Vec<Effect>);

impl Outbox {
    pub(super) fn act(&mut self, actions: Vec<Action>) {
        self.0.extend(actions.into_iter().map(Effect::Act));
    }

    pub(super) fn respond(
        &mut self,
        to: oneshot::Sender<MasterResponse>,
        with: impl Into<MasterResponse>,
    ) {
        self.0.push(Effect::Respond(to, with.into()));
    }

    pub(super) fn send_frames(&mut self, frames: Vec<OutgoingFrame>) {
        self.0.extend(frames.into_iter().map(Effect::Send));
    }

    pub(super) fn push(&mut self, effect: Effect) {
        self.0.push(effect);
    }

    pub(super) fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.0)
    }
}
