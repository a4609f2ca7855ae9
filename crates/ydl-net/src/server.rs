//! HTTPS server for hostile networks, and HTTP for pages that a proxy fetches.
//!
//! Each phase of a connection has its own deadline, and an error closes that connection only. A request is authorized
//! before its body is read, so an unauthenticated peer cannot make the server buffer anything.

use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::BufReader;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::connection::{ServerConnection, ServerContext, ServerStream};
use super::request::{Head, Reply, Request};

/// Limits of a server. The defaults suit one master with some thousand agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Concurrent connections; further ones are closed at accept.
    pub connections_max: usize,
    /// Connections without an authorized request. A further one closes the oldest of them, so that a flood evicts itself
    /// and not the agent that connects after it.
    pub unauthenticated_max: usize,
    /// Timeout from accept to the end of the TLS handshake.
    pub handshake: Duration,
    /// Timeout from a request's first byte to the end of its headers; for the first request, from the end of the
    /// handshake.
    pub header: Duration,
    /// Timeout between a reply and the next request.
    pub idle: Duration,
    /// Timeout of reading a request body.
    pub body: Duration,
    /// Timeout of producing a reply. Long polls must end earlier by themselves.
    pub answer: Duration,
    /// Timeout of sending a reply.
    pub reply: Duration,
    /// Time for replies in progress after the stop signal.
    pub drain: Duration,
    /// Maximum bytes of a request line and headers together.
    pub header_bytes_max: usize,
    /// Maximum bytes of a request body.
    pub body_bytes_max: usize,
    /// Maximum bytes of all request bodies being read; further ones wait.
    pub bodies_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 8192,
            unauthenticated_max: 4096,
            handshake: Duration::from_secs(10),
            header: Duration::from_secs(10),
            idle: Duration::from_secs(90),
            body: Duration::from_secs(30),
            answer: Duration::from_secs(120),
            reply: Duration::from_secs(60),
            drain: Duration::from_secs(2),
            header_bytes_max: 8 << 10,
            body_bytes_max: 2 << 20,
            bodies_bytes_max: 32 << 20,
        }
    }
}

/// Maximum number of peers logged for protocol errors.
const LOGGED_PEERS_MAX: usize = 256;

/// Listen backlog. A thousand agents may connect at once, and those beyond the backlog would retry only after a second.
const BACKLOG: u32 = 4096;

/// Opens a listener for [`serve`]. Port 0 lets the system choose.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A restarted master must not wait for its predecessor's connections in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until `stop` completes, then drains replies in progress for `limits.drain`. Dropping the future closes all
/// connections at once.
///
/// `admit` authorizes a request before its body is read; `answer` gets its result. The future of an answer is dropped
/// when the peer disconnects.
///
/// Without `tls` it serves HTTP, with one request for each connection: for content that is no secret, to clients that do
/// not know the job's certificate. All connections then count as unauthenticated.
pub async fn serve<Who, Admit, Answer, Answered>(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    limits: Limits,
    stop: impl Future<Output = ()>,
    admit: Admit,
    answer: Answer,
) where
    Who: Send + 'static,
    Admit: Fn(&Head) -> Result<Who, Reply> + Send + Sync + 'static,
    Answer: Fn(Who, Request) -> Answered + Send + Sync + 'static,
    Answered: Future<Output = Reply> + Send + 'static,
{
    let (draining, drain) = watch::channel(false);
    let state = Arc::new(ServerState {
        tls: tls.map(TlsAcceptor::from),
        limits,
        // In KiB, because permits are counted with 32 bits.
        bodies: Semaphore::new(limits.bodies_bytes_max >> 10),
        logged_peers: Mutex::default(),
    });
    let handlers = Arc::new((admit, answer));
    let mut stop = pin!(stop);
    let mut connections = JoinSet::new();
    let mut unauthenticated = UnauthenticatedConnections::default();
    let mut backoff = AcceptBackoff::default();
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                backoff = AcceptBackoff::default();
                if unauthenticated.make_room(limits.unauthenticated_max) {
                    state.log_once(peer, &"evicted the oldest unauthenticated connection");
                    // It ends at once. Until then it would count below, and a burst would keep new connections out.
                    connections.join_next().await;
                }
                if connections.len() >= limits.connections_max {
                    state.log_once(peer, &"too many connections");
                    continue;
                }
                let authenticated = Arc::new(AtomicBool::new(false));
                let connection = connections.spawn(serve_connection(
                    state.clone(),
                    handlers.clone(),
                    stream,
                    peer,
                    authenticated.clone(),
                    drain.clone(),
                ));
                unauthenticated.0.push_back((connection, authenticated));
            }
            Err(error) => {
                // Connections keep closing meanwhile, which may free descriptors.
                let wait = backoff.after(&error);
                tokio::select! {
                    () = &mut stop => break,
                    () = sleep(wait) => {}
                }
            }
        }
    }
    drop(listener);
    // The channel has no receivers if every connection is closed already.
    let _ = draining.send(true);
    let _ = timeout(limits.drain, async { while connections.join_next().await.is_some() {} }).await;
}

