//! A host and a port.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Names in DNS are no longer than this.
const HOST_BYTES_MAX: usize = 253;

/// Where a server listens: a host name or an IP address, and a port. Nothing is resolved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// A name or an IP address, an IPv6 one without its brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an address such as `host:8032`: {why}")]
pub struct AddressError {
    why: &'static str,
}

impl Address {
    /// Puts one together.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// Reads `host:port`, `host`, `[::1]:port` or any of them with a scheme in front and a path behind,
    /// as Hadoop allows. `default_port` is used when none is given.
    pub fn parse(text: &str, default_port: u16) -> Result<Self, AddressError> {
        Self::read(text, Some(default_port))
    }

    fn read(text: &str, default_port: Option<u16>) -> Result<Self, AddressError> {
        let error = |why| AddressError { why };
        let text = text.trim();
        let text = text.split_once("://").map_or(text, |(_, rest)| rest);
        let text = text.split_once('/').map_or(text, |(authority, _)| authority);
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or(error("a bracket is not closed"))?;
                let _: Ipv6Addr =
                    host.parse().map_err(|_| error("no IPv6 address in the brackets"))?;
                match rest.strip_prefix(':') {
                    Some(port) => (host, Some(port)),
                    None if rest.is_empty() => (host, None),
                    None => return Err(error("something follows the bracket")),
                }
            }
            // A bare IPv6 address has colons and no port.
            None if text.parse::<Ipv6Addr>().is_ok() => (text, None),
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let odd = |letter: char| letter.is_whitespace() || letter.is_control() || letter == '@';
        if host.is_empty() {
            return Err(error("the host is missing"));
        }
        if host.len() > HOST_BYTES_MAX || host.contains(odd) {
            return Err(error("that is no host"));
        }
        let port = match port {
            Some(port) if port.bytes().all(|digit| digit.is_ascii_digit()) => {
                port.parse().map_err(|_| error("that is no port"))?
            }
            Some(_) => return Err(error("that is no port")),
            None => default_port.ok_or(error("the port is missing"))?,
        };
        Ok(Self::new(host, port))
    }

    /// The host as an IP address, if it is one.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Whether the host stands for "any address of this machine": what a server may listen on, and what a
    /// client gets from a configuration that names no server.
    pub fn is_unspecified(&self) -> bool {
        matches!(
            self.ip(),
            Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED) | IpAddr::V6(Ipv6Addr::UNSPECIFIED))
        )
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

impl std::str::FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::read(text, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let check = |text: &str, expected: &str| {
            let shown = match Address::parse(text, 8032) {
                Ok(address) => address.to_string(),
                Err(error) => error.why.to_owned(),
            };
            assert_eq!(shown, expected, "{text}");
        };
        check("rm.example:8050", "rm.example:8050");
        check(" rm.example ", "rm.example:8032");
        check("10.0.0.1", "10.0.0.1:8032");
        check("[::1]:9", "[::1]:9");
        check("[::1]", "[::1]:8032");
        check("fe80::1", "[fe80::1]:8032");
        check("hdfs://nn.example:8020/user", "nn.example:8020");
        check("", "the host is missing");
        check(":8032", "the host is missing");
        check("rm:", "that is no port");
        check("rm:70000", "that is no port");
        check("rm:80:80", "that is no port");
        check("rm:+80", "that is no port");
        check("[::1", "a bracket is not closed");
        check("[rm]:1", "no IPv6 address in the brackets");
        check("two words:1", "that is no host");
    }

    #[test]
    fn text_and_back() {
        for text in ["a:1", "[::1]:65535"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert!("a".parse::<Address>().is_err());
        assert!("0.0.0.0:1".parse::<Address>().unwrap().is_unspecified());
    }
}
