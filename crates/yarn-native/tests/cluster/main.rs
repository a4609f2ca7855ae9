//! Tests on real clusters that they leave intact. The tests of a top-level module share one cluster.

#[path = "../support/mod.rs"]
mod support;

mod client;
mod containers;
mod masters;
mod placement;
