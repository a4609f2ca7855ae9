//! Opening the stream under a connection.

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

/// When the system begins to look whether a silent peer is still there, and how often it looks.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(15);

/// What a connection is made of.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A stream, and who is at its other end.
pub struct DialedStream {
    /// The stream.
    pub stream: Box<dyn Stream>,
    /// The peer's address, against which its Kerberos name is checked.
    pub peer: Option<IpAddr>,
}

impl fmt::Debug for DialedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DialedStream").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// A way to reach servers: TCP, or what a test or a proxy puts in its place.
pub trait Dial: fmt::Debug + Send + Sync {
    /// Opens a stream. The caller sees to the time it may take.
    fn dial<'a>(
        &'a self,
        address: &'a Address,
    ) -> Pin<Box<dyn Future<Output = io::Result<DialedStream>> + Send + 'a>>;
}

/// Plain sockets, without delay and with keepalive.
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
    // Hadoop listens on IPv4 unless it is told otherwise.
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
    Err(failure.unwrap_or_else(|| io::Error::other("the host has no address")))
}

fn configure_socket(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_EVERY);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// Whether a host's name leads to an address.
pub(crate) async fn resolves_to(host: &str, address: IpAddr) -> bool {
    match lookup_host((host, 0)).await {
        Ok(mut found) => found.any(|candidate| candidate.ip().to_canonical() == address),
        Err(_) => false,
    }
}
