//! Routes log and port-forward requests from clients to agents.
//!
//! Agents accept no connections: they poll. So a request waits here until the agent asks for its order, is
//! sent as the response, and the agent's reply is passed on to the client. Requests expire; clients repeat
//! them.

use super::{agents::Agents, inbox::MasterResponse};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::Instant,
};
use ydl_core::{ContainerId, Job, TaskId};
use ydl_net::{forward::upgrade_pair, request::Reply};
use ydl_proto::messages::{
    AgentRequest, ENDED_HEADER, ForwardRequest, LENGTH_HEADER, LogRequest, NumberedRequest,
};

/// Maximum number of pending requests, in total and per agent.
const REQUESTS_MAX: usize = 256;
const PER_AGENT_MAX: usize = 32;
/// Maximum number of forwarded connections: each uses two of the server's, and some memory.
const FORWARDS_MAX: usize = 256;
/// Error of a request beyond these limits.
const TOO_MANY: &str = "too many pending requests";
/// Time an agent may take beyond the requested wait.
pub(super) const GRACE: Duration = Duration::from_secs(8);

/// Pending requests.
#[derive(Debug)]
pub(super) struct AgentRequests {
    pending: BTreeMap<u64, PendingAgentRequest>,
    next: u64,
    /// Permits for forwarded connections.
    permits: Arc<Semaphore>,
}

impl Default for AgentRequests {
    fn default() -> AgentRequests {
        AgentRequests {
            pending: BTreeMap::new(),
            next: 0,
            permits: Arc::new(Semaphore::new(FORWARDS_MAX)),
        }
    }
}

#[derive(Debug)]
struct PendingAgentRequest {
    container: ContainerId,
    numbered: NumberedRequest,
    /// True if the agent received the request.
    sent: bool,
    due: Instant,
    respond_to: oneshot::Sender<MasterResponse>,
    /// Permit of a port-forward request.
    permit: Option<OwnedSemaphorePermit>,
}

/// Reply of an agent to a log request.
#[derive(Debug)]
pub enum LogReply {
    /// No such log.
    NotFound,
    /// List of files, as JSON.
    List(Vec<u8>),
    /// Part of a file.
    Chunk {
        /// Content.
        bytes: Vec<u8>,
        /// Length of the file.
        length: u64,
        /// True if the length is final.
        ended: bool,
    },
}

impl AgentRequests {
    /// Queues a log request and sends it if the agent is waiting. Fails without a live agent of the task.
    pub(super) fn submit_log(
        &mut self,
        task: TaskId,
        request: LogRequest,
        respond_to: oneshot::Sender<MasterResponse>,
        job: &Job,
        agents: &mut Agents,
    ) {
        let Some(container) = container_of(&task, job, agents) else {
            return fail(respond_to, 404, &format!("no agent of `{task}` is connected"));
        };
        if self.is_full(&container) {
            return fail(respond_to, 503, TOO_MANY);
        }
        let wait_ms = match &request {
            LogRequest::List => 0,
            LogRequest::Read { wait_ms, .. } => *wait_ms,
        };
        let pending = PendingAgentRequest {
            container,
            numbered: self.number(task, AgentRequest::Log(request)),
            sent: false,
            due: Instant::now() + Duration::from_millis(wait_ms) + GRACE,
            respond_to,
            permit: None,
        };
        self.queue(pending, agents);
    }

    /// Queues a port-forward request and sends it if the agent is waiting. Fails without a live agent of the task.
    pub(super) fn submit_forward(
        &mut self,
        task: TaskId,
        request: ForwardRequest,
        respond_to: oneshot::Sender<MasterResponse>,
        job: &Job,
        agents: &mut Agents,
    ) {
        let Some(container) = container_of(&task, job, agents) else {
            return fail(respond_to, 404, &format!("`{task}` is not running"));
        };
        if self.is_full(&container) {
            return fail(respond_to, 503, TOO_MANY);
        }
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            return fail(respond_to, 503, "too many connections to ports at once");
        };
        let pending = PendingAgentRequest {
            container,
            numbered: self.number(task, AgentRequest::Forward(request)),
            sent: false,
            due: Instant::now() + GRACE,
            respond_to,
            permit: Some(permit),
        };
        self.queue(pending, agents);
    }

    fn is_full(&self, container: &ContainerId) -> bool {
        let of_agent = |it: &&PendingAgentRequest| it.container == *container;
        self.pending.len() >= REQUESTS_MAX
            || self.pending.values().filter(of_agent).count() >= PER_AGENT_MAX
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

    /// Passes an agent's reply on. Ignores replies that were not requested from that agent.
    pub(super) fn on_log_reply(
        &mut self,
        container: &ContainerId,
        id: u64,
        log_reply: LogReply,
    ) -> Reply {
        let Some(waiting) = self.take(container, id, false) else {
            return Reply::error(404, "this request is no longer pending", None);
        };
        let reply = match log_reply {
            LogReply::NotFound => {
                let task = &waiting.numbered.task;
                Reply::error(404, format!("`{task}` has no such log"), None)
            }
            LogReply::List(json) => Reply::new("application/json", json),
            LogReply::Chunk { bytes, length, ended } => {
                Reply::new("application/octet-stream", bytes)
                    .with_header(LENGTH_HEADER, &length.to_string())
                    .with_header(ENDED_HEADER, &u8::from(ended).to_string())
            }
        };
        // The client may have disconnected.
        let _ = waiting.respond_to.send(reply.into());
        Reply::empty()
    }

    /// Connects the client to the port that the agent is connected to, or passes the error on.
    pub(super) fn on_forward_reply(
        &mut self,
        container: &ContainerId,
        id: u64,
        failed: Option<String>,
    ) -> Reply {
        let Some(mut waiting) = self.take(container, id, true) else {
            return Reply::error(404, "this request is no longer pending", None);
        };
        match (failed, waiting.permit.take()) {
            (None, Some(permit)) if !waiting.respond_to.is_closed() => {
                let (client_half, agent_half) = upgrade_pair(permit);
                // If the client disconnected in the meantime, the agent's end times out.
                let _ = waiting.respond_to.send(Reply::upgrade(client_half).into());
                Reply::upgrade(agent_half)
            }
            (None, _) => Reply::error(404, "this request is no longer pending", None),
            (Some(why), _) => {
                fail(waiting.respond_to, 502, &why);
                Reply::empty()
            }
        }
    }

    /// Removes a pending request of that agent, of the given kind.
    fn take(
        &mut self,
        container: &ContainerId,
        id: u64,
        is_forward: bool,
    ) -> Option<PendingAgentRequest> {
        let own = |it: &PendingAgentRequest| {
            it.container == *container && it.permit.is_some() == is_forward
        };
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
            } else if waiting.permit.is_some() {
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

#[cfg(test)]
mod tests;
