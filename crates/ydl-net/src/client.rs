//! The other end of the wire: calls to one server, over connections kept for the next call.
//!
//! A connection is driven by the call that uses it and by nothing else. So a call that is dropped
//! takes its connection with it, and the server sees that nobody waits any more.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, UPGRADE,
};
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::messages::ErrorBody;
use super::request;
use super::secret::Token;
use super::tls::{self, Pin as CertificatePin, TlsError};

/// Connections kept while nobody calls: one for a long poll, one for what comes meanwhile.
const IDLE_MAX: usize = 2;

/// What a client allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// For name, connection and handshake together, within the call's own deadline.
    pub connect: Duration,
    /// A connection unused for longer is not used again. Less than the server's patience, so that
    /// a request does not cross the server's goodbye.
    pub idle: Duration,
    /// One answer's body.
    pub body_bytes_max: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(45),
            body_bytes_max: 64 << 20,
        }
    }
}

/// Calls one server, which must show the pinned certificate.
pub struct Client {
    address: String,
    tls: Arc<ClientConfig>,
    host: HeaderValue,
    authorization: HeaderValue,
    limits: ClientLimits,
    idle: Mutex<Vec<Line>>,
}

/// What goes with a request.
#[derive(Clone, Debug)]
pub enum Payload {
    Nothing,
    Raw(Bytes),
    Json(Bytes),
}

impl Payload {
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_vec(value).map(|body| Self::Json(body.into()))
    }
}

/// A good answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub fn json<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        serde_json::from_slice(&self.body)
            .map_err(|error| CallError::Protocol { what: format!("the answer: {error}") })
    }
}

impl Client {
    /// A client of the server at `address`, which is a host and a port. Connects to nothing yet.
    pub fn new(address: String, pin: CertificatePin, bearer: &Token) -> Result<Self, TlsError> {
        Self::with_limits(address, pin, bearer, ClientLimits::default())
    }

    pub fn with_limits(
        address: String,
        pin: CertificatePin,
        bearer: &Token,
        limits: ClientLimits,
    ) -> Result<Self, TlsError> {
        let mut authorization = HeaderValue::from_str(&format!("Bearer {}", bearer.as_str()))
            .expect("a token is made of letters that a header can carry");
        authorization.set_sensitive(true);
        // An address that no header can carry cannot be connected to either, which says it better.
        let host = HeaderValue::from_str(&address).unwrap_or(HeaderValue::from_static("ydl"));
        let (tls, idle) = (pin.client()?, Mutex::default());
        Ok(Self { address, tls, host, authorization, limits, idle })
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Asks once and waits for the answer, for `deadline` at most. `path` is a path with its query,
    /// encoded already.
    ///
    /// A request is sent a second time only where the first cannot have had an effect: it never
    /// left, or it was a `GET` on a kept connection that turned out to be dead.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        payload: Payload,
        deadline: Duration,
    ) -> Result<Answer, CallError> {
        let end = Instant::now() + deadline;
        if let Some(mut line) = self.kept_line().await {
            let request = self.request(&method, path, &payload)?;
            match self.exchange(&mut line, request, end).await {
                Ok(answer) => return self.accept(line, answer),
                Err(Failure::Unsent) => {}
                Err(Failure::Dead(_)) if method == Method::GET => {}
                Err(failure) => return Err(self.error(failure)),
            }
        }
        let request = self.request(&method, path, &payload)?;
        let mut line = self.connect(end).await?;
        match self.exchange(&mut line, request, end).await {
            Ok(answer) => self.accept(line, answer),
            Err(failure) => Err(self.error(failure)),
        }
    }

    fn request(
        &self,
        method: &Method,
        path: &str,
        payload: &Payload,
    ) -> Result<Request<Full<Bytes>>, CallError> {
        let (body, content_type) = match payload {
            Payload::Nothing => (Bytes::new(), None),
            Payload::Raw(body) => (body.clone(), Some("application/octet-stream")),
            Payload::Json(body) => (body.clone(), Some("application/json")),
        };
        let mut request =
            Request::builder().method(method).uri(path).body(Full::new(body)).map_err(|error| {
                CallError::Protocol { what: format!("the path `{path}`: {error}") }
            })?;
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(AUTHORIZATION, self.authorization.clone());
        if let Some(content_type) = content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        Ok(request)
    }

