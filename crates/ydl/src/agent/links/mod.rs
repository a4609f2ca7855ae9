//! The rendezvous port of a program. Framework clients connect to a port of the loopback interface, and their bytes
//! travel to the master over the job's TLS.
//!
//! * `listener`: the port. * `owner`: finds the process of a connection. * `socket`: a connection.
//! * `client`: the session with the master.

mod client;
mod listener;
mod owner;
mod socket;

pub(super) use listener::{LinkListener, LinkTasks};
