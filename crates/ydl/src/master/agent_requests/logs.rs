//! Requests to read logs.

use super::{
    AgentRequests, PendingAgentRequest, REPLY_MAX, RequestKind, container_of, fail, not_pending,
};
use crate::master::{agents::Agents, inbox::MasterResponse};
use std::time::Duration;
use tokio::{sync::oneshot, time::Instant};
use ydl_core::{ContainerId, Job, TaskId};
use ydl_net::request::Reply;
use ydl_proto::messages::{AgentRequest, ENDED_HEADER, LENGTH_HEADER, LogRequest};

/// Maximum number of pending reads, in total and per agent.
const READS_MAX: usize = 256;
pub(super) const READS_PER_AGENT_MAX: usize = 32;

/// Result of a log request as the agent posted it, on its way to the client that asked.
#[derive(Debug)]
pub enum AgentLogReply {
    /// No such log.
    NotFound,
    /// List of files, as JSON.
    List(Vec<u8>),
    /// Part of a file.
    Part {
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
    pub(in crate::master) fn submit_log(
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
        let reads = self.count(&container, is_read);
        if reads.total >= READS_MAX || reads.of_agent >= READS_PER_AGENT_MAX {
            return fail(respond_to, 503, "too many pending requests for logs");
        }
        let wait_ms = match &request {
            LogRequest::List => 0,
            LogRequest::Read { wait_ms, .. } => *wait_ms,
        };
        let pending = PendingAgentRequest {
            container,
            numbered: self.number(task, AgentRequest::ReadLog(request)),
            sent: false,
            due: Instant::now() + Duration::from_millis(wait_ms) + REPLY_MAX,
            respond_to,
            kind: RequestKind::ReadLog,
        };
        self.queue(pending, agents);
    }

    /// Passes an agent's reply on. Ignores replies that were not requested from that agent.
    pub(in crate::master) fn on_log_reply(
        &mut self,
        container: &ContainerId,
        id: u64,
        agent_reply: AgentLogReply,
    ) -> Reply {
        let Some(waiting) = self.take(container, id, is_read) else {
            return not_pending();
        };
        let reply = match agent_reply {
            AgentLogReply::NotFound => {
                let task = &waiting.numbered.task;
                Reply::error(404, format!("`{task}` has no such log"), None)
            }
            AgentLogReply::List(json) => Reply::new("application/json", json),
            AgentLogReply::Part { bytes, length, ended } => {
                Reply::new("application/octet-stream", bytes)
                    .with_header(LENGTH_HEADER, &length.to_string())
                    .with_header(ENDED_HEADER, &u8::from(ended).to_string())
            }
        };
        // The client may have disconnected.
        let _ = waiting.respond_to.send(reply.into());
        Reply::empty()
    }
}

fn is_read(kind: &RequestKind) -> bool {
    matches!(kind, RequestKind::ReadLog)
}
