//! HTTPS client of one server, with pooled connections.
//!
//! A connection is driven by the call that uses it and by nothing else, so dropping a call closes its connection and the
//! server sees that the caller is gone.

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

use ydl_proto::version::{PROTOCOL_VERSION, VERSION_HEADER, check_protocol};

use super::request;
use super::request::ErrorBody;
use super::secret::Token;
use super::tls::{self, Pin as CertificatePin, TlsError};

/// Idle connections kept: one for a long poll, one for calls made meanwhile.
const IDLE_MAX: usize = 2;

/// Limits of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Timeout of name lookup, connect and handshake together, within the call's own deadline.
    pub connect: Duration,
    /// Idle time after which a connection is not reused. Shorter than the server's, so that a request does not race with
    /// the server's close.
    pub idle: Duration,
    /// Maximum size of a response body.
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

/// Client of one server, which must present the pinned certificate.
pub struct Client {
    address: String,
    tls: Arc<ClientConfig>,
    host: HeaderValue,
    authorization: HeaderValue,
    limits: ClientLimits,
    idle: Mutex<Vec<PooledConnection>>,
}

/// Body of a request.
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

/// Successful response.
#[derive(Clone, Debug)]
pub struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    pub fn json<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        serde_json::from_slice(&self.body)
            .map_err(|error| CallError::Protocol { what: format!("the response: {error}") })
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