    /// A kept connection that is still good, as far as can be told.
    async fn kept_line(&self) -> Option<Line> {
        let now = Instant::now();
        {
            let mut idle = self.idle();
            idle.retain(|line| now < line.since + self.limits.idle);
            if idle.is_empty() {
                return None;
            }
        }
        // Gives the runtime a turn to hear what the system knows of the sockets.
        tokio::task::yield_now().await;
        loop {
            let mut line = self.idle().pop()?;
            if line.is_open().await {
                return Some(line);
            }
        }
    }

    /// Asks for a connection that carries whatever two programs say to each other from then on.
    pub async fn join(&self, path: &str, deadline: Duration) -> Result<Joined, CallError> {
        let end = Instant::now() + deadline;
        let mut request = self.request(&Method::POST, path, &Payload::Nothing)?;
        let headers = request.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static(request::UPGRADE));
        let (mut sender, connection) = self.dial(end).await?;
        // It ends with the answer, unless that is a yes; then with whoever has it.
        tokio::spawn(connection.with_upgrades());
        let limit = self.limits.body_bytes_max;
        let asking = async {
            let mut response = sender.send_request(request).await.map_err(Failure::of)?;
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                let joined = hyper::upgrade::on(&mut response).await;
                return joined.map(Ok).map_err(Failure::of);
            }
            let (parts, body) = response.into_parts();
            Ok(Err(Answer {
                status: parts.status,
                headers: parts.headers,
                body: read_body(body, limit).await?,
            }))
        };
        let asked = timeout_at(end, asking).await;
        match asked.unwrap_or(Err(Failure::TooLate)) {
            Ok(Ok(joined)) => Ok(TokioIo::new(joined)),
            Ok(Err(answer)) => match self.judge(answer) {
                Ok(answer) => {
                    let status = answer.status.as_u16();
                    let what = format!("the answer: unexpected status `{status}`");
                    Err(CallError::Protocol { what })
                }
                Err(error) => Err(error),
            },
            Err(failure) => Err(self.error(failure)),
        }
    }

    async fn connect(&self, end: Instant) -> Result<Line, CallError> {
        let (sender, connection) = self.dial(end).await?;
        Ok(Line { sender, connection: Some(Box::pin(connection)), since: Instant::now() })
    }

    async fn dial(&self, end: Instant) -> Result<(Sender, Connection), CallError> {
        let unreachable =
            |why: String| CallError::Unreachable { address: self.address.clone(), why };
        let limit = end.min(Instant::now() + self.limits.connect);
        let connected = timeout_at(limit, async {
            let stream = TcpStream::connect(&self.address).await?;
            stream.set_nodelay(true)?;
            let connector = TlsConnector::from(self.tls.clone());
            // Boxed, so that a call does not hold room for a handshake while it waits.
            Box::pin(connector.connect(tls::server_name(), stream)).await
        });
        let stream = match connected.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(self.refused_handshake(&error)),
            Err(_) => return Err(unreachable("no connection in time".into())),
        };
        let shaken = http1::Builder::new().handshake(TokioIo::new(stream)).await;
        shaken.map_err(|error| unreachable(error.to_string()))
    }

    fn refused_handshake(&self, error: &io::Error) -> CallError {
        let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match cause {
            Some(rustls::Error::InvalidCertificate(_)) => {
                CallError::WrongCertificate { address: self.address.clone() }
            }
            Some(cause) => CallError::Protocol { what: format!("the handshake: {cause}") },
            None => {
                CallError::Unreachable { address: self.address.clone(), why: error.to_string() }
            }
        }
    }

    async fn exchange(
        &self,
        line: &mut Line,
        request: Request<Full<Bytes>>,
        end: Instant,
    ) -> Result<Answer, Failure> {
        let limit = self.limits.body_bytes_max;
        let Line { sender, connection, .. } = line;
        let asking = async {
            let response = match sender.try_send_request(request).await {
                Ok(response) => response,
                Err(error) if error.message().is_some() => return Err(Failure::Unsent),
                Err(error) => return Err(Failure::of(error.into_error())),
            };
            let (parts, body) = response.into_parts();
            let body = read_body(body, limit).await?;
            Ok(Answer { status: parts.status, headers: parts.headers, body })
        };
        let mut asking = pin!(asking);
        let driven = poll_fn(|cx| {
            if let Poll::Ready(answer) = asking.as_mut().poll(cx) {
                return Poll::Ready(answer);
            }
            // A connection that ends leaves the reason with the request: hence the second look.
            match connection.as_mut().map(|connection| connection.as_mut().poll(cx)) {
                Some(Poll::Ready(_)) => *connection = None,
                Some(Poll::Pending) => {}
                None => return Poll::Ready(Err(Failure::Dead("the connection ended".into()))),
            }
            asking.as_mut().poll(cx)
        });
        timeout_at(end, driven).await.unwrap_or(Err(Failure::TooLate))
    }

    /// Keeps the connection if another call can use it, and sorts good answers from refusals.
    fn accept(&self, line: Line, answer: Answer) -> Result<Answer, CallError> {
        let mut idle = self.idle();
        if line.connection.is_some() && idle.len() < IDLE_MAX {
            idle.push(Line { since: Instant::now(), ..line });
        }
        drop(idle);
        self.judge(answer)
    }

    fn judge(&self, answer: Answer) -> Result<Answer, CallError> {
        if answer.status.is_success() {
            return Ok(answer);
        }
        let status = answer.status.as_u16();
        if !(answer.status.is_client_error() || answer.status.is_server_error()) {
            let what = format!("the answer: unexpected status `{status}`");
            return Err(CallError::Protocol { what });
        }
        let body = serde_json::from_slice(&answer.body).unwrap_or_else(|_| ErrorBody {
            error: format!("`{}` refused with status `{status}`", self.address),
            hint: None,
        });
        Err(CallError::Refused { status, error: body.error, hint: body.hint })
    }

    fn error(&self, failure: Failure) -> CallError {
        let address = self.address.clone();
        match failure {
            Failure::Unsent => {
                CallError::Unreachable { address, why: "the connection ended".into() }
            }
            Failure::Dead(why) => CallError::Unreachable { address, why },
            Failure::TooLate => CallError::TooLate { address },
            Failure::Nonsense(what) => CallError::Protocol { what },
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Line>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A connection that carries whatever two programs say to each other.
pub type Joined = TokioIo<Upgraded>;

type Sender = http1::SendRequest<Full<Bytes>>;
type Connection = http1::Connection<TokioIo<TlsStream<TcpStream>>, Full<Bytes>>;

/// A connection. Without the second half it has ended.
struct Line {
    sender: Sender,
    connection: Option<Pin<Box<Connection>>>,
    /// When it was last used.
    since: Instant,
}

impl Line {
    async fn is_open(&mut self) -> bool {
        let Self { sender, connection, .. } = self;
        poll_fn(|cx| {
            let open = connection.as_mut().is_some_and(|c| c.as_mut().poll(cx).is_pending());
            Poll::Ready(open && sender.is_ready())
        })
        .await
    }
}

async fn read_body(body: Incoming, limit: usize) -> Result<Bytes, Failure> {
    match Limited::new(body, limit).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Failure::Nonsense(format!("the answer: longer than {limit} bytes")))
        }
        Err(error) => Err(match error.downcast::<hyper::Error>() {
            Ok(error) => Failure::of(*error),
            Err(error) => Failure::Dead(error.to_string()),
        }),
    }
}

