//! Routes requests of clients to agents: to read logs (`logs`), and to connect to ports (`forward`).
//!
//! Agents accept no connections: they poll. So a request waits here until the agent asks for its order, is
//! sent as the response, and the agent's reply is passed on to the client. Requests expire; clients repeat
//! them. Each kind has its own limits, so that readers of logs do not keep others from connecting to ports.

mod forward;
mod logs;

use super::{agents::Agents, inbox::MasterResponse};
use forward::ForwardLimit;
pub(crate) use logs::AgentLogReply;
use std::{collections::BTreeMap, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, oneshot},
    time::Instant,
};
use ydl_core::{ContainerId, Job, TaskId};
use ydl_net::request::Reply;
use ydl_proto::messages::{AgentRequest, NumberedRequest};

/// Time an agent may take beyond the requested wait.
pub(super) const REPLY_MAX: Duration = Duration::from_secs(8);

/// Pending requests.
#[derive(Debug, Default)]
pub(super) struct AgentRequests {
    pending: BTreeMap<u64, PendingAgentRequest>,
    next: u64,
    forward_limit: ForwardLimit,
}

#[derive(Debug)]
struct PendingAgentRequest {
    container: ContainerId,
    numbered: NumberedRequest,
    /// True if the agent received the request.
    sent: bool,
    due: Instant,
    respond_to: oneshot::Sender<MasterResponse>,
    kind: RequestKind,
}

/// Kind of a pending request, with what it holds.
#[derive(Debug)]
enum RequestKind {
    ReadLog,
    Forward(OwnedSemaphorePermit),
}

/// Numbers of pending requests of one kind.
#[derive(Debug)]
struct PendingCount {
    total: usize,
    of_agent: usize,
}

impl AgentRequests {
    /// Counts the pending requests of one kind.
    fn count(&self, container: &ContainerId, is_kind: fn(&RequestKind) -> bool) -> PendingCount {
        let of_kind = || self.pending.values().filter(|it| is_kind(&it.kind));
        PendingCount {
            total: of_kind().count(),
            of_agent: of_kind().filter(|it| it.container == *container).count(),
        }
    }

    fn number(&mut self, task: TaskId, request: AgentRequest) -> NumberedRequest {
        self.next += 1;
        NumberedRequest { id: self.next, task, request }
    }

    fn queue(&mut self, request: PendingAgentRequest, agents: &mut Agents) {
        let container = request.container.clone();
        self.pending.insert(request.numbered.id, request);
        self.deliver(&container, agents);
    }

    /// Handles an agent's poll. `last_request` is the newest request that the agent received: later ones were
    /// lost.
    pub(super) fn on_poll(
        &mut self,
        container: &ContainerId,
        last_request: u64,
        agents: &mut Agents,
    ) {
        let lost = |it: &&mut PendingAgentRequest| {
            it.container == *container && it.numbered.id > last_request
        };
        let lost = self.pending.values_mut().filter(lost);
        lost.for_each(|it| it.sent = false);
        self.deliver(container, agents);
    }

    /// Sends new requests to the agent, if it is waiting.
    fn deliver(&mut self, container: &ContainerId, agents: &mut Agents) {
        let new = |it: &&mut PendingAgentRequest| !it.sent && it.container == *container;
        let mut new: Vec<_> = self.pending.values_mut().filter(new).collect();
        if new.is_empty() {
            return;
        }
        let pending = new.iter().map(|it| it.numbered.clone()).collect();
        if agents.send_requests(container, pending) {
            new.iter_mut().for_each(|it| it.sent = true);
        }
    }

    /// Removes a pending request of that agent, of the given kind.
    fn take(
        &mut self,
        container: &ContainerId,
        id: u64,
        is_kind: fn(&RequestKind) -> bool,
    ) -> Option<PendingAgentRequest> {
        let own = |it: &PendingAgentRequest| it.container == *container && is_kind(&it.kind);
        match self.pending.get(&id).is_some_and(own) {
            true => self.pending.remove(&id),
            false => None,
        }
    }

    /// Drops expired requests, and fails those to agents that are gone.
    pub(super) fn sweep(&mut self, agents: &Agents, now: Instant) {
        let over = |it: &PendingAgentRequest| {
            it.due < now || it.respond_to.is_closed() || !agents.is_live(&it.container)
        };
        for (_, waiting) in self.pending.extract_if(.., |_, it| over(it)) {
            if !agents.is_live(&waiting.container) {
                let what = format!("the agent of `{}` is not connected", waiting.numbered.task);
                fail(waiting.respond_to, 404, &what);
            } else if matches!(waiting.kind, RequestKind::Forward(_)) {
                let what =
                    format!("the agent of `{}` did not respond in time", waiting.numbered.task);
                fail(waiting.respond_to, 503, &what);
            }
        }
    }
}

/// Returns the container of a task's live agent.
fn container_of(task: &TaskId, job: &Job, agents: &Agents) -> Option<ContainerId> {
    let mut live = job.containers().filter(|it| agents.is_live(it));
    live.find(|it| job.task_in_container(it).as_ref() == Some(task)).cloned()
}

fn fail(respond_to: oneshot::Sender<MasterResponse>, status: u16, what: &str) {
    // The client may have disconnected.
    let _ = respond_to.send(Reply::error(status, what, None).into());
}

/// Reply to an agent whose client no longer waits, or never asked.
fn not_pending() -> Reply {
    Reply::error(404, "this request is no longer pending", None)
}

#[cfg(test)]
mod tests;
