//! Reads a route table from JSON and checks every value.
//!
//! Unknown fields are ignored, so that an older gateway can read the table of a newer master.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;

use super::{Protocol, RateLimit, Replica, ReplicaState, RouteTable, Service};
use crate::retry::RetryWhen;

/// Version of the format. It changes only if older gateways must refuse the table.
const FORMAT: u64 = 1;
const BYTES_MAX: usize = 16 << 20;
const REPLICAS_MAX: usize = 4096;
const TEXT_MAX: usize = 256;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// The part that all formats have.
#[derive(Deserialize)]
struct FormatJson {
    format: u64,
}

#[derive(Deserialize)]
struct TableJson {
    version: u64,
    role: String,
    #[serde(default)]
    service: ServiceJson,
    #[serde(default)]
    replicas: Vec<ReplicaJson>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ServiceJson {
    protocol: Option<String>,
    timeouts: TimeoutsJson,
    retry: RetryJson,
    queue: QueueJson,
    buffer_bytes: Option<u64>,
    request_bytes: Option<u64>,
    slow_start_ms: Option<u64>,
    rate_limit: Option<RateLimitJson>,
    drain_ms: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TimeoutsJson {
    connect_ms: Option<u64>,
    head_ms: Option<u64>,
    idle_ms: Option<u64>,
    keep_alive_ms: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RetryJson {
    when: Option<String>,
    max: Option<u64>,
    budget_percent: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct QueueJson {
    requests: Option<u64>,
    bytes: Option<u64>,
    wait_ms: Option<u64>,
}

#[derive(Deserialize)]
struct RateLimitJson {
    per_second: u64,
    burst: Option<u64>,
}

#[derive(Deserialize)]
struct ReplicaJson {
    id: String,
    address: String,
    #[serde(default)]
    revision: u64,
    weight: Option<u64>,
    state: Option<String>,
    concurrency: Option<u64>,
}

/// Error of reading a route table.
#[derive(Debug, PartialEq, Eq)]
pub enum RouteTableError {
    TooLong {
        bytes: usize,
    },
    Json {
        reason: String,
    },
    /// The format is newer than this gateway.
    Format {
        format: u64,
    },
    /// A value is out of range or malformed.
    Value {
        field: String,
        value: String,
        expected: String,
    },
    /// Two replicas have one id.
    Repeated {
        id: String,
    },
}

impl fmt::Display for RouteTableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { bytes } => {
                write!(f, "the route table has {bytes} bytes: at most {BYTES_MAX} are allowed")
            }
            Self::Json { reason } => write!(f, "the route table is not valid: {reason}"),
            Self::Format { format } => {
                write!(f, "the route table has format {format}: this gateway reads format {FORMAT}")
            }
            Self::Value { field, value, expected } => {
                write!(f, "`{field}` is `{value}`: expected {expected}")
            }
            Self::Repeated { id } => write!(f, "the replica `{id}` occurs twice"),
        }
    }
}

impl std::error::Error for RouteTableError {}

/// Parses and validates a route table.
pub fn parse(json: &[u8]) -> Result<RouteTable, RouteTableError> {
    if json.len() > BYTES_MAX {
        return Err(RouteTableError::TooLong { bytes: json.len() });
    }
    let invalid = |error: serde_json::Error| RouteTableError::Json { reason: error.to_string() };
    let FormatJson { format } = serde_json::from_slice(json).map_err(invalid)?;
    if format != FORMAT {
        return Err(RouteTableError::Format { format });
    }
    let table: TableJson = serde_json::from_slice(json).map_err(invalid)?;
    text("role", &table.role)?;
    if table.replicas.len() > REPLICAS_MAX {
        let expected = format!("at most {REPLICAS_MAX}");
        return Err(wrong("number of replicas", table.replicas.len(), expected));
    }
    let mut replicas = BTreeMap::new();
    for (index, row) in table.replicas.into_iter().enumerate() {
        let replica = replica(index, row)?;
        let id = replica.id.clone();
        if replicas.insert(id.clone(), replica).is_some() {
            return Err(RouteTableError::Repeated { id });
        }
    }
    Ok(RouteTable {
        version: table.version,
        role: table.role,
        service: service(table.service)?,
        replicas: replicas.into_values().collect(),
    })
}

fn service(json: ServiceJson) -> Result<Service, RouteTableError> {
    let mut service = Service::default();
    service.protocol = choice(
        "service.protocol",
        json.protocol,
        service.protocol,
        &[("auto", Protocol::Auto), ("http1", Protocol::Http1), ("http2", Protocol::Http2)],
    )?;
    let timeouts = &mut service.timeouts;
    let given = json.timeouts;
    time("service.timeouts.connect_ms", given.connect_ms, 1, &mut timeouts.connect)?;
    time("service.timeouts.head_ms", given.head_ms, 1, &mut timeouts.head)?;
    time("service.timeouts.idle_ms", given.idle_ms, 1, &mut timeouts.idle)?;
    time("service.timeouts.keep_alive_ms", given.keep_alive_ms, 0, &mut timeouts.keep_alive)?;
    let retry = &mut service.retry;
    retry.when = choice(
        "service.retry.when",
        json.retry.when,
        retry.when,
        &[
            ("never", RetryWhen::Never),
            ("unsent", RetryWhen::Unsent),
            ("unanswered", RetryWhen::Unanswered),
        ],
    )?;
    retry.max = number("service.retry.max", json.retry.max, 0, 10, retry.max.into())? as u32;
    let percent = json.retry.budget_percent;
    let default = retry.budget_percent.into();
    retry.budget_percent = number("service.retry.budget_percent", percent, 0, 100, default)? as u32;
    let queue = &mut service.queue;
    let requests = json.queue.requests;
    queue.requests =
        number("service.queue.requests", requests, 0, 1 << 20, queue.requests as u64)? as usize;
    let bytes = json.queue.bytes;
    queue.bytes = number("service.queue.bytes", bytes, 0, 1 << 40, queue.bytes as u64)? as usize;
    time("service.queue.wait_ms", json.queue.wait_ms, 0, &mut queue.wait)?;
    let buffer = json.buffer_bytes;
    let default = service.buffer_bytes as u64;
    service.buffer_bytes = number("service.buffer_bytes", buffer, 0, 1 << 30, default)? as usize;
    service.request_bytes = json.request_bytes;
    time("service.slow_start_ms", json.slow_start_ms, 0, &mut service.slow_start)?;
    time("service.drain_ms", json.drain_ms, 0, &mut service.drain)?;
    if let Some(limit) = json.rate_limit {
        let per_second =
            number("service.rate_limit.per_second", Some(limit.per_second), 1, 1 << 20, 0)?;
        let burst = number("service.rate_limit.burst", limit.burst, 1, 1 << 20, per_second)?;
        service.rate_limit = Some(RateLimit { per_second: per_second as u32, burst: burst as u32 });
    }
    Ok(service)
}

fn replica(index: usize, json: ReplicaJson) -> Result<Replica, RouteTableError> {
    let field = |name: &str| format!("replicas[{index}].{name}");
    text(&field("id"), &json.id)?;
    address(&field("address"), &json.address)?;
    let state = choice(
        &field("state"),
        json.state,
        ReplicaState::Serving,
        &[("serving", ReplicaState::Serving), ("draining", ReplicaState::Draining)],
    )?;
    Ok(Replica {
        id: json.id,
        address: json.address,
        revision: json.revision,
        weight: number(&field("weight"), json.weight, 0, 1_000_000, 100)? as u32,
        state,
        concurrency: number(&field("concurrency"), json.concurrency, 1, 1 << 20, 1024)? as u32,
    })
}

fn wrong(field: &str, value: impl fmt::Display, expected: impl Into<String>) -> RouteTableError {
    // Of a wild value, the beginning suffices.
    let value = value.to_string().chars().take(80).collect();
    RouteTableError::Value { field: field.to_owned(), value, expected: expected.into() }
}

/// Accepts a short text that is safe in a log line, a header and a label.
fn text(field: &str, value: &str) -> Result<(), RouteTableError> {
    let is_safe = |letter: char| letter.is_ascii_graphic() && letter != '"' && letter != '\\';
    if value.is_empty() || value.len() > TEXT_MAX || !value.chars().all(is_safe) {
        let expected = format!("1 to {TEXT_MAX} visible ASCII characters without quotes");
        return Err(wrong(field, value.escape_debug(), expected));
    }
    Ok(())
}

/// Accepts `HOST:PORT`; an IPv6 address is in brackets.
fn address(field: &str, value: &str) -> Result<(), RouteTableError> {
    text(field, value)?;
    let parts = value.rsplit_once(':');
    let is_valid = parts.is_some_and(|(host, port)| {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host_is_valid = match bare {
            Some(bare) => bare.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                let is_name =
                    |letter: u8| letter.is_ascii_alphanumeric() || b"-._".contains(&letter);
                !host.is_empty() && host.bytes().all(is_name)
            }
        };
        let is_number = !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit());
        host_is_valid && is_number && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    match is_valid {
        true => Ok(()),
        false => Err(wrong(field, value, "HOST:PORT")),
    }
}

fn number(
    field: &str,
    value: Option<u64>,
    min: u64,
    max: u64,
    default: u64,
) -> Result<u64, RouteTableError> {
    match value {
        None => Ok(default),
        Some(value) if (min..=max).contains(&value) => Ok(value),
        Some(value) => Err(wrong(field, value, format!("{min} to {max}"))),
    }
}

fn time(
    field: &str,
    value: Option<u64>,
    min: u64,
    time: &mut Duration,
) -> Result<(), RouteTableError> {
    let default = u64::try_from(time.as_millis()).unwrap_or(DAY_MS);
    *time = Duration::from_millis(number(field, value, min, DAY_MS, default)?);
    Ok(())
}

fn choice<T: Copy>(
    field: &str,
    value: Option<String>,
    default: T,
    known: &[(&str, T)],
) -> Result<T, RouteTableError> {
    let Some(value) = value else { return Ok(default) };
    let found = known.iter().find(|(name, _)| *name == value);
    found.map(|(_, choice)| *choice).ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|(name, _)| format!("`{name}`")).collect();
        wrong(field, value.escape_debug(), names.join(" or "))
    })
}

#[cfg(test)]
mod tests;
