//! Tests on real clusters, which each test starts with options of its own.

mod cleanup;
mod daemons;
mod kerberos;
mod options;
