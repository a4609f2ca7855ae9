//! A gateway between real clients and replicas, on sockets of the loopback interface.

mod attacks;
mod bodies;
mod failures;
mod harness;
mod http2;
mod limits;
mod replicas;
mod streams;
