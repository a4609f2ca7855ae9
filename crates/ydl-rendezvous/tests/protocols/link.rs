//! Links between programs and a protocol.

mod recovery;
mod server;
