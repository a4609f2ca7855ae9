//! An HTTPS server that assumes the worst of every peer.
//!
//! Each phase of a connection has a deadline of its own, and whatever goes wrong with one costs that
//! connection only. A request is looked at before its body is read, so a stranger cannot make the
//! server hold anything for them.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;

use super::pace::{Pace, Paced, Phase};
use super::request::{Head, Reply, Request};

/// What a server allows. The values are for one master with some thousand agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once; one more is closed as it comes.
    pub connections_max: usize,
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
    /// Request line and headers together. Less than 8192 is taken as 8192.
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
        // In KiB, because a semaphore counts no further than 32 bits on small machines.
        bodies: Semaphore::new((limits.bodies_bytes_max >> 10).max(1)),
        noted: Mutex::default(),
    });
    let doors = Arc::new((admit, answer));
    let mut stop = pin!(stop);
    let mut lines = JoinSet::new();
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
                let line = Line {
                    shared: shared.clone(),
                    peer,
                    drain: drain.clone(),
                };
                lines.spawn(line.run(stream, doors.clone()));
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
    let _ = timeout(limits.drain, async {
        while lines.join_next().await.is_some() {}
    })
    .await;
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
        if matches!(
            error.kind(),
            ConnectionAborted | ConnectionReset | Interrupted
        ) {
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

/// One connection.
struct Line {
    shared: Arc<Shared>,
    peer: SocketAddr,
    drain: watch::Receiver<bool>,
}

impl Line {
    async fn run<Who, Admit, Answer, Answered>(
        mut self,
        stream: TcpStream,
        doors: Arc<(Admit, Answer)>,
    ) where
        Admit: Fn(&Head) -> Result<Who, Reply>,
        Answer: Fn(Who, Request) -> Answered,
        Answered: Future<Output = Reply>,
    {
        // Without it small answers wait for the peer's acknowledgement; it is no reason to give up.
        let _ = stream.set_nodelay(true);
        let limits = &self.shared.limits;
        // Boxed, so that a connection does not hold room for its handshake for ever after.
        let handshake = Box::pin(self.shared.tls.accept(stream));
        let stream = match timeout(limits.handshake, handshake).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return self.shared.note(self.peer, &error),
            Err(_) => return self.shared.note(self.peer, &"no handshake in time"),
        };

        let pace = Arc::new(Pace::new(limits));
        let io = TokioIo::new(Paced::new(stream, pace.clone()));
        let header_bytes_max = limits.header_bytes_max.max(8192);
        let connection = http1::Builder::new()
            .max_buf_size(header_bytes_max)
            .max_header_size(header_bytes_max)
            .auto_date_header(false)
            .serve_connection(
                io,
                service_fn(|request| {
                    let (shared, pace) = (&self.shared, &pace);
                    let ((admit, answer), peer) = (&*doors, self.peer);
                    async move {
                        let reply = exchange(shared, pace, peer, request, admit, answer).await;
                        pace.enter(Phase::Reply);
                        Ok::<_, Infallible>(response(reply))
                    }
                }),
            );

        let mut connection = pin!(connection);
        let mut draining = pin!(self.drain.wait_for(|draining| *draining));
        let mut drained = false;
        let mut deadline = pace.deadline();
        let mut alarm = pin!(sleep_until(deadline));
        let ended = poll_fn(|cx| {
            if !drained && draining.as_mut().poll(cx).is_ready() {
                drained = true;
                connection.as_mut().graceful_shutdown();
            }
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(ended.map_err(|error| error.to_string()));
            }
            if pace.deadline() != deadline {
                deadline = pace.deadline();
                alarm.as_mut().reset(deadline);
            }
            alarm.as_mut().poll(cx).map(|()| pace.overdue())
        });
        if let Err(error) = ended.await {
            self.shared.note(self.peer, &error);
        }
    }
}

async fn exchange<Who, Answered: Future<Output = Reply>>(
    shared: &Shared,
    pace: &Pace,
    peer: SocketAddr,
    request: hyper::Request<Incoming>,
    admit: &impl Fn(&Head) -> Result<Who, Reply>,
    answer: &impl Fn(Who, Request) -> Answered,
) -> Reply {
    pace.enter(Phase::Body);
    let (parts, body) = request.into_parts();
    let admitted = Head::parse(&parts.method, &parts.uri, &parts.headers, peer)
        .and_then(|head| admit(&head).map(|who| (who, head)));
    // The library's buffer lives as long as its view of the headers does.
    drop(parts);
    let (who, head) = match admitted {
        Ok(admitted) => admitted,
        Err(reply) => return reply,
    };
    let body = match read_body(shared, body).await {
        Ok(body) => body,
        Err(reply) => return reply,
    };
    pace.enter(Phase::Answer);
    match timeout(shared.limits.answer, answer(who, Request { head, body })).await {
        Ok(reply) => reply,
        Err(_) => Reply::error(503, "no answer was found in time", None),
    }
}

/// The body, if it is not too long. A body that is only somewhat too long is read to its end and
/// thrown away: many clients read no answer before they have sent everything.
async fn read_body(shared: &Shared, mut body: Incoming) -> Result<Vec<u8>, Reply> {
    if body.is_end_stream() {
        return Ok(Vec::new());
    }
    let limit = shared.limits.body_bytes_max;
    let too_long = || {
        let sentence = format!("the request's body is longer than {limit} bytes");
        Reply::error(StatusCode::PAYLOAD_TOO_LARGE.as_u16(), sentence, None)
    };
    let tolerated = (limit as u64).saturating_mul(4);
    let (announced, most) = (body.size_hint().lower(), body.size_hint().upper());
    if announced > tolerated {
        return Err(too_long());
    }
    let room = most
        .unwrap_or(limit as u64)
        .min(limit as u64)
        .div_ceil(1 << 10);
    let room = room.min((shared.limits.bodies_bytes_max as u64 >> 10).max(1));
    let _room = shared.bodies.acquire_many(room as u32).await;

    // Grown as bytes come and not as announced: a promise is cheap.
    let mut bytes = Vec::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let broken = |_| Reply::error(400, "the request's body broke off", None);
        let Ok(data) = frame.map_err(broken)?.into_data() else {
            continue;
        };
        length += data.len() as u64;
        if length > tolerated {
            return Err(too_long());
        } else if length > limit as u64 {
            bytes = Vec::new();
        } else {
            bytes.extend_from_slice(&data);
        }
    }
    if length > limit as u64 {
        Err(too_long())
    } else {
        Ok(bytes)
    }
}

fn response(reply: Reply) -> Response<Full<Bytes>> {
    let empty = reply.body.is_empty();
    let mut response = Response::new(Full::new(reply.body));
    *response.status_mut() = reply.status;
    let headers = response.headers_mut();
    if !empty {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(reply.content_type));
    } else if reply.status != StatusCode::NO_CONTENT {
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    // The rest of a body that was turned away must not be taken for a next request.
    if reply.status == StatusCode::PAYLOAD_TOO_LARGE {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    headers.extend(reply.headers);
    response
}
