//! Endpoints for port forwarding, for clients and for agents.

use super::{bad, request_id, task};
use crate::master::inbox::MasterRequest;
use ydl_core::ContainerId;
use ydl_net::request::{Head, Reply};
use ydl_proto::messages::{FORWARD_TEXT_MAX, ForwardRequest};

/// Parses a port-forward request.
pub(super) fn parse_request(head: &Head) -> Result<MasterRequest, Reply> {
    let port = head.query.get("port").filter(|name| !name.is_empty());
    if port.is_some_and(|name| name.len() > FORWARD_TEXT_MAX) {
        return Err(bad("the port name is too long"));
    }
    let request = ForwardRequest { port: port.cloned() };
    Ok(MasterRequest::Forward { task: task(head)?, request })
}

/// Parses an agent's response to a port-forward request.
pub(super) fn parse_reply(
    container: ContainerId,
    head: &Head,
    body: &[u8],
) -> Result<MasterRequest, Reply> {
    let id = request_id(head)?;
    let failed = head.query.contains_key("failed").then(|| {
        let why = String::from_utf8_lossy(body);
        let plain = why.chars().filter(|letter| !letter.is_control());
        plain.take(FORWARD_TEXT_MAX).collect()
    });
    Ok(MasterRequest::ForwardReply { container, id, failed })
}
