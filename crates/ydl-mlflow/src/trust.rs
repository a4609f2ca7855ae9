//! Trusted certificates of the tracking server.

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use std::sync::Arc;

/// Names a file with the certificates to trust, and no others.
const CERTIFICATES: &str = "SSL_CERT_FILE";
/// Paths of the system's trusted certificates.
const TRUSTED: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Returns the TLS configuration of this process, or the reason why there is none.
pub(super) fn here() -> Result<Arc<ClientConfig>, String> {
    let named = std::env::var(CERTIFICATES).ok();
    trusting(named.as_deref())
}

/// Trusts the certificates of that file, or else the system's.
fn trusting(named: Option<&str>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    let mut read = |file: &str| {
        if let Ok(found) = CertificateDer::pem_file_iter(file) {
            // Skip certificates that cannot be parsed.
            roots.add_parsable_certificates(found.flatten());
        }
        !roots.is_empty()
    };
    match named {
        Some(file) if !read(file) => {
            let what = format!("`{file}`, which `{CERTIFICATES}` names, holds no certificates");
            return Err(what);
        }
        None if !TRUSTED.into_iter().any(&mut read) => {
            return Err("this node has no certificates that it trusts".to_owned());
        }
        _ => {}
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_names_certificates_trusts_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let named = dir.path().join("none.pem");
        std::fs::write(&named, "").unwrap();
        for named in [named.to_str().unwrap(), "/nowhere"] {
            let refused = trusting(Some(named)).unwrap_err();
            assert!(refused.contains("holds no certificates"), "{refused}");
        }
    }
}
