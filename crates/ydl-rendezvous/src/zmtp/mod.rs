//! ZMTP 3.0 with the mechanism NULL: as much of ZeroMQ's wire as ps-lite's sockets speak, for either side of a link.
//!
//! Each side sends 64 bytes of greeting and a READY command, which names its socket and whom it speaks for; then come
//! messages of one or more frames. Our greeting and READY need nothing of the other's, so both go out at once. Messages
//! may not: libzmq drops a link on which one comes before it has sent its own READY.

mod frame;
mod session;

pub use frame::{ZmtpFrame, message};
pub use session::{SocketType, ZmtpEvent, ZmtpSession, opening};
