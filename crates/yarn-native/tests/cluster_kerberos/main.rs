//! Tests on clusters with Kerberos. Each starts its own cluster, and runs its parts in child processes.

#[path = "../support/mod.rs"]
mod support;

mod client;
mod errors;
mod tokens;
