//! Jobs, and the modules they pass through, on real Hadoop daemons.

mod agent;
mod backend;
mod client;
mod compat;
mod dashboards;
mod data;
mod devices;
mod docker;
mod doctor;
mod jobs;
mod journal;
mod pack;
mod python;
mod skein;
mod stage;
mod tf_yarn;

#[path = "../agent_harness/mod.rs"]
mod agent_harness;
