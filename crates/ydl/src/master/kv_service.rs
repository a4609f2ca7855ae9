//! Key-value service: the store and the clients that wait for its changes.

use super::inbox::MasterResponse;
use super::kv::{Done, KvError, KvStore, Op, Wait, WaitResult, WaiterId, Wakeup};
use super::outbox::Outbox;
use std::collections::BTreeMap;
use tokio::sync::oneshot;
use ydl_net::request::Reply;
use ydl_proto::kv::REVISION_HEADER;

/// Request to the key-value store.
#[derive(Debug)]
pub enum KvRequest {
    /// Change.
    Apply(Op),
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
pub(super) struct KvService {
    store: KvStore,
    waiting: BTreeMap<WaiterId, oneshot::Sender<MasterResponse>>,
    next: u64,
}

impl KvService {
    /// Handles a request. Returns the applied change for the journal.
    pub(super) fn handle(
        &mut self,
        request: KvRequest,
        respond_to: oneshot::Sender<MasterResponse>,
        out: &mut Outbox,
    ) -> Option<Op> {
        let (reply, done) = match request {
            KvRequest::Apply(op) => {
                let before = self.store.revision();
                match self.apply(op.clone(), out) {
                    Ok(reply) => {
                        // An operation without a change needs no record.
                        let changed =
                            matches!(op, Op::Emit { .. }) || self.store.revision() != before;
                        (reply, changed.then_some(op))
                    }
                    Err(error) => (error_reply(&error), None),
                }
            }
            KvRequest::Get { key, wait } => match self.store.entry(&key) {
                Some(entry) => (to_reply(WaitResult::Entry(entry)), None),
                None if wait => {
                    self.wait(Wait::Key { key }, respond_to, out);
                    return None;
                }
                None => (Reply::error(404, format!("no such key `{key}`"), None), None),
            },
            KvRequest::List { prefix, after, limit } => {
                (Reply::json(&self.store.list(&prefix, after.as_deref(), limit)), None)
            }
            KvRequest::Watch(wait) => {
                self.wait(wait, respond_to, out);
                return None;
            }
            KvRequest::Events { after, name, limit } => {
                (Reply::json(&self.store.events(after, name.as_deref(), limit)), None)
            }
        };
        out.respond(respond_to, reply);
        done
    }

    /// Deletes the keys of a container that ended.
    pub(super) fn owner_gone(&mut self, container: &str, out: &mut Outbox) {
        let container = container.to_owned();
        // This operation cannot fail.
        let _ = self.apply(Op::OwnerGone { container }, out);
    }

    /// Replays a journaled change. Nothing waits yet.
    pub(super) fn replay(&mut self, op: Op) {
        // Only successful changes are journaled.
        let _ = self.apply(op, &mut Outbox::default());
    }

    /// Forgets clients that stopped waiting.
    pub(super) fn sweep(&mut self) {
        let closed = self.waiting.extract_if(.., |_, respond_to| respond_to.is_closed());
        let closed: Vec<_> = closed.map(|(waiter, _)| waiter).collect();
        for waiter in closed {
            self.store.forget(waiter);
        }
    }

    fn apply(&mut self, op: Op, out: &mut Outbox) -> Result<Reply, KvError> {
        let applied = self.store.apply(op)?;
        for Wakeup { waiter, result } in applied.wakeups {
            if let Some(respond_to) = self.waiting.remove(&waiter) {
                out.respond(respond_to, to_reply(result));
            }
        }
        Ok(match applied.done {
            Done::Changed(changed) => Reply::json(&changed),
            Done::Emitted(emitted) => Reply::json(&emitted),
            Done::Transacted(outcome) => Reply::json(&outcome),
        })
    }

    fn wait(&mut self, wait: Wait, respond_to: oneshot::Sender<MasterResponse>, out: &mut Outbox) {
        self.next += 1;
        let waiter = WaiterId(self.next);
        let reply = match self.store.wait(waiter, wait) {
            Ok(None) => {
                self.waiting.insert(waiter, respond_to);
                return;
            }
            Ok(Some(result)) => to_reply(result),
            Err(error) => error_reply(&error),
        };
        out.respond(respond_to, reply);
    }
}

fn to_reply(result: WaitResult) -> Reply {
    match result {
        WaitResult::Entry(entry) => {
            let body = entry.value.0.to_vec();
            Reply::new("application/octet-stream", body)
                .with_header(REVISION_HEADER, &entry.revision.to_string())
        }
        WaitResult::Changes(changes) => Reply::json(&changes),
        WaitResult::Events(events) => Reply::json(&events),
    }
}

fn error_reply(error: &KvError) -> Reply {
    Reply::error(error.status(), error.to_string(), error.hint().map(str::to_owned))
}
