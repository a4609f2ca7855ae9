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

#[path = "../boards/mod.rs"]
mod boards;
#[path = "../scene/mod.rs"]
mod scene;
#[path = "../yarn_support/mod.rs"]
mod yarn_support;
