//! HTTPS client of one server, with pooled connections.
//!
//! A connection is driven by the call that uses it and by nothing else, so dropping a call closes its connection and the
//! server sees that the caller is gone.

mod connection;
mod error;
mod pool;
mod upgrade;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use rustls::ClientConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use ydl_proto::version::{PROTOCOL_VERSION, VERSION_HEADER, check_protocol};

use super::request::ErrorBody;
use super::secret::Token;
use super::tls::{Pin, TlsError};
use connection::ClientConnection;
pub use error::CallError;
use error::ExchangeError;
use pool::Pool;
pub use upgrade::UpgradedStream;

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
    pool: Pool,
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
    pub fn new(address: String, pin: Pin, bearer: &Token) -> Result<Self, TlsError> {
        Self::with_limits(address, pin, bearer, ClientLimits::default())
    }

    pub fn with_limits(
        address: String,
        pin: Pin,
        bearer: &Token,
        limits: ClientLimits,
    ) -> Result<Self, TlsError> {
        let mut authorization = HeaderValue::from_str(&format!("Bearer {}", bearer.as_str()))
            .expect("a token is valid in a header");
        authorization.set_sensitive(true);
        // An address that is invalid in a header cannot be connected to either, and that error is clearer.
        let host = HeaderValue::from_str(&address).unwrap_or(HeaderValue::from_static("ydl"));
        let (tls, pool) = (pin.client()?, Pool::new(limits.idle));
        Ok(Self { address, tls, host, authorization, limits, pool })
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
        let limit = self.limits.body_bytes_max;
        if let Some(mut connection) = self.pool.take().await {
            let request = self.request(&method, path, &payload)?;
            match connection.exchange(request, limit, end).await {
                Ok(answer) => {
                    self.pool.put(connection);
                    return self.judge(answer);
                }
                Err(ExchangeError::Unsent) => {}
                Err(ExchangeError::Closed(_)) if method == Method::GET => {}
                Err(failure) => return Err(self.error(failure)),
            }
        }
        let request = self.request(&method, path, &payload)?;
        let (sender, connection) = self.dial(end).await?;
        let mut connection = ClientConnection::new(sender, connection);
        match connection.exchange(request, limit, end).await {
            Ok(answer) => {
                self.pool.put(connection);
                self.judge(answer)
            }
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

    /// Separates errors from successful responses.
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

    fn error(&self, error: ExchangeError) -> CallError {
        error.into_call_error(&self.address)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("address", &self.address).finish_non_exhaustive()
    }
}
