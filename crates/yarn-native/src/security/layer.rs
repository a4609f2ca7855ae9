//! Message protection negotiated by a handshake.

use crate::security::digest::DigestLayer;
use crate::security::error::SecurityError;
use crate::security::kerberos::GssapiLayer;

/// Wraps sent and unwraps received messages. Messages must be processed in order.
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

    /// Returns the maximum plaintext size per message; at least 1.
    pub(crate) fn plain_max(&self) -> usize {
        match self {
            Self::Digest(layer) => layer.plain_max(),
            Self::Gssapi(layer) => layer.plain_max(),
        }
    }
}
