//! One connection of a client, from accept to close.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::activity::Activity;
use crate::client_stream::{ClientStream, Violation};
use crate::gateway::GatewayState;
use crate::headers::Scheme;
use crate::proxy::{ClientConnection, handle};
use crate::response_body::ResponseBody;
use crate::tls::ALPN_HTTP2;

/// First bytes of a connection of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Window of one request and of a connection in HTTP/2.
pub(crate) const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 8 << 20;
const STREAMS_MAX: u32 = 256;
/// Maximum bytes of the headers of a request, and of the buffer of a connection of HTTP/1.1.
const HEAD_BYTES_MAX: usize = 64 << 10;
const BUFFER_BYTES_MAX: usize = 256 << 10;
/// Interval and timeout of pings on HTTP/2 connections, which find dead peers.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Time in which an idle connection must close.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// Serves a connection until it closes. `drained` closes when the gateway ends.
pub(super) async fn serve(
    state: Arc<GatewayState>,
    stream: TcpStream,
    address: SocketAddr,
    activity: Arc<Activity>,
    drained: watch::Receiver<()>,
) {
    // Avoids delayed small writes; failure is harmless.
    let _ = stream.set_nodelay(true);
    let limits = state.options.limits;
    let tls = state.options.tls.clone();
    let scheme = if tls.is_some() { Scheme::Https } else { Scheme::Http };
    let mut server = ClientServer { state, address, scheme, activity, drained };
    let Some(tls) = tls else {
        let mut stream = stream;
        let detected = server.unless_drained(limits.head, detect(&mut stream)).await;
        let Some(Ok((prefix, is_http2))) = detected else { return };
        return server.serve(stream, prefix, is_http2).await;
    };
    // Boxed, so that a connection does not reserve space for its handshake for its whole life.
    let handshake = Box::pin(TlsAcceptor::from(tls).accept(stream));
    let accepted = server.unless_drained(limits.handshake, handshake).await;
    let Some(Ok(stream)) = accepted else { return };
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(ALPN_HTTP2);
    server.serve(Box::new(stream), Bytes::new(), is_http2).await;
}

/// Reads until the protocol is known. Returns what was read.
async fn detect(stream: &mut TcpStream) -> io::Result<(Bytes, bool)> {
    let mut read = BytesMut::with_capacity(1024);
    while read.len() < PREFACE.len() && PREFACE.starts_with(&read) {
        if stream.read_buf(&mut read).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let is_http2 = read.starts_with(PREFACE);
    Ok((read.freeze(), is_http2))
}

struct ClientServer {
    state: Arc<GatewayState>,
    address: SocketAddr,
    scheme: Scheme,
    activity: Arc<Activity>,
    drained: watch::Receiver<()>,
}

impl ClientServer {
    /// Waits for the first bytes, up to a limit. Returns `None` if they are late or the gateway ends.
    async fn unless_drained<T>(
        &mut self,
        limit: Duration,
        first_bytes: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::select! {
            arrived = timeout(limit, first_bytes) => arrived.ok(),
            _ = self.drained.changed() => None,
        }
    }

    async fn serve<S>(self, stream: S, prefix: Bytes, is_http2: bool)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let limits = self.state.options.limits;
        let violation = Violation::default();
        let client = Arc::new(ClientConnection {
            address: self.address,
            scheme: self.scheme,
            violation: violation.clone(),
        });
        let (state, activity) = (self.state.clone(), self.activity.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let (state, client, active) = (state.clone(), client.clone(), activity.begin());
            async move {
                let response: Response<ResponseBody> =
                    handle(&state, &client, request, active).await;
                Ok::<_, Infallible>(response)
            }
        });
        if is_http2 {
            let stream = ClientStream::http2(stream, prefix, limits.write);
            let connection = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_concurrent_streams(STREAMS_MAX)
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .max_header_list_size(HEAD_BYTES_MAX as u32)
                .keep_alive_interval(PING_INTERVAL)
                .keep_alive_timeout(PING_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            self.run(connection, |connection| connection.graceful_shutdown()).await;
        } else {
            let stream = ClientStream::http1(stream, prefix, limits.write, limits.head, violation);
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(None)
                .max_buf_size(BUFFER_BYTES_MAX)
                .max_header_size(HEAD_BYTES_MAX)
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades();
            self.run(connection, |connection| connection.graceful_shutdown()).await;
        }
    }

    /// Drives a connection. Ends it gracefully when the gateway ends, when it is idle for too long, or to make room.
    async fn run<C: Future>(mut self, connection: C, end_gracefully: impl FnOnce(Pin<&mut C>)) {
        let mut connection = pin!(connection);
        // Errors of a connection are the peer's.
        let is_draining = tokio::select! {
            _ = connection.as_mut() => return,
            _ = self.drained.changed() => true,
            () = self.activity.to_be_closed(self.state.options.limits.idle) => false,
        };
        end_gracefully(connection.as_mut());
        if is_draining {
            connection.await;
            return;
        }
        // A request may just have arrived on it; a peer that does not close is cut off.
        tokio::select! {
            _ = connection.as_mut() => {}
            () = stays_idle(&self.activity) => {}
        }
    }
}

async fn stays_idle(activity: &Activity) {
    loop {
        sleep(CLOSE_LIMIT).await;
        if activity.idle_since().is_some_and(|since| since.elapsed() >= CLOSE_LIMIT) {
            return;
        }
    }
}
