//! Jobs on this machine and the modules on their path, with real processes and sockets.

mod agent;
mod backend;
mod data;
mod devices;
mod docker;
mod jobs;
mod rendezvous;
mod server;

#[path = "../agent_harness/mod.rs"]
mod agent_harness;
