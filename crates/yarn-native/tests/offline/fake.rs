//! Tests against an in-memory server with injected faults, on paused time.

pub mod digest;
pub mod server;
pub mod wire;

mod failover;
mod faults;
mod handshakes;
mod noise;