impl Client {
    /// Creates a client of the server at `address` (`host:port`). Opens no connection yet.
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
            .expect("a token is valid in a header");
        authorization.set_sensitive(true);
        // An address that is invalid in a header cannot be connected to either, and that error is clearer.
        let host = HeaderValue::from_str(&address).unwrap_or(HeaderValue::from_static("ydl"));
        let (tls, idle) = (pin.client()?, Mutex::default());
        Ok(Self { address, tls, host, authorization, limits, idle })
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends a request and waits for the response, up to `deadline`. `path` includes the query, already encoded.
    ///
    /// A request is retried only where the first attempt cannot have had an effect: it was never sent, or it was a `GET`
    /// on a pooled connection that turned out to be closed.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        payload: Payload,
        deadline: Duration,
    ) -> Result<Response, CallError> {
        let end = Instant::now() + deadline;
        if let Some(mut connection) = self.pooled_connection().await {
            let request = self.request(&method, path, &payload)?;
            match self.exchange(&mut connection, request, end).await {
                Ok(answer) => return self.accept(connection, answer),
                Err(ExchangeError::Unsent) => {}
                Err(ExchangeError::Closed(_)) if method == Method::GET => {}
                Err(failure) => return Err(self.error(failure)),
            }
        }
        let request = self.request(&method, path, &payload)?;
        let mut connection = self.connect(end).await?;
        match self.exchange(&mut connection, request, end).await {
            Ok(answer) => self.accept(connection, answer),
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
        headers.insert(VERSION_HEADER, HeaderValue::from(PROTOCOL_VERSION));
        headers.insert(HOST, self.host.clone());
        headers.insert(AUTHORIZATION, self.authorization.clone());
        if let Some(content_type) = content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        Ok(request)
    }

    /// Takes a pooled connection that still looks open.
    async fn pooled_connection(&self) -> Option<PooledConnection> {
        let now = Instant::now();
        {
            let mut idle = self.idle();
            idle.retain(|connection| now < connection.since + self.limits.idle);
            if idle.is_empty() {
                return None;
            }
        }
        // Lets the runtime poll the sockets for a close by the server.
        tokio::task::yield_now().await;
        loop {
            let mut connection = self.idle().pop()?;
            if connection.is_open().await {
                return Some(connection);
            }
        }
    }

    /// Requests an upgrade to a raw byte stream between two programs.
    pub async fn join(&self, path: &str, deadline: Duration) -> Result<UpgradedStream, CallError> {
        let end = Instant::now() + deadline;
        let mut request = self.request(&Method::POST, path, &Payload::Nothing)?;
        let headers = request.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static(request::UPGRADE));
        let (mut sender, connection) = self.dial(end).await?;
        // The connection ends with the response, unless the upgrade is accepted; then its owner decides.
        tokio::spawn(connection.with_upgrades());
        let limit = self.limits.body_bytes_max;
        let asking = async {
            let mut response = sender.send_request(request).await.map_err(ExchangeError::of)?;
            if response.status() == StatusCode::SWITCHING_PROTOCOLS
                && check_protocol(header(response.headers(), VERSION_HEADER)).is_ok()
            {
                let joined = hyper::upgrade::on(&mut response).await;
                return joined.map(Ok).map_err(ExchangeError::of);
            }
            let (parts, body) = response.into_parts();
            Ok(Err(Response {
                status: parts.status,
                headers: parts.headers,
                body: read_body(body, limit).await?,
            }))
        };
        let asked = timeout_at(end, asking).await;
        match asked.unwrap_or(Err(ExchangeError::Timeout)) {
            Ok(Ok(joined)) => Ok(TokioIo::new(joined)),
            Ok(Err(answer)) => match self.judge(answer) {
                Ok(answer) => {
                    let status = answer.status.as_u16();
                    let what = format!("the response: unexpected status `{status}`");
                    Err(CallError::Protocol { what })
                }
                Err(error) => Err(error),
            },
            Err(failure) => Err(self.error(failure)),
        }
    }

    async fn connect(&self, end: Instant) -> Result<PooledConnection, CallError> {
        let (sender, connection) = self.dial(end).await?;
        Ok(PooledConnection {
            sender,
            connection: Some(Box::pin(connection)),
            since: Instant::now(),
        })
    }

    async fn dial(&self, end: Instant) -> Result<(Sender, Connection), CallError> {
        let unreachable =
            |why: String| CallError::Unreachable { address: self.address.clone(), why };
        let limit = end.min(Instant::now() + self.limits.connect);
        let connected = timeout_at(limit, async {
            let stream = TcpStream::connect(&self.address).await?;
            stream.set_nodelay(true)?;
            let connector = TlsConnector::from(self.tls.clone());
            // Boxed, so that a waiting call does not reserve space for a handshake.
            Box::pin(connector.connect(tls::server_name(), stream)).await
        });
        let stream = match connected.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(self.refused_handshake(&error)),
            Err(_) => return Err(unreachable("connect timed out".into())),
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
        connection: &mut PooledConnection,
        request: Request<Full<Bytes>>,
        end: Instant,
    ) -> Result<Response, ExchangeError> {
        let limit = self.limits.body_bytes_max;
        let PooledConnection { sender, connection, .. } = connection;
        let asking = async {
            let response = match sender.try_send_request(request).await {
                Ok(response) => response,
                Err(error) if error.message().is_some() => return Err(ExchangeError::Unsent),
                Err(error) => return Err(ExchangeError::of(error.into_error())),
            };
            let (parts, body) = response.into_parts();
            let body = read_body(body, limit).await?;
            Ok(Response { status: parts.status, headers: parts.headers, body })
        };
        let mut asking = pin!(asking);
        let driven = poll_fn(|cx| {
            if let Poll::Ready(answer) = asking.as_mut().poll(cx) {
                return Poll::Ready(answer);
            }
            // A connection that ends leaves its error with the request: poll it again.
            match connection.as_mut().map(|connection| connection.as_mut().poll(cx)) {
                Some(Poll::Ready(_)) => *connection = None,
                Some(Poll::Pending) => {}
                None => {
                    return Poll::Ready(Err(ExchangeError::Closed(
                        "the connection was closed".into(),
                    )));
                }
            }
            asking.as_mut().poll(cx)
        });
        timeout_at(end, driven).await.unwrap_or(Err(ExchangeError::Timeout))
    }

    /// Returns the connection to the pool if it can be reused, and separates errors from successful responses.
    fn accept(
        &self,
        connection: PooledConnection,
        answer: Response,
    ) -> Result<Response, CallError> {
        let mut idle = self.idle();
        if connection.connection.is_some() && idle.len() < IDLE_MAX {
            idle.push(PooledConnection { since: Instant::now(), ..connection });
        }
        drop(idle);
        self.judge(answer)
    }

    fn judge(&self, answer: Response) -> Result<Response, CallError> {
        check_protocol(answer.header(VERSION_HEADER)).map_err(|why| self.other_version(why))?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        let status = answer.status.as_u16();
        if !(answer.status.is_client_error() || answer.status.is_server_error()) {
            let what = format!("the response: unexpected status `{status}`");
            return Err(CallError::Protocol { what });
        }
        let body = serde_json::from_slice(&answer.body).unwrap_or_else(|_| ErrorBody {
            error: format!("`{}` refused with status `{status}`", self.address),
            hint: None,
        });
        Err(CallError::Refused { status, error: body.error, hint: body.hint })
    }

    fn other_version(&self, why: String) -> CallError {
        CallError::Version { address: self.address.clone(), why }
    }

    fn error(&self, failure: ExchangeError) -> CallError {
        let address = self.address.clone();
        match failure {
            ExchangeError::Unsent => {
                CallError::Unreachable { address, why: "the connection was closed".into() }
            }
            ExchangeError::Closed(why) => CallError::Unreachable { address, why },
            ExchangeError::Timeout => CallError::Timeout { address },
            ExchangeError::Protocol(what) => CallError::Protocol { what },
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<PooledConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Raw byte stream between two programs.
pub type UpgradedStream = TokioIo<Upgraded>;

type Sender = http1::SendRequest<Full<Bytes>>;
type Connection = http1::Connection<TokioIo<TlsStream<TcpStream>>, Full<Bytes>>;

/// Open connection; closed if `connection` is `None`.
struct PooledConnection {
    sender: Sender,
    connection: Option<Pin<Box<Connection>>>,
    /// Time of the last use.
    since: Instant,
}

impl PooledConnection {
    async fn is_open(&mut self) -> bool {
        let Self { sender, connection, .. } = self;
        poll_fn(|cx| {
            let open = connection.as_mut().is_some_and(|c| c.as_mut().poll(cx).is_pending());
            Poll::Ready(open && sender.is_ready())
        })
        .await
    }
}

async fn read_body(body: Incoming, limit: usize) -> Result<Bytes, ExchangeError> {
    match Limited::new(body, limit).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(ExchangeError::Protocol(format!("the response: longer than {limit} bytes")))
        }
        Err(error) => Err(match error.downcast::<hyper::Error>() {
            Ok(error) => ExchangeError::of(*error),
            Err(error) => ExchangeError::Closed(error.to_string()),
        }),
    }
}

