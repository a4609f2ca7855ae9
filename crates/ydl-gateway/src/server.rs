//! Accepts clients and serves their connections.

mod activity;
mod connection;

pub(crate) use activity::ActiveRequest;
pub(crate) use connection::STREAM_WINDOW;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::gateway::{Gateway, GatewayState};
use activity::Activities;

/// Limits on connections of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Maximum number of connections. A further one closes the connection that has been idle for longest; if none is idle,
    /// it is closed itself.
    pub connections_max: usize,
    /// Timeout of the TLS handshake.
    pub handshake: Duration,
    /// Timeout from the first byte of a request to the end of its head, and from accept to the first byte.
    pub head: Duration,
    /// Timeout between requests.
    pub idle: Duration,
    /// Timeout of a write that makes no progress.
    pub write: Duration,
}

impl Default for ServerLimits {
    fn default() -> ServerLimits {
        ServerLimits {
            connections_max: 8192,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(10),
            idle: Duration::from_secs(90),
            write: Duration::from_secs(120),
        }
    }
}

/// Maximum number of connections to the metrics.
const METRICS_CONNECTIONS_MAX: usize = 32;
/// Timeout of one request of metrics.
const METRICS_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay after a failed accept: without it, a process out of descriptors would spin.
const ACCEPT_DELAY: Duration = Duration::from_millis(50);

/// Serves until `stop` completes, then drains. Returns the number of connections that were cut off.
pub(crate) async fn serve(
    state: &Arc<GatewayState>,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> usize {
    let mut stop = pin!(stop);
    let mut connections = JoinSet::new();
    let activities = Activities::default();
    let (drain, drained) = watch::channel(());
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let Some((stream, address)) = accepted_or_wait(accepted).await else { continue };
        if connections.len() + tunnels(state) >= state.options.limits.connections_max {
            if !activities.evict_idle() {
                tracing::debug!(
                    "closed a connection from `{}`: too many connections",
                    address.ip()
                );
                continue;
            }
            connections.join_next().await;
        }
        let activity = activities.add();
        let drained = drained.clone();
        connections.spawn(connection::serve(state.clone(), stream, address, activity, drained));
    }
    // New connections are refused from now on, so that a load balancer tries another gateway.
    drop(listener);
    drop(drain);
    let limit = state.table().service.drain;
    let ended = timeout(limit, async {
        while connections.join_next().await.is_some() {}
        while tunnels(state) > 0 {
            sleep(ACCEPT_DELAY).await;
        }
    });
    match ended.await {
        Ok(()) => 0,
        Err(_) => {
            let cut_off = connections.len() + tunnels(state);
            state.tunnels.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
            cut_off
        }
    }
}

fn tunnels(state: &GatewayState) -> usize {
    let mut tunnels = state.tunnels.lock().unwrap_or_else(PoisonError::into_inner);
    while tunnels.try_join_next().is_some() {}
    tunnels.len()
}

async fn accepted_or_wait<T>(accepted: io::Result<T>) -> Option<T> {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    match accepted {
        Ok(accepted) => Some(accepted),
        // The peer gave up before its connection was accepted.
        Err(error) if matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) => {
            None
        }
        Err(error) => {
            tracing::warn!("cannot accept connections for now: {error}");
            sleep(ACCEPT_DELAY).await;
            None
        }
    }
}

/// Serves `/metrics`, one request for each connection.
pub(crate) async fn serve_metrics(
    gateway: &Gateway,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) {
    let mut stop = pin!(stop);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = &mut stop => return,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept(), if connections.len() < METRICS_CONNECTIONS_MAX => accepted,
        };
        if let Some((stream, _)) = accepted_or_wait(accepted).await {
            let serving = serve_metrics_connection(gateway.clone(), stream);
            connections.spawn(async move { drop(timeout(METRICS_TIMEOUT, serving).await) });
        }
    }
}

async fn serve_metrics_connection(gateway: Gateway, stream: TcpStream) {
    let service = service_fn(async |request: Request<Incoming>| {
        let mut response = Response::new(Full::new(Bytes::new()));
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/metrics") => {
                *response.body_mut() = Full::new(gateway.metrics().into());
                let kind = HeaderValue::from_static("text/plain; version=0.0.4");
                response.headers_mut().insert(CONTENT_TYPE, kind);
            }
            _ => *response.status_mut() = StatusCode::NOT_FOUND,
        }
        Ok::<_, Infallible>(response)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // An error is the peer's.
    let _ = connection.await;
}
