//! Hadoop RPC client with failover and retries.
//!
//! Each layer adds one feature. [`Channel`] encodes a call with its deadline; `failover` selects
//! the active server; `link` maintains the connection to one address; `connection` multiplexes
//! calls; `codec` splits bytes into frames and protects them; `dial` opens the socket, or a
//! replacement in tests.

mod channel;
pub(crate) mod codec;
mod connection;
mod dial;
mod error;
mod exception;
mod failover;
pub(crate) mod frame;
mod link;
mod method;
mod open;
mod options;
mod table;

pub use crate::address::{Address, AddressError};
pub use channel::Channel;
pub use dial::{Dial, DialedStream, Stream, Tcp};
pub use error::RpcError;
pub use exception::{Exception, ExceptionKind};
pub(crate) use method::Method;
pub use method::{Protocol, Safety};
pub use options::Options;
