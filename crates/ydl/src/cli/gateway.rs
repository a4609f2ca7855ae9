//! Arguments of `ydl gateway`.

use clap::Args;
use std::{net::SocketAddr, path::PathBuf};

/// Arguments of `ydl gateway`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ydl gateway --routes routes.json --listen 127.0.0.1:8080
  ydl gateway --routes routes.json --listen 0.0.0.0:8443 --tls-cert cert.pem --tls-key key.pem

The table of replicas is read again when its file changes. SIGTERM and Ctrl-C finish requests for
the drain time of the table. Format of the table: docs/how-to/gateway.md.")]
pub(crate) struct GatewayArgs {
    /// Read replicas and settings from FILE, and again when it changes
    #[arg(long, value_name = "FILE")]
    pub routes: PathBuf,
    /// Listen on ADDRESS; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Serve metrics for Prometheus on ADDRESS, at `/metrics`
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// Require one of the bearer tokens in FILE, one per line
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Serve TLS with the certificate chain in FILE (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Append a JSON line for each request to FILE, which is rotated at 64 MiB
    #[arg(long, value_name = "FILE")]
    pub access_log: Option<PathBuf>,
}
