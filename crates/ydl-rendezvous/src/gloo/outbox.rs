//! Workers that are being told something, each on a link that was dialed for it.

use std::collections::BTreeMap;

use ydl_core::TaskId;

use super::notification::NotificationEndpoint;
use crate::{Effects, LinkId, Rejection};

#[derive(Debug)]
struct Notification {
    worker: NotificationEndpoint,
    task: TaskId,
    message: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) struct Outbox {
    of: BTreeMap<LinkId, Notification>,
    dialed: u64,
}

impl Outbox {
    /// Has a worker's port dialed, to tell it something.
    pub(super) fn begin(
        &mut self,
        (worker, port): (&NotificationEndpoint, u16),
        task: &TaskId,
        message: Vec<u8>,
        effects: &mut Effects,
    ) {
        self.dialed += 1;
        let link = LinkId::Dialed(self.dialed);
        effects.dial(link, task.clone(), port);
        let telling = Notification { worker: worker.clone(), task: task.clone(), message };
        self.of.insert(link, telling);
    }

    /// Whether this link was dialed to tell something. Then it is told.
    pub(super) fn open(&self, link: LinkId, effects: &mut Effects) -> bool {
        let telling = self.of.get(&link);
        if let Some(telling) = telling {
            effects.send(link, telling.message.clone());
        }
        telling.is_some()
    }

    /// What came back, if this link was dialed to tell something. Any answer will do.
    pub(super) fn receive(
        &mut self,
        link: LinkId,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Option<Result<Option<usize>, Rejection>> {
        let answer = self.of.get(&link)?.worker.answer(bytes);
        Some(answer.map(|answer| {
            let (_, length) = answer?;
            self.of.remove(&link);
            // Or a new master would tell it again.
            effects.persist();
            effects.close(link);
            Some(length)
        }))
    }

    /// Whether somebody is being told something.
    pub(super) fn is_telling(&self) -> bool {
        !self.of.is_empty()
    }

    /// So often somebody was told something, or was to be.
    pub(super) fn count(&self) -> u64 {
        self.dialed
    }

    /// A task has ended, and nobody is there to be told.
    pub(super) fn attempt_ended(&mut self, task: &TaskId) {
        self.of.retain(|_, telling| telling.task != *task);
    }

    /// A link has ended: who was to be told something on it, and was not.
    pub(super) fn close(&mut self, link: LinkId) -> Option<TaskId> {
        self.of.remove(&link).map(|telling| telling.task)
    }
}
