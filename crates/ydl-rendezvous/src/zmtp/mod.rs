//! ZMTP 3.0 with the NULL mechanism: the subset of ZeroMQ's transport that ps-lite uses, for either side of a link.
//!
//! Each side sends a greeting of 64 bytes and a READY command with its socket type and identity. Messages of one or
//! more frames follow. Our greeting and READY do not depend on the peer, so both are sent at once. Messages must wait:
//! libzmq drops a link on which a message arrives before it has sent its own READY.

mod frame;
mod session;

pub use frame::{ZmtpFrame, message};
pub use session::{SocketType, ZmtpEvent, ZmtpSession, handshake};
