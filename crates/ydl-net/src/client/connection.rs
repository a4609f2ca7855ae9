//! Connections of a client, each driven by the call that uses it.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::Request;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::error::ExchangeError;
use super::{CallError, Client, Response};
use crate::tls;

pub(super) type Sender = http1::SendRequest<Full<Bytes>>;
pub(super) type Connection = http1::Connection<TokioIo<TlsStream<TcpStream>>, Full<Bytes>>;

/// Connection for one call at a time.
pub(super) struct ClientConnection {
    sender: Sender,
    /// `None` once it is closed.
    connection: Option<Pin<Box<Connection>>>,
}

impl ClientConnection {
    pub(super) fn new(sender: Sender, connection: Connection) -> Self {
        Self { sender, connection: Some(Box::pin(connection)) }
    }

    /// Returns false if the last call found the connection closed.
    pub(super) fn is_reusable(&self) -> bool {
        self.connection.is_some()
    }

    /// Returns false if the server has closed the connection.
    pub(super) async fn is_open(&mut self) -> bool {
        let Self { sender, connection } = self;
        poll_fn(|cx| {
            let open = connection.as_mut().is_some_and(|c| c.as_mut().poll(cx).is_pending());
            Poll::Ready(open && sender.is_ready())
        })
        .await
    }

    /// Sends a request and waits for the response until `end`. `limit` is the maximum size of the response body.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        limit: usize,
        end: Instant,
    ) -> Result<Response, ExchangeError> {
        let Self { sender, connection } = self;
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
}

/// Reads a body of at most `limit` bytes.
pub(super) async fn read_body(body: Incoming, limit: usize) -> Result<Bytes, ExchangeError> {
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

impl Client {
    /// Opens a connection.
    pub(super) async fn dial(&self, end: Instant) -> Result<(Sender, Connection), CallError> {
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
}
