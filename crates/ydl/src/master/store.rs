//! The key-value store as the master keeps it: the store itself, and those who wait for something in it.

use super::inbox::Answer;
use super::kv::{Done, Found, Op, Refusal, Store, Wait, WaiterId, Woken};
use super::outbox::Outbox;
use std::collections::BTreeMap;
use tokio::sync::oneshot;
use ydl_net::request::Reply;
use ydl_proto::kv::REVISION_HEADER;

/// What somebody wants of the store.
#[derive(Debug)]
pub enum Wish {
    /// A change.
    Do(Op),
    /// A value, now or when it comes.
    Get {
        /// Whose.
        key: String,
        /// Whether to wait for it.
        wait: bool,
    },
    /// What lies below a prefix.
    List {
        /// The prefix.
        prefix: String,
        /// Only keys after this one.
        after: Option<String>,
        /// How many at most.
        limit: usize,
    },
    /// Something to wait for.
    Watch(Wait),
    /// Events there are already.
    Events {
        /// After this one.
        after: u64,
        /// Of this name alone.
        name: Option<String>,
        /// How many at most.
        limit: usize,
    },
}

/// The store, and those who wait.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    store: Store,
    waiting: BTreeMap<WaiterId, oneshot::Sender<Answer>>,
    next: u64,
}

impl Shelf {
    /// Grants a wish. A change that was made is returned, for the journal.
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

    /// A container is gone, and with it the keys it owned.
    pub(super) fn owner_gone(&mut self, container: &str, out: &mut Outbox) {
        let container = container.to_owned();
        // Forgetting cannot be refused.
        let _ = self.apply(Op::OwnerGone { container }, out);
    }

    /// Makes a change that an earlier master has made, when nobody waits for anything.
    pub(super) fn repeat(&mut self, op: Op) {
        // What was written down was not refused, and is not now.
        let _ = self.apply(op, &mut Outbox::default());
    }

    /// Forgets those who have stopped waiting.
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
