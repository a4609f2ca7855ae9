//! Endpoints for logs and port forwarding, for clients and for agents.

use super::bad;
use crate::master::{
    agent_requests::{GRACE, LogReply},
    inbox::MasterRequest,
};
use std::{str::FromStr, time::Duration};
use ydl_core::{ContainerId, TaskId};
use ydl_net::request::{Head, Reply};
use ydl_proto::messages::{FORWARD_TEXT_MAX, ForwardRequest, LOG_BYTES_MAX, LogRequest};

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
    Ok((MasterRequest::Logs { task, request }, wait + GRACE))
}

/// Parses an agent's response to a log request.
pub(super) fn parse_reply(
    container: ContainerId,
    head: &Head,
    body: Vec<u8>,
) -> Result<MasterRequest, Reply> {
    let id = number(head, "request")?.ok_or_else(|| bad("missing parameter `request`"))?;
    if body.len() as u64 > LOG_BYTES_MAX {
        return Err(bad(format!("the log response exceeds {LOG_BYTES_MAX} bytes")));
    }
    let reply = match (head.query.contains_key("not-found"), number(head, "length")?) {
        (true, _) => LogReply::NotFound,
        (false, None) => LogReply::List(body),
        (false, Some(length)) => {
            LogReply::Chunk { bytes: body, length, ended: head.query.contains_key("ended") }
        }
    };
    Ok(MasterRequest::LogReply { container, id, reply })
}

/// Parses a port-forward request.
pub(super) fn parse_forward(head: &Head) -> Result<MasterRequest, Reply> {
    let port = head.query.get("port").filter(|name| !name.is_empty());
    if port.is_some_and(|name| name.len() > FORWARD_TEXT_MAX) {
        return Err(bad("the port name is too long"));
    }
    let request = ForwardRequest { port: port.cloned() };
    Ok(MasterRequest::Forward { task: task(head)?, request })
}

/// Parses an agent's response to a port-forward request.
pub(super) fn parse_forward_reply(
    container: ContainerId,
    head: &Head,
    body: &[u8],
) -> Result<MasterRequest, Reply> {
    let id = number(head, "request")?.ok_or_else(|| bad("missing parameter `request`"))?;
    let failed = head.query.contains_key("failed").then(|| {
        let why = String::from_utf8_lossy(body);
        let plain = why.chars().filter(|letter| !letter.is_control());
        plain.take(FORWARD_TEXT_MAX).collect()
    });
    Ok(MasterRequest::ForwardReply { container, id, failed })
}

fn task(head: &Head) -> Result<TaskId, Reply> {
    let task = head.query.get("task").map_or("", String::as_str);
    TaskId::from_str(task)
        .map_err(|_| bad(format!("invalid task `{task}`: expected a task such as `worker:0`")))
}

fn number<T: FromStr>(head: &Head, name: &str) -> Result<Option<T>, Reply> {
    let text = head.query.get(name);
    text.map(|text| text.parse()).transpose().map_err(|_| bad(format!("`{name}` is not a number")))
}
