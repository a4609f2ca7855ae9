//! Connections to replicas that can be used again, separately for each replica.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::balancer::Picked;
use crate::connect::{Connect, ConnectError, connect_in_time};
use crate::request_body::RequestBody;
use crate::route_table::{RouteTable, Timeouts};

/// Window of one stream and of a connection in HTTP/2. A stream that its client does not read must not stop the others.
const STREAM_WINDOW: u32 = 512 << 10;
const CONNECTION_WINDOW: u32 = 64 << 20;
/// Limits of a response head.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Interval and timeout of pings on HTTP/2 connections, which find dead peers.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Pools of all replicas.
#[derive(Debug)]
pub(crate) struct Pools {
    connect: Arc<dyn Connect>,
    pools: Mutex<HashMap<Arc<str>, Arc<Pool>>>,
}

/// Connections to one replica.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// Idle connections of HTTP/1.1, the most recently used last.
    idle: Mutex<Vec<(Http1Connection, Instant)>>,
    /// The connection of HTTP/2. The lock is held while it is opened, so that only one is.
    shared: tokio::sync::Mutex<Option<http2::SendRequest<RequestBody>>>,
}

/// Connection for one request at a time. Dropping it closes the socket, and thereby cancels a request.
#[derive(Debug)]
pub(crate) struct Http1Connection {
    sender: http1::SendRequest<RequestBody>,
    task: AbortHandle,
}

impl Drop for Http1Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Connection with the HTTP version of a request.
#[derive(Debug)]
pub(crate) enum ReplicaConnection {
    Http1(Http1Connection),
    Http2(http2::SendRequest<RequestBody>),
}

/// Error of sending a request.
#[derive(Debug)]
pub(crate) struct SendError {
    pub error: hyper::Error,
    pub processed: Processed,
}

/// Extent to which a failed request was processed by the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Processed {
    /// The connection was closed before the request.
    Closed,
    /// The replica refused the request, and others on the same connection may succeed.
    Refused,
    Perhaps,
}

impl Pools {
    pub(crate) fn new(connect: Arc<dyn Connect>) -> Pools {
        Pools { connect, pools: Mutex::default() }
    }

    /// Closes the idle connections to replicas that are no longer in the table.
    pub(crate) fn apply(&self, table: &RouteTable) {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|id, _| table.replicas.iter().any(|replica| *replica.id == **id));
    }

    /// Closes connections that have been idle for too long.
    pub(crate) fn close_idle(&self, keep_alive: Duration) {
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        for pool in pools.values() {
            pool.close_idle(keep_alive);
        }
    }

    pub(crate) fn of(&self, picked: &Picked) -> Arc<Pool> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.entry(picked.id.clone()).or_default().clone()
    }

    /// Returns an idle connection of HTTP/1.1, or opens one.
    pub(crate) async fn http1(
        &self,
        pool: &Pool,
        picked: &Picked,
        timeouts: &Timeouts,
    ) -> Result<(ReplicaConnection, bool), ConnectError> {
        if let Some(connection) = pool.take_idle(timeouts.keep_alive) {
            return Ok((ReplicaConnection::Http1(connection), true));
        }
        let stream = connect_in_time(&*self.connect, &picked.replica, timeouts.connect).await?;
        let handshake = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX.max(512 << 10))
            .max_header_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(stream));
        let (sender, connection) =
            handshake.await.map_err(|source| ConnectError::Handshake { source })?;
        // Its errors are also those of its requests.
        let task = tokio::spawn(async move { drop(connection.with_upgrades().await) });
        let connection = Http1Connection { sender, task: task.abort_handle() };
        Ok((ReplicaConnection::Http1(connection), false))
    }

    /// Returns the connection of HTTP/2, or opens one. `was_closed` is true if the present one was found closed.
    pub(crate) async fn http2(
        &self,
        pool: &Pool,
        picked: &Picked,
        timeouts: &Timeouts,
        was_closed: bool,
    ) -> Result<(ReplicaConnection, bool), ConnectError> {
        // Of requests that wait for a connection attempt that hangs, none waits longer than for its own.
        let locked = timeout(timeouts.connect, pool.shared.lock()).await;
        let mut shared = locked.map_err(|_| ConnectError::TimedOut)?;
        if was_closed {
            *shared = None;
        }
        if let Some(sender) = shared.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok((ReplicaConnection::Http2(sender.clone()), true));
        }
        let stream = connect_in_time(&*self.connect, &picked.replica, timeouts.connect).await?;
        let handshake = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake(TokioIo::new(stream));
        let (sender, connection) =
            handshake.await.map_err(|source| ConnectError::Handshake { source })?;
        // It ends with its last request, after the pool has dropped its sender.
        tokio::spawn(async move { drop(connection.await) });
        *shared = Some(sender.clone());
        Ok((ReplicaConnection::Http2(sender), false))
    }
}

impl Pool {
    fn take_idle(&self, keep_alive: Duration) -> Option<Http1Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((connection, since)) = idle.pop() {
            if since.elapsed() >= keep_alive {
                // All others are older.
                idle.clear();
                return None;
            }
            if !connection.sender.is_closed() {
                return Some(connection);
            }
        }
        None
    }

    fn close_idle(&self, keep_alive: Duration) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(connection, since)| {
            since.elapsed() < keep_alive && !connection.sender.is_closed()
        });
    }

    /// Takes back a connection after a complete response.
    pub(crate) fn put_back(&self, connection: ReplicaConnection) {
        match connection {
            ReplicaConnection::Http1(connection) if !connection.sender.is_closed() => {
                let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
                idle.push((connection, Instant::now()));
            }
            ReplicaConnection::Http1(_) | ReplicaConnection::Http2(_) => {}
        }
    }
}

impl ReplicaConnection {
    /// Sends a request and waits for the head of the response.
    pub(crate) async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, SendError> {
        let sent = match self {
            ReplicaConnection::Http1(connection) => {
                connection.sender.try_send_request(request).await
            }
            ReplicaConnection::Http2(sender) => sender.try_send_request(request).await,
        };
        sent.map_err(|mut failed| {
            let is_returned = failed.take_message().is_some();
            let error = failed.into_error();
            let processed = if is_returned { Processed::Closed } else { processed(&error) };
            SendError { error, processed }
        })
    }
}

/// Returns what the replica says: it refused the stream, or it closed the connection and the stream is beyond the last one
/// that it processed (RFC 9113, 8.7).
fn processed(error: &hyper::Error) -> Processed {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if let Some(error) = inner.downcast_ref::<h2::Error>().filter(|error| error.is_remote()) {
            let is_refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
            return match (is_refused, error.is_go_away()) {
                (true, _) => Processed::Refused,
                (false, true) => Processed::Closed,
                (false, false) => Processed::Perhaps,
            };
        }
        source = inner.source();
    }
    Processed::Perhaps
}
