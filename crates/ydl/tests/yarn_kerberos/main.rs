//! Jobs on real Hadoop daemons with Kerberos.

mod credentials;
mod jobs;
mod tokens;

#[path = "../yarn_support/mod.rs"]
mod yarn_support;
