//! Timeouts and limits of a channel.

use std::time::Duration;

use crate::security::Policy;

/// Options of a channel. The defaults suit a ResourceManager.
#[derive(Clone, Debug)]
pub struct Options {
    /// Requirements for trusting a server.
    pub security: Policy,
    /// Timeout for opening a connection, including the handshake (`ipc.client.connect.timeout`).
    pub connect_timeout: Duration,
    /// Read timeout while calls are pending; the connection is closed afterwards
    /// (`ipc.client.rpc-timeout.ms`).
    pub read_timeout: Duration,
    /// Ping interval while calls are pending (`ipc.ping.interval`).
    pub ping_interval: Duration,
    /// Idle timeout of a connection; servers use the same.
    pub idle_timeout: Duration,
    /// Total time to retry unreachable or standby servers
    /// (`yarn.resourcemanager.connect.max-wait.ms`). A call's deadline may end it earlier. With
    /// zero, each server is tried once.
    pub retry_timeout: Duration,
    /// Maximum delay between attempts; the first delay is a tenth of it.
    pub backoff_max: Duration,
    /// Maximum request size (the server's `ipc.maximum.data.length`; 64 MiB before Hadoop 3.3).
    pub request_bytes_max: usize,
    /// Maximum response size (`ipc.maximum.response.length`).
    pub response_bytes_max: usize,
    /// Maximum number of pending calls on one connection.
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
