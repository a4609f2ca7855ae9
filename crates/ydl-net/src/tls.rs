//! TLS within one job: one self-signed certificate per job, pinned by every client.
//!
//! Names and dates are not checked: a master may move to any node, and a clock may jump. The peer must hold the key of the
//! certificate that the job's credentials name.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme,
};

use super::text;
use ydl_os::private::{self, PrivateError};

/// Subject name of the certificate. TLS requires one; it is not checked.
const NAME: &str = "ydl";

/// The name under which [`Identity::to_pem`] travels among the credentials of a master on a cluster.
pub const CREDENTIAL: &str = "ydl.identity";

/// Maximum size of an identity file.
const FILE_BYTES_MAX: usize = 16 << 10;

/// Certificate and private key of a job.
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
}

impl Identity {
    /// Generates an ECDSA P-256 key and a self-signed certificate.
    pub fn generate() -> Result<Self, TlsError> {
        let refused = |source| TlsError::Generate { source };
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(refused)?;
        let names = [NAME.to_owned(), "localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut about = rcgen::CertificateParams::new(names).map_err(refused)?;
        about.distinguished_name = rcgen::DistinguishedName::new();
        about.distinguished_name.push(rcgen::DnType::CommonName, "ydl job");
        // Other TLS libraries check dates: these are valid at any time.
        about.not_before = rcgen::date_time_ymd(1975, 1, 1);
        about.not_after = rcgen::date_time_ymd(9999, 12, 31);
        about.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
        about.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
        about.use_authority_key_identifier_extension = true;
        let certificate = about.self_signed(&key).map_err(refused)?;
        Ok(Self { certificate: certificate.der().clone(), key: key.serialize_der().into() })
    }

    /// Certificate and key in clear text, for the credentials that carry them. Never for a log or an argument.
    pub fn to_pem(&self) -> String {
        self.certificate_pem() + &pem("PRIVATE KEY", self.key.secret_pkcs8_der())
    }

    /// Parses the output of [`Identity::to_pem`].
    pub fn from_pem(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            certificate: CertificateDer::from_pem_slice(bytes).ok()?,
            key: PrivatePkcs8KeyDer::from_pem_slice(bytes).ok()?,
        })
    }

    /// Writes certificate and key to a file that only its owner can read.
    pub fn write(&self, path: &Path) -> Result<(), PrivateError> {
        private::write(path, self.to_pem().as_bytes())
    }

    /// Reads the output of [`Identity::write`]; refuses a file that others can read.
    pub fn read(path: &Path) -> Result<Self, PrivateError> {
        let bytes = private::read(path, FILE_BYTES_MAX)?;
        let malformed = |what| PrivateError::Malformed { path: path.to_owned(), what };
        Ok(Self {
            certificate: CertificateDer::from_pem_slice(&bytes)
                .map_err(|_| malformed("a certificate"))?,
            key: PrivatePkcs8KeyDer::from_pem_slice(&bytes)
                .map_err(|_| malformed("a private key"))?,
        })
    }

    /// The certificate alone, for other programs. It is not secret.
    pub fn certificate_pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate)
    }

    /// The pin for clients of this identity.
    pub fn pin(&self) -> Pin {
        Pin::of(&self.certificate)
    }

    /// Server configuration: TLS 1.3 only, no client certificates, and no session tickets, which would cost memory for each
    /// connection.
    pub fn server(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let refused = |source| TlsError::Configure { source };
        let key = PrivateKeyDer::Pkcs8(self.key.clone_key());
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(refused)?
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], key)
            .map_err(refused)?;
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("pin", &self.pin()).finish_non_exhaustive()
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    let body = text::base64(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    for line in body.as_bytes().chunks(64) {
        pem.extend(line.iter().map(|&letter| letter as char));
        pem.push('\n');
    }
    pem + &format!("-----END {label}-----\n")
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// SHA-256 of the only certificate that a client accepts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Pin([u8; 32]);

impl Pin {
    /// The pin of a certificate in DER.
    pub fn of(certificate: &[u8]) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        let mut pin = [0; 32];
        pin.copy_from_slice(digest.as_ref());
        Self(pin)
    }

    /// The pin of the first certificate in a PEM file's text.
    pub fn of_pem(pem: &[u8]) -> Option<Self> {
        CertificateDer::from_pem_slice(pem).ok().map(|certificate| Self::of(&certificate))
    }

    pub fn from_hex(text: &str) -> Option<Self> {
        text::from_hex(text).map(Self)
    }

    /// Client configuration: TLS 1.3 only, and only with the holder of the pinned certificate's key.
    pub fn client(self) -> Result<Arc<ClientConfig>, TlsError> {
        let provider = provider();
        let algorithms = provider.signature_verification_algorithms;
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|source| TlsError::Configure { source })?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Pinned { pin: self, algorithms }))
            .with_no_client_auth();
        config.resumption = rustls::client::Resumption::disabled();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.enable_sni = false;
        Ok(Arc::new(config))
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pin({self})")
    }
}

/// The server name that TLS requires and the verifier ignores.
pub fn server_name() -> ServerName<'static> {
    ServerName::try_from(NAME).expect("a word of three letters is a name")
}

/// Certificate verifier that accepts one certificate. The handshake signature is verified as usual, so that presenting the
/// certificate without its key fails.
#[derive(Debug)]
struct Pinned {
    pin: Pin,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let shown = Pin::of(certificate);
        let difference = shown.0.iter().zip(&self.pin.0).fold(0, |sum, (a, b)| sum | (a ^ b));
        match difference {
            0 => Ok(ServerCertVerified::assertion()),
            _ => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Error of setting up TLS; does not cover protocol errors of a peer.
#[derive(Debug)]
pub enum TlsError {
    Generate { source: rcgen::Error },
    Configure { source: rustls::Error },
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Generate { source } => write!(f, "cannot make the job's certificate: {source}"),
            Self::Configure { source } => write!(f, "cannot use the job's certificate: {source}"),
        }
    }
}

impl std::error::Error for TlsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_survives_its_file_and_hides_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("identity.pem");
        let identity = Identity::generate().unwrap();
        identity.write(&path).unwrap();
        let again = Identity::read(&path).unwrap();
        assert_eq!(again.pin(), identity.pin());
        again.server().unwrap();
        assert_eq!(Pin::of_pem(identity.certificate_pem().as_bytes()), Some(identity.pin()));
        assert_eq!(Pin::from_hex(&identity.pin().to_string()), Some(identity.pin()));
        assert_eq!(format!("{again:?}"), format!("Identity {{ pin: {:?}, .. }}", again.pin()));
    }

    #[test]
    fn half_an_identity_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("identity.pem");
        let identity = Identity::generate().unwrap();
        private::write(&path, identity.certificate_pem().as_bytes()).unwrap();
        let error = Identity::read(&path).unwrap_err();
        assert!(error.to_string().ends_with("it does not hold a private key"), "{error}");
        private::write(&path, b"-----BEGIN CERT").unwrap();
        let error = Identity::read(&path).unwrap_err();
        assert!(error.to_string().ends_with("it does not hold a certificate"), "{error}");
    }

    #[test]
    fn two_identities_differ() {
        let (one, other) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        assert_ne!(one.pin(), other.pin());
    }
}
