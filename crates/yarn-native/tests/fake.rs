//! The library against a server with faults on demand. No sockets, and time that jumps.

mod fake {
    pub mod digest;
    pub mod server;
    pub mod wire;

    mod faults;
    mod handshakes;
    mod moving;
    mod noise;
}
