//! A Hadoop token: something a server once gave out, and takes back as proof of who calls.

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// A token: an identifier that its server can read, and the password the server made for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// What the server wrote about the holder. Opaque to everyone else.
    pub identifier: Vec<u8>,
    /// Proves that the identifier was given to the holder.
    pub password: Secret,
    /// Which server understands it, as in `YARN_AM_RM_TOKEN`.
    pub kind: String,
    /// The address it is for, as in `127.0.0.1:8032`; often empty when fresh from its server.
    pub service: String,
}

/// Bytes that are erased when dropped, compared in constant time, and never shown.
#[derive(Clone, Default, Zeroize, ZeroizeOnDrop)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Takes the bytes over; the caller's buffer becomes the secret, no copy is left behind.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes in the clear, for a handshake or a credentials file.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Secret {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(bytes)
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        let token = Token {
            identifier: vec![1],
            password: b"hunter2".to_vec().into(),
            kind: "NMToken".into(),
            service: "127.0.0.11:45454".into(),
        };
        let shown = format!("{token:?} {token:#?}");
        assert!(!shown.contains("hunter2"));
        assert!(!shown.contains("104, 117"), "nor as numbers: {shown}");
    }

    #[test]
    fn secrets_are_equal_when_their_bytes_are() {
        assert_eq!(Secret::new(vec![1, 2]), Secret::new(vec![1, 2]));
        assert_ne!(Secret::new(vec![1, 2]), Secret::new(vec![1, 3]));
        assert_ne!(Secret::new(vec![1, 2]), Secret::new(vec![1]));
    }
}