/// Connections without an authorized request, oldest first. May include authorized ones until the next eviction.
#[derive(Debug, Default)]
struct UnauthenticatedConnections(VecDeque<(AbortHandle, Arc<AtomicBool>)>);

impl UnauthenticatedConnections {
    /// Makes room for one more. Returns whether a connection was evicted.
    fn make_room(&mut self, max: usize) -> bool {
        if self.0.len() < max {
            return false;
        }
        self.0.retain(|(connection, authenticated)| {
            !authenticated.load(Ordering::Relaxed) && !connection.is_finished()
        });
        if self.0.len() < max {
            return false;
        }
        if let Some((oldest, _)) = self.0.pop_front() {
            oldest.abort();
        }
        true
    }
}

/// Backoff after a failed accept: without it, a process out of descriptors would spin.
#[derive(Debug, Default)]
struct AcceptBackoff {
    failures: u32,
}

impl AcceptBackoff {
    fn after(&mut self, error: &io::Error) -> Duration {
        use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
        // The peer gave up before its connection was accepted.
        if matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
            return Duration::ZERO;
        }
        if self.failures == 0 {
            tracing::warn!("cannot accept connections for now: {error}");
        }
        self.failures = self.failures.saturating_add(1);
        Duration::from_millis(10 << self.failures.min(6))
    }
}

struct ServerState {
    /// None for a server without TLS.
    tls: Option<TlsAcceptor>,
    limits: Limits,
    bodies: Semaphore,
    logged_peers: Mutex<BTreeSet<IpAddr>>,
}

impl ServerState {
    /// Logs one message for each address, so that a peer cannot fill the log.
    fn log_once(&self, peer: SocketAddr, what: &dyn std::fmt::Display) {
        let mut logged_peers = self.logged_peers.lock().unwrap_or_else(PoisonError::into_inner);
        if logged_peers.len() < LOGGED_PEERS_MAX && logged_peers.insert(peer.ip()) {
            tracing::debug!("dropped a connection from `{}`: {what}", peer.ip());
        }
    }
}

/// Serves one connection from handshake to close.
async fn serve_connection<Who, Answered: Future<Output = Reply>>(
    state: Arc<ServerState>,
    handlers: Arc<(impl Fn(&Head) -> Result<Who, Reply>, impl Fn(Who, Request) -> Answered)>,
    stream: TcpStream,
    peer: SocketAddr,
    authenticated: Arc<AtomicBool>,
    draining: watch::Receiver<bool>,
) {
    // Avoids delayed small replies; failure is harmless.
    let _ = stream.set_nodelay(true);
    let stream: Box<dyn ServerStream> = match &state.tls {
        None => Box::new(BufReader::new(stream)),
        Some(tls) => {
            // Boxed, so that a connection does not reserve space for its handshake for its whole life.
            let handshake = tls.accept(stream);
            let handshake = Box::pin(async { handshake.await.map(Box::new) });
            match timeout(state.limits.handshake, handshake).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return state.log_once(peer, &error),
                Err(_) => return state.log_once(peer, &"TLS handshake timed out"),
            }
        }
    };
    // Without TLS no request is authorized: each connection has one, and can be evicted.
    let keep_alive = state.tls.is_some();
    let ServerState { limits, bodies, .. } = &*state;
    let context = ServerContext { limits, bodies, draining, keep_alive };
    let admit = |head: &Head| {
        let who = (handlers.0)(head)?;
        authenticated.store(keep_alive, Ordering::Relaxed);
        Ok(who)
    };
    if let Err(error) = ServerConnection::new(stream, peer, context).run(&admit, &handlers.1).await
    {
        state.log_once(peer, &error);
    }
}
