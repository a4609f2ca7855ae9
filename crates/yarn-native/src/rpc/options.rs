//! How patient a channel is, and how much it takes.

use std::time::Duration;

use crate::security::Policy;

/// Limits and times of a channel. The defaults suit a ResourceManager.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is demanded of a server before it is trusted.
    pub security: Policy,
    /// For opening a connection, handshake included (`ipc.client.connect.timeout`).
    pub connect_timeout: Duration,
    /// A connection on which calls wait, and nothing has been heard for this long, is given up
    /// (`ipc.client.rpc-timeout.ms`).
    pub read_timeout: Duration,
    /// While calls wait, something is sent at least this often (`ipc.ping.interval`).
    pub ping_interval: Duration,
    /// A connection without calls is closed after this long; servers do the same.
    pub idle_timeout: Duration,
    /// How long servers that cannot be reached, or are standby, are tried again
    /// (`yarn.resourcemanager.connect.max-wait.ms`). A call's deadline may end it earlier. Without
    /// any, each server has one chance.
    pub retry_timeout: Duration,
    /// The longest pause between tries; the first is a tenth of it.
    pub backoff_max: Duration,
    /// The longest request (`ipc.maximum.data.length` of the server; 64 MiB before Hadoop 3.3).
    pub request_bytes_max: usize,
    /// The longest response (`ipc.maximum.response.length`).
    pub response_bytes_max: usize,
    /// Calls that may wait for an answer on one connection.
    pub calls_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            security: Policy::default(),
            connect_timeout: Duration::from_secs(20),
            read_timeout: Duration::from_secs(120),
            ping_interval: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(10),
            retry_timeout: Duration::from_secs(15 * 60),
            backoff_max: Duration::from_secs(1),
            request_bytes_max: 64 << 20,
            response_bytes_max: 128 << 20,
            calls_max: 1024,
        }
    }
}