/// Why one exchange on one connection failed.
enum Failure {
    /// The request did not leave.
    Unsent,
    /// The connection ended before the answer did.
    Dead(String),
    TooLate,
    Nonsense(String),
}

impl Failure {
    fn of(error: hyper::Error) -> Self {
        if error.is_parse() {
            return Self::Nonsense(format!("the answer: {error}"));
        }
        let mut cause: &dyn std::error::Error = &error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        Self::Dead(cause.to_string())
    }
}

/// Why there is no answer, by what the caller can do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// No connection, or it ended before the answer: try again, perhaps elsewhere. The request may
    /// have had its effect.
    Unreachable { address: String, why: String },
    /// Somebody else answers at this address.
    WrongCertificate { address: String },
    /// The server understood, and will not.
    Refused { status: u16, error: String, hint: Option<String> },
    /// The deadline passed first. The request may have had its effect.
    TooLate { address: String },
    /// What came, or what was to be sent, makes no sense: trying again will not help.
    Protocol { what: String },
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { address, why } => write!(f, "cannot reach `{address}`: {why}"),
            Self::WrongCertificate { address } => {
                write!(f, "will not speak to `{address}`: it shows another job's certificate")
            }
            Self::Refused { error, .. } => f.write_str(error),
            Self::TooLate { address } => write!(f, "`{address}` did not answer in time"),
            Self::Protocol { what } => write!(f, "cannot make sense of {what}"),
        }
    }
}

impl std::error::Error for CallError {}
