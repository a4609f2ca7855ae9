//! The calls of a connection that wait for their answers.

use std::collections::HashMap;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::rpc::connection::CallError;

/// Where the answer goes.
pub(crate) type ReplySender = oneshot::Sender<Result<Bytes, CallError>>;

/// Calls by id. An entry stays until its answer has come, also when nobody waits any more: so a late
/// answer is told from one that was never asked for.
#[derive(Default)]
pub(crate) struct CallTable {
    calls: HashMap<u32, PendingCall>,
}

struct PendingCall {
    reply: ReplySender,
    /// Answers still to come: a call that is tried again on the same connection has two.
    answers: u32,
    /// Where in the stream the request ends.
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
        let earlier = self.calls.remove(&call).map_or(0, |waiting| waiting.answers);
        self.calls.insert(call, PendingCall { reply, answers: earlier + 1, end });
    }

    /// Hands an answer over. Whether such a call was made at all.
    pub(crate) fn answer(&mut self, call: u32, outcome: Result<Bytes, CallError>) -> bool {
        let Some(mut waiting) = self.calls.remove(&call) else {
            return false;
        };
        waiting.answers -= 1;
        // The same call, asked again: its first answer is as good as its second.
        let (nobody, _) = oneshot::channel();
        let reply = std::mem::replace(&mut waiting.reply, nobody);
        if waiting.answers > 0 {
            self.calls.insert(call, waiting);
        }
        // A caller that has gone needs no answer.
        let _ = reply.send(outcome);
        true
    }

    /// Ends all calls; `failure` is given whether the call's request was written to its end.
    pub(crate) fn fail(&mut self, written: u64, mut failure: impl FnMut(bool) -> CallError) {
        for (_, waiting) in self.calls.drain() {
            let _ = waiting.reply.send(Err(failure(waiting.end <= written)));
        }
    }
}
