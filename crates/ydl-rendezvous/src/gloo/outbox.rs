//! Notifications in progress, each on a dialed link.

use std::collections::BTreeMap;

use ydl_core::TaskId;

use super::notification::NotificationEndpoint;
use crate::{Effects, LinkId, Rejection};

#[derive(Debug)]
struct Notification {
    endpoint: NotificationEndpoint,
    task: TaskId,
    message: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) struct Outbox {
    by_link: BTreeMap<LinkId, Notification>,
    dialed: u64,
}

impl Outbox {
    /// Dials a worker to send it a notification.
    pub(super) fn begin(
        &mut self,
        (endpoint, port): (&NotificationEndpoint, u16),
        task: &TaskId,
        message: Vec<u8>,
        effects: &mut Effects,
    ) {
        self.dialed += 1;
        let link = LinkId::Dialed(self.dialed);
        effects.dial(link, task.clone(), port);
        let notification = Notification { endpoint: endpoint.clone(), task: task.clone(), message };
        self.by_link.insert(link, notification);
    }

    /// Sends the notification of a link. Returns false if the link has none.
    pub(super) fn open(&self, link: LinkId, effects: &mut Effects) -> bool {
        let notification = self.by_link.get(&link);
        if let Some(notification) = notification {
            effects.send(link, notification.message.clone());
        }
        notification.is_some()
    }

    /// Handles the reply on a link. A valid one completes the notification. Returns `None` if the link has none.
    pub(super) fn receive(
        &mut self,
        link: LinkId,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Option<Result<Option<usize>, Rejection>> {
        let reply = self.by_link.get(&link)?.endpoint.parse_reply(bytes);
        Some(reply.map(|reply| {
            let length = reply?;
            self.by_link.remove(&link);
            // Otherwise a new master would send it again.
            effects.persist();
            effects.close(link);
            Some(length)
        }))
    }

    /// Returns true if a notification is in progress.
    pub(super) fn is_busy(&self) -> bool {
        !self.by_link.is_empty()
    }

    /// Returns the number of notifications so far, including failed ones.
    pub(super) fn count(&self) -> u64 {
        self.dialed
    }

    /// Drops the notifications of a task that has ended.
    pub(super) fn task_ended(&mut self, task: &TaskId) {
        self.by_link.retain(|_, notification| notification.task != *task);
    }

    /// Handles the end of a link. Returns the task that was not notified.
    pub(super) fn close(&mut self, link: LinkId) -> Option<TaskId> {
        self.by_link.remove(&link).map(|notification| notification.task)
    }
}
