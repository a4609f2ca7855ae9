//! Protocols and links without sockets: recorded exchanges, hostile input and failovers.

mod support;

mod c10d;
mod gloo;
mod link;
