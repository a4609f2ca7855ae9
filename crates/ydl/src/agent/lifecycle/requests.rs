//! Requests of clients, which the master sends in response to a sync. Each kind has its own permits and its own way back
//! to the master: `read_log` and `forward`.

use super::{Agent, forward::ForwardPermits, read_log::LogPermits};
use ydl_proto::messages::{AgentRequest, NumberedRequest};

/// Permits of concurrent requests. Requests of one kind never wait for those of the other.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestPermits {
    pub(super) logs: LogPermits,
    pub(super) forwards: ForwardPermits,
}

impl Agent {
    /// Serves requests outside the agent's loop.
    pub(super) fn serve(&self, requests: Vec<NumberedRequest>) {
        for NumberedRequest { id, task, request } in requests {
            match request {
                AgentRequest::ReadLog(request) => self.read_log(id, task, request),
                AgentRequest::Forward(request) => self.forward(id, &task, request.port.as_deref()),
            }
        }
    }
}
