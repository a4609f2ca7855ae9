//! Reads a task's output from its live agent through the master.

use hyper::{Method, StatusCode, body::Bytes};
use std::time::Duration;
use ydl_core::TaskId;
use ydl_net::client::{CallError, Client, Payload, Response};
use ydl_proto::messages::{ENDED_HEADER, LENGTH_HEADER, LogAttempt};

/// Maximum time for a response in addition to the long-poll timeout.
const CALL_MAX: Duration = Duration::from_secs(20);

/// Part of a log file of a live agent, as the client receives it. The file may still grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilePart {
    /// Content; empty if the file did not grow within the timeout.
    pub bytes: Bytes,
    /// Length of the file.
    pub length: u64,
    /// True if the file does not grow any more.
    pub ended: bool,
}

/// Lists the logs that a live agent has of a task. Returns `None` if no agent has the task: its logs are in HDFS.
pub async fn attempts(
    client: &Client,
    task: &TaskId,
) -> Result<Option<Vec<LogAttempt>>, CallError> {
    let response = request_logs(client, &format!("/v1/logs?task={task}"), Duration::ZERO).await?;
    match response {
        Some(response) if response.status == StatusCode::OK => response.json().map(Some),
        Some(_) => Ok(Some(Vec::new())),
        None => Ok(None),
    }
}

/// Reads a file such as `stdout.0` from `offset` on, waiting up to `wait` for new bytes. Returns `None` if no live agent
/// has the file.
pub async fn read(
    client: &Client,
    task: &TaskId,
    attempt: u32,
    file: &str,
    offset: u64,
    wait: Duration,
) -> Result<Option<LogFilePart>, CallError> {
    let wait_ms = wait.as_millis();
    let path = format!(
        "/v1/logs?task={task}&attempt={attempt}&file={file}&offset={offset}&wait_ms={wait_ms}"
    );
    let Some(response) = request_logs(client, &path, wait).await? else {
        return Ok(None);
    };
    let length = response.header(LENGTH_HEADER).and_then(|text| text.parse().ok());
    Ok(Some(LogFilePart {
        // A response without a length means that the long poll timed out.
        length: length.unwrap_or(offset),
        ended: response.header(ENDED_HEADER) == Some("1"),
        bytes: response.body,
    }))
}

async fn request_logs(
    client: &Client,
    path: &str,
    wait: Duration,
) -> Result<Option<Response>, CallError> {
    let call = client.call(Method::GET, path, Payload::Nothing, wait + CALL_MAX);
    match call.await {
        Ok(response) => Ok(Some(response)),
        Err(CallError::Refused { status: 404, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
