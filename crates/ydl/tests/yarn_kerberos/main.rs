//! Jobs on real Hadoop daemons with Kerberos.

mod credentials;
mod jobs;
mod tokens;
mod viewfs;
