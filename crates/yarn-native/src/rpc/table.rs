//! Pending calls of a connection.

use std::collections::HashMap;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::rpc::connection::CallError;

/// Sender for the response of a call.
pub(crate) type ReplySender = oneshot::Sender<Result<Bytes, CallError>>;

/// Calls by id. An entry stays until its response arrives, even if the caller has given up, so that
/// late responses are distinguished from unsolicited ones.
#[derive(Default)]
pub(crate) struct CallTable {
    calls: HashMap<u32, PendingCall>,
}

struct PendingCall {
    reply: ReplySender,
    /// Number of outstanding responses: a call retried on the same connection has two.
    answers: u32,
    /// End offset of the request in the stream.
    end: u64,
}

impl CallTable {
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub(crate) fn insert(&mut self, call: u32, reply: ReplySender, end: u64) {
        let earlier = self.calls.remove(&call).map_or(0, |pending| pending.answers);
        self.calls.insert(call, PendingCall { reply, answers: earlier + 1, end });
    }

    /// Delivers a response. Returns whether the call exists.
    pub(crate) fn answer(&mut self, call: u32, outcome: Result<Bytes, CallError>) -> bool {
        let Some(mut pending) = self.calls.remove(&call) else {
            return false;
        };
        pending.answers -= 1;
        // For a retried call, the first response serves as well as the second.
        let (unused, _) = oneshot::channel();
        let reply = std::mem::replace(&mut pending.reply, unused);
        if pending.answers > 0 {
            self.calls.insert(call, pending);
        }
        // The caller may have given up.
        let _ = reply.send(outcome);
        true
    }

    /// Fails all calls. `failure` receives whether the request was written completely.
    pub(crate) fn fail(&mut self, written: u64, mut failure: impl FnMut(bool) -> CallError) {
        for (_, pending) in self.calls.drain() {
            let _ = pending.reply.send(Err(failure(pending.end <= written)));
        }
    }
}
