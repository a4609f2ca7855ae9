//! Opening of streams for connections.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};

use crate::rpc::Address;

/// TCP keepalive: idle time before the first probe, and the interval of probes.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(15);

/// Bidirectional byte stream of a connection.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// An open stream and its peer.
pub struct DialedStream {
    /// The stream.
    pub stream: Box<dyn Stream>,
    /// The peer's IP address, for checking its Kerberos name.
    pub peer: Option<IpAddr>,
}

impl fmt::Debug for DialedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DialedStream").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// Opens streams to servers: TCP, or a replacement by a test or a proxy.
pub trait Dial: fmt::Debug + Send + Sync {
    /// Opens a stream. The caller enforces the timeout.
    fn dial<'a>(
        &'a self,
        address: &'a Address,
    ) -> Pin<Box<dyn Future<Output = io::Result<DialedStream>> + Send + 'a>>;
}

/// TCP sockets with `TCP_NODELAY` and keepalive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tcp;

impl Dial for Tcp {
    fn dial<'a>(
        &'a self,
        address: &'a Address,
    ) -> Pin<Box<dyn Future<Output = io::Result<DialedStream>> + Send + 'a>> {
        Box::pin(connect(address))
    }
}

async fn connect(address: &Address) -> io::Result<DialedStream> {
    let mut candidates: Vec<SocketAddr> =
        lookup_host((address.host.as_str(), address.port)).await?.collect();
    // Hadoop listens on IPv4 by default.
    candidates.sort_by_key(SocketAddr::is_ipv6);
    let mut failure = None;
    for candidate in candidates {
        match TcpStream::connect(candidate).await {
            Ok(stream) => {
                configure_socket(&stream)?;
                let peer = Some(candidate.ip().to_canonical());
                return Ok(DialedStream { stream: Box::new(stream), peer });
            }
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or_else(|| io::Error::other("the host name has no address")))
}

fn configure_socket(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_EVERY);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// Returns whether a host name resolves to an address.
pub(crate) async fn resolves_to(host: &str, address: IpAddr) -> bool {
    match lookup_host((host, 0)).await {
        Ok(mut found) => found.any(|candidate| candidate.ip().to_canonical() == address),
        Err(_) => false,
    }
}
