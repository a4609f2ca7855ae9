//! Hadoop RPC: calls to a server that may move, restart, or say no.
//!
//! Each layer adds one idea. [`Channel`] takes a call with its deadline and encodes it; `failover`
//! finds the server that is active; `link` keeps a connection to one address; `connection` carries
//! many calls at once; `codec` cuts bytes into frames and protects them; `dial` opens the socket,
//! or whatever a test puts in its place.

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
