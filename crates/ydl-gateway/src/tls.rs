//! Certificate and key of the gateway.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Names of the protocols in TLS, in the order of preference.
pub(crate) const ALPN_HTTP2: &[u8] = b"h2";
const ALPN_HTTP1: &[u8] = b"http/1.1";

/// Error of reading certificate and key.
#[derive(Debug)]
pub enum TlsFileError {
    Io {
        path: PathBuf,
        source: io::Error,
    },
    NoCertificate {
        path: PathBuf,
    },
    NoKey {
        path: PathBuf,
    },
    /// The key does not belong to the certificate.
    Mismatch {
        cert: PathBuf,
        key: PathBuf,
    },
    Unusable {
        source: rustls::Error,
    },
}

impl TlsFileError {
    /// Returns the remedy.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Io { .. } => "check the path and the permissions",
            Self::NoCertificate { .. } => {
                "the file must have the certificate chain in PEM format, the server's certificate first"
            }
            Self::NoKey { .. } => "the file must have an unencrypted private key in PEM format",
            Self::Mismatch { .. } => {
                "the certificate comes first in its file; pass the key that was used to request it"
            }
            Self::Unusable { .. } => "use an RSA, ECDSA or Ed25519 key and its certificate",
        }
    }
}

impl fmt::Display for TlsFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, source } => write!(f, "cannot read `{}`: {source}", path.display()),
            Self::NoCertificate { path } => write!(f, "`{}` has no certificate", path.display()),
            Self::NoKey { path } => write!(f, "`{}` has no private key", path.display()),
            Self::Mismatch { cert, key } => write!(
                f,
                "the key in `{}` does not belong to the certificate in `{}`",
                key.display(),
                cert.display()
            ),
            Self::Unusable { source } => write!(f, "cannot use certificate and key: {source}"),
        }
    }
}

impl std::error::Error for TlsFileError {}

/// Reads certificate chain and key, and checks that they belong together.
pub fn load(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsFileError> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|source| TlsFileError::Io { path: path.to_owned(), source })
    };
    let (cert_pem, key_pem) = (read(cert)?, read(key)?);
    let no_certificate = || TlsFileError::NoCertificate { path: cert.to_owned() };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&cert_pem).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or_else(no_certificate)?;
    let private = PrivateKeyDer::from_pem_slice(&key_pem)
        .map_err(|_| TlsFileError::NoKey { path: key.to_owned() })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let configured = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private));
    let mut config = configured.map_err(|source| match source {
        rustls::Error::InconsistentKeys(_) => {
            TlsFileError::Mismatch { cert: cert.to_owned(), key: key.to_owned() }
        }
        source => TlsFileError::Unusable { source },
    })?;
    config.alpn_protocols = vec![ALPN_HTTP2.to_vec(), ALPN_HTTP1.to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let generate = || {
            let key = rcgen::KeyPair::generate().unwrap();
            let params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
            (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
        };
        let ((cert, key), (_, other)) = (generate(), generate());
        let (cert_path, key_path) = (write("cert", &cert), write("key", &key));
        load(&cert_path, &key_path).unwrap();
        let mismatch = load(&cert_path, &write("other", &other)).unwrap_err();
        assert!(matches!(mismatch, TlsFileError::Mismatch { .. }), "{mismatch}");
        let swapped = load(&key_path, &cert_path).unwrap_err();
        assert!(matches!(swapped, TlsFileError::NoCertificate { .. }), "{swapped}");
        let no_key = load(&cert_path, &cert_path).unwrap_err();
        assert!(matches!(no_key, TlsFileError::NoKey { .. }), "{no_key}");
        let missing = load(Path::new("/nonexistent"), &key_path).unwrap_err();
        assert!(matches!(missing, TlsFileError::Io { .. }), "{missing}");
    }
}
