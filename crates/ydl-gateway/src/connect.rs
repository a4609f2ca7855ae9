//! Connections to replicas.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::route_table::Replica;

/// Byte stream to a replica.
pub trait ReplicaStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ReplicaStream for T {}

/// Connection attempt.
pub type Connecting<'a> =
    Pin<Box<dyn Future<Output = io::Result<Box<dyn ReplicaStream>>> + Send + 'a>>;

/// Way to a replica. A failure means that no byte of a request has reached the program.
pub trait Connect: fmt::Debug + Send + Sync {
    /// Opens a connection to the port of the program.
    fn connect<'a>(&'a self, replica: &'a Replica) -> Connecting<'a>;
}

/// Plain TCP to the address of the replica.
#[derive(Clone, Copy, Debug)]
pub struct DirectConnect;

impl Connect for DirectConnect {
    fn connect<'a>(&'a self, replica: &'a Replica) -> Connecting<'a> {
        Box::pin(async move {
            let stream = TcpStream::connect(&replica.address).await?;
            // Avoids delayed small writes; failure is harmless.
            let _ = stream.set_nodelay(true);
            Ok(Box::new(stream) as Box<dyn ReplicaStream>)
        })
    }
}

/// Error of opening a connection.
#[derive(Debug)]
pub(crate) enum ConnectError {
    Refused {
        source: io::Error,
    },
    TimedOut,
    /// The replica does not speak the protocol.
    Handshake {
        source: hyper::Error,
    },
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { source } => write!(f, "cannot connect: {source}"),
            Self::TimedOut => f.write_str("cannot connect in time"),
            Self::Handshake { source } => write!(f, "cannot agree on HTTP/2: {source}"),
        }
    }
}

/// Opens a connection within the time limit.
pub(crate) async fn connect_in_time(
    connect: &dyn Connect,
    replica: &Replica,
    limit: Duration,
) -> Result<Box<dyn ReplicaStream>, ConnectError> {
    match timeout(limit, connect.connect(replica)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(source)) => Err(ConnectError::Refused { source }),
        Err(_) => Err(ConnectError::TimedOut),
    }
}
