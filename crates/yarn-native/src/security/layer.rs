//! The protection that a handshake may leave behind.

use crate::security::digest::DigestLayer;
use crate::security::error::SecurityError;
use crate::security::kerberos::GssapiLayer;

/// Wraps what is sent and unwraps what is received, in order: each message counts.
pub(crate) enum Layer {
    Digest(DigestLayer),
    Gssapi(GssapiLayer),
}

impl Layer {
    pub(crate) fn wrap(&mut self, plain: &[u8]) -> Result<Vec<u8>, SecurityError> {
        match self {
            Self::Digest(layer) => Ok(layer.wrap(plain)),
            Self::Gssapi(layer) => layer.wrap(plain),
        }
    }

    pub(crate) fn unwrap(&mut self, token: &[u8]) -> Result<Vec<u8>, SecurityError> {
        match self {
            Self::Digest(layer) => layer.unwrap(token),
            Self::Gssapi(layer) => layer.unwrap(token),
        }
    }

    /// The most plain bytes the server promises to take in one message; at least 1.
    pub(crate) fn plain_max(&self) -> usize {
        match self {
            Self::Digest(layer) => layer.plain_max(),
            Self::Gssapi(layer) => layer.plain_max(),
        }
    }
}
