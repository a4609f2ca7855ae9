//! Route table: the replicas of a role and the settings of its gateway, as a validated value.

mod parser;

pub use parser::{RouteTableError, parse};

use std::time::Duration;

use crate::retry::RetryPolicy;

/// Replicas and settings at one version. A gateway ignores a table that is older than the one it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteTable {
    /// Counts changes of the table.
    pub version: u64,
    /// The role, for the labels of metrics.
    pub role: String,
    pub service: Service,
    /// In ascending order of their ids, each at most once.
    pub replicas: Vec<Replica>,
}

/// One program that answers requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Replica {
    /// Task and attempt. A new attempt is another replica.
    pub id: String,
    /// Host and port.
    pub address: String,
    pub revision: u64,
    /// Share of the requests, relative to the other replicas. 0 excludes the replica.
    pub weight: u32,
    pub state: ReplicaState,
    /// Maximum number of requests in flight.
    pub concurrency: u32,
}

/// State of a replica that the route table assigns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReplicaState {
    Serving,
    /// Finishes its requests and gets no more.
    Draining,
}

/// Settings for all requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub protocol: Protocol,
    pub timeouts: Timeouts,
    pub retry: RetryPolicy,
    pub queue: QueueLimits,
    /// Maximum bytes of a request body that are kept for a retry.
    pub buffer_bytes: usize,
    /// Maximum bytes of a request body; no limit by default.
    pub request_bytes: Option<u64>,
    /// Time in which a new replica reaches its full share.
    pub slow_start: Duration,
    pub rate_limit: Option<RateLimit>,
    /// Time for requests in flight after the gateway was told to end.
    pub drain: Duration,
}

/// HTTP version of the connections to replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/2 for gRPC, otherwise HTTP/1.1.
    Auto,
    Http1,
    Http2,
}

/// Maximum waits for a replica or a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    pub connect: Duration,
    /// From the end of a request to the head of its response.
    pub head: Duration,
    /// Without progress of a body in either direction.
    pub idle: Duration,
    /// Age at which an unused connection to a replica is closed. Shorter than the replica's own timeout, or a request may
    /// meet a connection that is just being closed.
    pub keep_alive: Duration,
}

/// Limits of the requests that wait for a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    pub requests: usize,
    pub bytes: usize,
    pub wait: Duration,
}

/// Limit of the requests of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    pub per_second: u32,
    /// Number of requests that may arrive at once.
    pub burst: u32,
}

impl Default for Service {
    fn default() -> Service {
        Service {
            protocol: Protocol::Auto,
            timeouts: Timeouts {
                connect: Duration::from_secs(1),
                head: Duration::from_secs(60),
                idle: Duration::from_secs(300),
                keep_alive: Duration::from_millis(1500),
            },
            retry: RetryPolicy::default(),
            queue: QueueLimits { requests: 1000, bytes: 64 << 20, wait: Duration::from_secs(60) },
            buffer_bytes: 1 << 20,
            request_bytes: None,
            slow_start: Duration::from_secs(10),
            rate_limit: None,
            drain: Duration::from_secs(60),
        }
    }
}

impl RouteTable {
    /// Returns the table before any is known: no replicas, so requests wait in the queue.
    pub fn empty(role: &str) -> RouteTable {
        RouteTable {
            version: 0,
            role: role.to_owned(),
            service: Service::default(),
            replicas: Vec::new(),
        }
    }
}
