//! A Hadoop token: something a server once gave out, and takes back as proof of who calls.

use std::fmt;
use std::net::IpAddr;

use subtle::ConstantTimeEq;
use tokio::net::lookup_host;
use tokio::time::{Instant, timeout_at};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::address::Address;

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
///
/// So are messages that carry them, and the frames these travel in. Not erased is what no longer
/// belongs to this crate, or never did: what waits for the socket in its last buffer, what a read
/// buffer leaves behind when it grows, and what the system and the Kerberos library keep.
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

/// What a token names as its service that is for all these servers: each as `10.0.0.1:8032`, or by its
/// host's name, with commas between. A host whose address is not found before the deadline keeps its
/// name: the token is still good for the others.
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
        // Java puts no brackets around what has colons.
        names.push(format!("{host}:{}", address.port));
    }
    names.join(",")
}

/// The address that connections are made to first.
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

    #[tokio::test]
    async fn services_are_named_as_hadoop_names_them() {
        let addresses = [Address::new("LocalHost", 8032), Address::new("::1", 1)];
        let soon = Instant::now() + std::time::Duration::from_secs(30);
        let names = |by_ip| service_names(addresses.iter(), by_ip, soon);
        assert_eq!(names(true).await, "127.0.0.1:8032,::1:1");
        assert_eq!(names(false).await, "localhost:8032,::1:1");
    }

    #[test]
    fn secrets_are_equal_when_their_bytes_are() {
        assert_eq!(Secret::new(vec![1, 2]), Secret::new(vec![1, 2]));
        assert_ne!(Secret::new(vec![1, 2]), Secret::new(vec![1, 3]));
        assert_ne!(Secret::new(vec![1, 2]), Secret::new(vec![1]));
    }
}
