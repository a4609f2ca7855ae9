//! Where a server listens.

use std::fmt;
use std::str::FromStr;

/// A host and a port. The host may be a name, which is looked up anew for each connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// A name or an address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Address {
    /// An address of its parts.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A text that is no `host:port`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no address; it is written `host:port`")]
pub struct BadAddress(String);

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || BadAddress(text.to_owned());
        let (host, port) = text.trim().rsplit_once(':').ok_or_else(bad)?;
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let host = match bare {
            Some(bare) => bare,
            None if host.contains([':', '[', ']']) => return Err(bad()),
            None => host,
        };
        let port = port.parse().map_err(|_| bad())?;
        if host.is_empty() || host.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(bad());
        }
        Ok(Self::new(host, port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in ["rm.example.com:8032", "127.0.0.1:1", "[::1]:8032"] {
            let address: Address = text.parse().expect(text);
            assert_eq!(address.to_string(), text);
        }
        for bad in [
            "", "rm", ":8032", "rm:", "rm:70000", "::1:8032", "a b:1", "[::1:2",
        ] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }
}
