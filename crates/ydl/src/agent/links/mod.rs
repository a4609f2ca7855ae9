//! The agent's door for its program: what a framework takes for its scheduler, tracker or store is a port of the loopback
//! interface, and what is said there goes to the master inside the job's TLS.
//!
//! * `door`: the port, and who may come in. * `owner`: whose connection it is. * `socket`: one connection.
//! * `passage`: between the connections and the master, whoever that is at the moment. *

mod door;
mod owner;
mod passage;
mod socket;

pub(super) use door::{Door, Links};