/// Error of one exchange on one connection.
enum ExchangeError {
    /// The request was not sent.
    Unsent,
    /// The connection was closed before the response was complete.
    Closed(String),
    Timeout,
    Protocol(String),
}

impl ExchangeError {
    fn of(error: hyper::Error) -> Self {
        if error.is_parse() {
            return Self::Protocol(format!("the response: {error}"));
        }
        let mut cause: &dyn std::error::Error = &error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        Self::Closed(cause.to_string())
    }
}

/// Error of a call, by what the caller can do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// No connection, or it was closed before the response: retry, perhaps elsewhere. The request may have taken effect.
    Unreachable { address: String, why: String },
    /// Another process answers at this address.
    WrongCertificate { address: String },
    /// The server uses another version of the protocol: retrying does not help.
    Version { address: String, why: String },
    /// The server rejected the request.
    Refused { status: u16, error: String, hint: Option<String> },
    /// The deadline passed. The request may have taken effect.
    Timeout { address: String },
    /// Malformed request or response: retrying does not help.
    Protocol { what: String },
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { address, why } => write!(f, "cannot reach `{address}`: {why}"),
            Self::WrongCertificate { address } => {
                write!(f, "refusing to talk to `{address}`: it presents another job's certificate")
            }
            Self::Version { address, why } => write!(f, "cannot use `{address}`: {why}"),
            Self::Refused { error, .. } => f.write_str(error),
            Self::Timeout { address } => write!(f, "timed out waiting for `{address}`"),
            Self::Protocol { what } => write!(f, "malformed data in {what}"),
        }
    }
}

impl std::error::Error for CallError {}
