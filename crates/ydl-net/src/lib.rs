//! The wire: TLS with the job certificate, HTTP with limits, and the messages.

pub mod text;

pub mod secret;

pub mod tls;

pub mod splice;

pub mod request;

mod http;

mod line;

pub mod server;

pub mod client;

pub mod messages;
