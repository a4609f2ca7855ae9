//! Tests that restart daemons of their cluster, or need a cluster with special options. Each starts its own
//! cluster.

#[path = "../support/mod.rs"]
mod support;

mod client_failover;
mod ledger;
mod node_tokens;
mod preemption;
mod protection;
mod restart;
mod zookeeper;
