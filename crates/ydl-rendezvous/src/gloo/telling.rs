//! Workers that are being told something, each on a link that was dialed for it.

use std::collections::BTreeMap;

use ydl_core::TaskId;

use super::notice::Worker;
use crate::{Link, Reaction, Refusal};

#[derive(Debug)]
struct Telling {
    worker: Worker,
    task: TaskId,
    message: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) struct Tellings {
    of: BTreeMap<Link, Telling>,
    dialed: u64,
}

impl Tellings {
    /// Has a worker's port dialed, to tell it something.
    pub(super) fn begin(
        &mut self,
        (worker, port): (&Worker, u16),
        task: &TaskId,
        message: Vec<u8>,
        reaction: &mut Reaction,
    ) {
        self.dialed += 1;
        let link = Link::Dialed(self.dialed);
        reaction.dial(link, task.clone(), port);
        let telling = Telling { worker: worker.clone(), task: task.clone(), message };
        self.of.insert(link, telling);
    }

    /// Whether this link was dialed to tell something. Then it is told.
    pub(super) fn open(&self, link: Link, reaction: &mut Reaction) -> bool {
        let telling = self.of.get(&link);
        if let Some(telling) = telling {
            reaction.send(link, telling.message.clone());
        }
        telling.is_some()
    }

    /// What came back, if this link was dialed to tell something. Any answer will do.
    pub(super) fn take(
        &mut self,
        link: Link,
        bytes: &[u8],
        reaction: &mut Reaction,
    ) -> Option<Result<Option<usize>, Refusal>> {
        let answer = self.of.get(&link)?.worker.answer(bytes);
        Some(answer.map(|answer| {
            let (_, length) = answer?;
            self.of.remove(&link);
            // Or a new master would tell it again.
            reaction.keep();
            reaction.close(link);
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
    pub(super) fn ended(&mut self, task: &TaskId) {
        self.of.retain(|_, telling| telling.task != *task);
    }

    /// A link has ended: who was to be told something on it, and was not.
    pub(super) fn close(&mut self, link: Link) -> Option<TaskId> {
        self.of.remove(&link).map(|telling| telling.task)
    }
}
