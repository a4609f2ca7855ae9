//! An HTTPS server that assumes the worst of every peer.
//!
//! Each phase of a connection has a deadline of its own, and whatever goes wrong with one costs that
//! connection only. A request is looked at before its body is read, so a stranger cannot make the
//! server hold anything for them.

use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::line::{Lent, Line};
use super::request::{Head, Reply, Request};

/// What a server allows. The values are for one master with some thousand agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once; one more is closed as it comes.
    pub connections_max: usize,
    /// Of these, such from which no request was admitted yet. One more ends the oldest of them, so that a crowd pushes
    /// out itself and not the agent that comes after it.
    pub strangers_max: usize,
    /// From the connection to the end of TLS's handshake.
    pub handshake: Duration,
    /// From a request's first byte to the end of its headers; for a connection's first request,
    /// from the handshake's end.
    pub header: Duration,
    /// From one answer to the next request.
    pub idle: Duration,
    /// For a request's body to come.
    pub body: Duration,
    /// For the answer to be found. Long polls must end before this by themselves.
    pub answer: Duration,
    /// For the peer to take the answer.
    pub reply: Duration,
    /// From the stop signal to the end of answers under way.
    pub drain: Duration,
    /// A request's first line and headers together.
    pub header_bytes_max: usize,
    /// One request's body.
    pub body_bytes_max: usize,
    /// The bodies of all requests that are being read; more of them wait for room.
    pub bodies_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 8192,
            strangers_max: 4096,
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

/// Peers noted for misbehaviour; beyond this many nobody is noted any more.
const NOTED_MAX: usize = 256;

/// Connections that the system holds until they are accepted. A thousand agents may come at once,
/// and those beyond this number would try again only after a second.
const BACKLOG: u32 = 4096;

/// A socket to give to [`serve`]. Port 0 lets the system choose.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A master that starts again must not wait for the old one's connections to be forgotten.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until `stop` ends, then lets answers under way be given for `limits.drain`. Dropping the
/// future ends everything at once.
///
/// `admit` sees a request before its body and says who it is from, or turns it away; `answer` gets
/// what `admit` found. The future of an answer is dropped when its peer goes away.
pub async fn serve<Who, Admit, Answer, Answered>(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
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
    let shared = Arc::new(Shared {
        tls: TlsAcceptor::from(tls),
        limits,
        // In KiB, because room is asked for with 32 bits.
        bodies: Semaphore::new(limits.bodies_bytes_max >> 10),
        noted: Mutex::default(),
    });
    let doors = Arc::new((admit, answer));
    let mut stop = pin!(stop);
    let mut lines = JoinSet::new();
    let mut strangers = Strangers::default();
    let mut patience = Patience::default();
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            Some(_) = lines.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                patience = Patience::default();
                if lines.len() >= limits.connections_max {
                    shared.note(peer, &"too many connections");
                    continue;
                }
                if strangers.make_room(limits.strangers_max) {
                    shared.note(peer, &"one of too many strangers went for it");
                }
                let known = Arc::new(AtomicBool::new(false));
                let line = lines.spawn(attend(
                    shared.clone(),
                    doors.clone(),
                    stream,
                    peer,
                    known.clone(),
                    drain.clone(),
                ));
                strangers.0.push_back((line, known));
            }
            Err(error) => {
                // Connections that end may be what gives descriptors back, so they end meanwhile.
                let wait = patience.after(&error);
                tokio::select! {
                    () = &mut stop => break,
                    () = sleep(wait) => {}
                }
            }
        }
    }
    drop(listener);
    // Nobody listens any more if every connection is gone already.
    let _ = draining.send(true);
    let _ = timeout(limits.drain, async { while lines.join_next().await.is_some() {} }).await;
}

/// Connections from which nothing was admitted yet, the oldest first; others may be among them until room is made.
#[derive(Debug, Default)]
struct Strangers(VecDeque<(AbortHandle, Arc<AtomicBool>)>);

impl Strangers {
    /// Room for one more; whether one had to go for it.
    fn make_room(&mut self, max: usize) -> bool {
        if self.0.len() < max {
            return false;
        }
        self.0.retain(|(line, known)| !known.load(Ordering::Relaxed) && !line.is_finished());
        if self.0.len() < max {
            return false;
        }
        if let Some((oldest, _)) = self.0.pop_front() {
            oldest.abort();
        }
        true
    }
}

/// How long to wait after the system would not accept: out of descriptors, it would say so again
/// at once, for ever.
#[derive(Debug, Default)]
struct Patience {
    failures: u32,
}

impl Patience {
    fn after(&mut self, error: &io::Error) -> Duration {
        use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
        // These are about the one peer that gave up before it was its turn.
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

struct Shared {
    tls: TlsAcceptor,
    limits: Limits,
    bodies: Semaphore,
    noted: Mutex<BTreeSet<IpAddr>>,
}

impl Shared {
    /// Once for each address: a peer must not be able to fill the log.
    fn note(&self, peer: SocketAddr, what: &dyn std::fmt::Display) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.len() < NOTED_MAX && noted.insert(peer.ip()) {
            tracing::debug!("dropped a connection from `{}`: {what}", peer.ip());
        }
    }
}

/// One connection from its beginning to its end.
async fn attend<Who, Answered: Future<Output = Reply>>(
    shared: Arc<Shared>,
    doors: Arc<(impl Fn(&Head) -> Result<Who, Reply>, impl Fn(Who, Request) -> Answered)>,
    stream: TcpStream,
    peer: SocketAddr,
    known: Arc<AtomicBool>,
    draining: watch::Receiver<bool>,
) {
    // Without it small answers wait for the peer's acknowledgement; it is no reason to give up.
    let _ = stream.set_nodelay(true);
    // Boxed, so that a connection does not hold room for its handshake for ever after.
    let handshake = shared.tls.accept(stream);
    let handshake = Box::pin(async { handshake.await.map(Box::new) });
    let stream = match timeout(shared.limits.handshake, handshake).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return shared.note(peer, &error),
        Err(_) => return shared.note(peer, &"no handshake in time"),
    };
    let lent = Lent { limits: &shared.limits, bodies: &shared.bodies, draining };
    let admit = |head: &Head| {
        let who = (doors.0)(head)?;
        known.store(true, Ordering::Relaxed);
        Ok(who)
    };
    if let Err(trouble) = Line::new(stream, peer, lent).run(&admit, &doors.1).await {
        shared.note(peer, &trouble);
    }
}
