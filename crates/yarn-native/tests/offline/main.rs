//! Tests without a cluster: configuration and credentials files, aggregated logs, the ledger, and calls of
//! an in-memory server.

mod config;
mod config_mutations;
mod credentials;
mod fake;
mod ledger;
mod logs;
mod random;
