//! Requests for connections to ports.

use super::{
    AgentRequests, PendingAgentRequest, REPLY_MAX, RequestKind, container_of, fail, not_pending,
};
use crate::master::{agents::Agents, inbox::MasterResponse};
use std::sync::Arc;
use tokio::{
    sync::{Semaphore, oneshot},
    time::Instant,
};
use ydl_core::{ContainerId, Job, TaskId};
use ydl_net::{forward::upgrade_pair, request::Reply};
use ydl_proto::messages::{AgentRequest, ForwardRequest};

/// Maximum number of forwarded connections, pending ones included: each uses two of the server's, and some memory.
const FORWARDS_MAX: usize = 256;
/// Maximum number of pending connections per agent.
const PENDING_PER_AGENT_MAX: usize = 32;

/// Permits of forwarded connections.
#[derive(Debug)]
pub(super) struct ForwardLimit(Arc<Semaphore>);

impl Default for ForwardLimit {
    fn default() -> ForwardLimit {
        ForwardLimit(Arc::new(Semaphore::new(FORWARDS_MAX)))
    }
}

impl AgentRequests {
    /// Queues a port-forward request and sends it if the agent is waiting. Fails without a live agent of the task.
    pub(in crate::master) fn submit_forward(
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
        if self.count(&container, is_forward).of_agent >= PENDING_PER_AGENT_MAX {
            let what = format!("too many pending connections to ports of `{task}`");
            return fail(respond_to, 503, &what);
        }
        let Ok(permit) = Arc::clone(&self.forward_limit.0).try_acquire_owned() else {
            return fail(respond_to, 503, "too many connections to ports at once");
        };
        let pending = PendingAgentRequest {
            container,
            numbered: self.number(task, AgentRequest::Forward(request)),
            sent: false,
            due: Instant::now() + REPLY_MAX,
            respond_to,
            kind: RequestKind::Forward(permit),
        };
        self.queue(pending, agents);
    }

    /// Connects the client to the port that the agent is connected to, or passes the error on.
    pub(in crate::master) fn on_forward_reply(
        &mut self,
        container: &ContainerId,
        id: u64,
        failed: Option<String>,
    ) -> Reply {
        let Some(PendingAgentRequest { kind: RequestKind::Forward(permit), respond_to, .. }) =
            self.take(container, id, is_forward)
        else {
            return not_pending();
        };
        match failed {
            Some(why) => {
                fail(respond_to, 502, &why);
                Reply::empty()
            }
            None if respond_to.is_closed() => not_pending(),
            None => {
                let (client_half, agent_half) = upgrade_pair(permit);
                // If the client disconnected in the meantime, the agent's end times out.
                let _ = respond_to.send(Reply::upgrade(client_half).into());
                Reply::upgrade(agent_half)
            }
        }
    }
}

fn is_forward(kind: &RequestKind) -> bool {
    matches!(kind, RequestKind::Forward(_))
}
