//! TLS with the job certificate, tokens, an HTTP server and client with limits, and connection forwarding.

pub mod text;

pub mod secret;

pub mod tls;

pub mod forward;

pub mod request;

mod http;

mod connection;

pub mod server;

pub mod client;
