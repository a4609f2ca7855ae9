//! Hadoop tokens: credentials that a server issues and later verifies.

use std::fmt;
use std::net::IpAddr;

use subtle::ConstantTimeEq;
use tokio::net::lookup_host;
use tokio::time::{Instant, timeout_at};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::address::Address;

/// Token: an identifier that the server can read, and the password derived from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Description of the holder, written by the server and opaque to clients.
    pub identifier: Vec<u8>,
    /// Password that proves possession of the identifier.
    pub password: Secret,
    /// Kind, which determines the issuing server, as in `YARN_AM_RM_TOKEN`.
    pub kind: String,
    /// Address of the server, as in `127.0.0.1:8032`; often empty in a newly issued token.
    pub service: String,
}

/// Bytes that are erased on drop, compared in constant time and never printed.
///
/// Messages that contain them and the frames of those messages are erased, too. Not erased are
/// bytes outside of this crate: the socket's last write buffer, what a growing read buffer leaves
/// behind, and copies held by the system and the Kerberos library.
#[derive(Clone, Default, Zeroize, ZeroizeOnDrop)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Takes ownership of the bytes without copying them.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Returns the bytes, for a handshake or a credentials file.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Secret {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(bytes)
    }
}

impl From<Zeroizing<Vec<u8>>> for Secret {
    fn from(mut bytes: Zeroizing<Vec<u8>>) -> Self {
        Self::new(std::mem::take(&mut bytes))
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

/// Returns the service name of a token that is valid for all these servers: `10.0.0.1:8032`, or the
/// host's name, joined by commas. A host that is not resolved before the deadline keeps its name,
/// since the token is still valid for the others.
pub(crate) async fn service_names(
    addresses: impl Iterator<Item = &Address>,
    by_ip: bool,
    deadline: Instant,
) -> String {
    let mut names = Vec::new();
    for address in addresses {
        let ip = match by_ip {
            true => timeout_at(deadline, first_ip(address)).await.ok().flatten(),
            false => None,
        };
        let host = ip.map_or_else(|| address.host.to_lowercase(), |ip| ip.to_string());
        // Java writes IPv6 addresses without brackets.
        names.push(format!("{host}:{}", address.port));
    }
    names.join(",")
}

/// Resolves the address that connections use first.
async fn first_ip(address: &Address) -> Option<IpAddr> {
    let found = lookup_host((address.host.as_str(), address.port)).await.ok()?;
    let ips: Vec<IpAddr> = found.map(|at| at.ip().to_canonical()).collect();
    let first = ips.iter().find(|ip| ip.is_ipv4()).or(ips.first());
    first.copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_the_password() {
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

    #[tokio::test]
    async fn service_names_match_hadoop() {
        let addresses = [Address::new("LocalHost", 8032), Address::new("::1", 1)];
        let soon = Instant::now() + std::time::Duration::from_secs(30);
        let names = |by_ip| service_names(addresses.iter(), by_ip, soon);
        assert_eq!(names(true).await, "127.0.0.1:8032,::1:1");
        assert_eq!(names(false).await, "localhost:8032,::1:1");
    }

    #[test]
    fn secrets_compare_by_content() {
        assert_eq!(Secret::new(vec![1, 2]), Secret::new(vec![1, 2]));
        assert_ne!(Secret::new(vec![1, 2]), Secret::new(vec![1, 3]));
        assert_ne!(Secret::new(vec![1, 2]), Secret::new(vec![1]));
    }
}
