//! Endpoints for logs, for clients and for agents.

use super::{bad, number, request_id, task};
use crate::master::{
    agent_requests::{AgentLogReply, REPLY_MAX},
    inbox::MasterRequest,
};
use std::time::Duration;
use ydl_core::ContainerId;
use ydl_net::request::{Head, Reply};
use ydl_proto::messages::{LOG_BYTES_MAX, LogRequest};

/// Maximum time that an agent waits for output.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Parses a log request and its maximum wait.
pub(super) fn parse_request(
    head: &Head,
    wait: Option<Duration>,
) -> Result<(MasterRequest, Duration), Reply> {
    let task = task(head)?;
    let wait = wait.unwrap_or_default().min(WAIT_MAX);
    let request = match head.query.get("file") {
        None => LogRequest::List,
        Some(file) => LogRequest::Read {
            attempt: number(head, "attempt")?.unwrap_or(1),
            file: file.clone(),
            offset: number(head, "offset")?.unwrap_or(0),
            bytes_max: LOG_BYTES_MAX,
            wait_ms: wait.as_millis() as u64,
        },
    };
    Ok((MasterRequest::Logs { task, request }, wait + REPLY_MAX))
}

/// Parses an agent's response to a log request.
pub(super) fn parse_reply(
    container: ContainerId,
    head: &Head,
    body: Vec<u8>,
) -> Result<MasterRequest, Reply> {
    let id = request_id(head)?;
    if body.len() as u64 > LOG_BYTES_MAX {
        return Err(bad(format!("the log response exceeds {LOG_BYTES_MAX} bytes")));
    }
    let reply = match (head.query.contains_key("not-found"), number(head, "length")?) {
        (true, _) => AgentLogReply::NotFound,
        (false, None) => AgentLogReply::List(body),
        (false, Some(length)) => {
            AgentLogReply::Part { bytes: body, length, ended: head.query.contains_key("ended") }
        }
    };
    Ok(MasterRequest::LogReply { container, id, reply })
}
