//! Key-value service: the store and the clients that wait for its changes.

use super::inbox::Answer;
use super::kv::{Done, Found, Op, Refusal, Store, Wait, WaiterId, Woken};
use super::outbox::Outbox;
use std::collections::BTreeMap;
use tokio::sync::oneshot;
use ydl_net::request::Reply;
use ydl_proto::kv::REVISION_HEADER;

/// Request to the key-value store.
#[derive(Debug)]
pub enum Wish {
    /// Change.
    Do(Op),
    /// Value, now or when it appears.
    Get {
        /// Key to read.
        key: String,
        /// True to wait for it.
        wait: bool,
    },
    /// Entries below a prefix.
    List {
        /// Prefix.
        prefix: String,
        /// Lists only keys after this one.
        after: Option<String>,
        /// Maximum number of entries.
        limit: usize,
    },
    /// Waits for a change or an event.
    Watch(Wait),
    /// Existing events.
    Events {
        /// Sequence number to start after.
        after: u64,
        /// Returns only events of this name.
        name: Option<String>,
        /// Maximum number of events.
        limit: usize,
    },
}

/// Store and its waiting clients.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    store: Store,
    waiting: BTreeMap<WaiterId, oneshot::Sender<Answer>>,
    next: u64,
}

impl Shelf {
    /// Handles a request. Returns the applied change for the journal.
    pub(super) fn grant(
        &mut self,
        wish: Wish,
        answer: oneshot::Sender<Answer>,
        out: &mut Outbox,
    ) -> Option<Op> {
        let (reply, done) = match wish {
            Wish::Do(op) => match self.apply(op.clone(), out) {
                Ok(reply) => (reply, Some(op)),
                Err(refusal) => (refused(&refusal), None),
            },
            Wish::Get { key, wait } => match self.store.entry(&key) {
                Some(entry) => (found(Found::Entry(entry)), None),
                None if wait => {
                    self.wait(Wait::Key { key }, answer, out);
                    return None;
                }
                None => (Reply::error(404, format!("there is no key `{key}`"), None), None),
            },
            Wish::List { prefix, after, limit } => {
                (Reply::json(&self.store.list(&prefix, after.as_deref(), limit)), None)
            }
            Wish::Watch(wait) => {
                self.wait(wait, answer, out);
                return None;
            }
            Wish::Events { after, name, limit } => {
                (Reply::json(&self.store.events(after, name.as_deref(), limit)), None)
            }
        };
        out.answer(answer, reply);
        done
    }

    /// Deletes the keys of a container that ended.
    pub(super) fn owner_gone(&mut self, container: &str, out: &mut Outbox) {
        let container = container.to_owned();
        // This operation cannot fail.
        let _ = self.apply(Op::OwnerGone { container }, out);
    }

    /// Replays a journaled change. Nothing waits yet.
    pub(super) fn repeat(&mut self, op: Op) {
        // Only successful changes are journaled.
        let _ = self.apply(op, &mut Outbox::default());
    }

    /// Forgets clients that stopped waiting.
    pub(super) fn sweep(&mut self) {
        let gone = self.waiting.extract_if(.., |_, answer| answer.is_closed());
        let gone: Vec<_> = gone.map(|(waiter, _)| waiter).collect();
        for waiter in gone {
            self.store.forget(waiter);
        }
    }

    fn apply(&mut self, op: Op, out: &mut Outbox) -> Result<Reply, Refusal> {
        let applied = self.store.apply(op)?;
        for Woken { waiter, found: what } in applied.woken {
            if let Some(answer) = self.waiting.remove(&waiter) {
                out.answer(answer, found(what));
            }
        }
        Ok(match applied.done {
            Done::Changed(changed) => Reply::json(&changed),
            Done::Emitted(emitted) => Reply::json(&emitted),
        })
    }

    fn wait(&mut self, wait: Wait, answer: oneshot::Sender<Answer>, out: &mut Outbox) {
        self.next += 1;
        let waiter = WaiterId(self.next);
        let reply = match self.store.wait(waiter, wait) {
            Ok(None) => {
                self.waiting.insert(waiter, answer);
                return;
            }
            Ok(Some(what)) => found(what),
            Err(refusal) => refused(&refusal),
        };
        out.answer(answer, reply);
    }
}

fn found(what: Found) -> Reply {
    match what {
        Found::Entry(entry) => {
            let body = entry.value.0.to_vec();
            Reply::new("application/octet-stream", body)
                .with_header(REVISION_HEADER, &entry.revision.to_string())
        }
        Found::Changes(changes) => Reply::json(&changes),
        Found::Events(events) => Reply::json(&events),
    }
}

fn refused(refusal: &Refusal) -> Reply {
    Reply::error(refusal.status(), refusal.to_string(), refusal.hint().map(str::to_owned))
}
