//! Host and port.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum length of a DNS name.
const HOST_BYTES_MAX: usize = 253;

/// Address of a server: a host name or an IP address, and a port. It is not resolved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Host name or IP address, IPv6 without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// Error for a malformed address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid address: {why}, expected `host:port`")]
pub struct AddressError {
    why: &'static str,
}

impl Address {
    /// Creates an address.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// Parses `host:port`, `host`, `[::1]:port` or any of them with a scheme before and a path
    /// after, as Hadoop allows. `default_port` applies if none is given.
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
                let (host, rest) = rest.split_once(']').ok_or(error("unterminated bracket"))?;
                let _: Ipv6Addr =
                    host.parse().map_err(|_| error("invalid IPv6 address in brackets"))?;
                match rest.strip_prefix(':') {
                    Some(port) => (host, Some(port)),
                    None if rest.is_empty() => (host, None),
                    None => return Err(error("unexpected text after the bracket")),
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
            return Err(error("missing host"));
        }
        if host.len() > HOST_BYTES_MAX || host.contains(odd) {
            return Err(error("invalid host"));
        }
        let port = match port {
            Some(port) if port.bytes().all(|digit| digit.is_ascii_digit()) => {
                port.parse().map_err(|_| error("invalid port"))?
            }
            Some(_) => return Err(error("invalid port")),
            None => default_port.ok_or(error("missing port"))?,
        };
        Ok(Self::new(host, port))
    }

    /// Returns the host as an IP address, if it is one.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Returns true if the host is the unspecified address. Servers listen on it; clients get it
    /// from a configuration that names no server.
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
    fn addresses_are_parsed_in_every_accepted_form() {
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
        check("", "missing host");
        check(":8032", "missing host");
        check("rm:", "invalid port");
        check("rm:70000", "invalid port");
        check("rm:80:80", "invalid port");
        check("rm:+80", "invalid port");
        check("[::1", "unterminated bracket");
        check("[rm]:1", "invalid IPv6 address in brackets");
        check("two words:1", "invalid host");
    }

    #[test]
    fn addresses_round_trip() {
        for text in ["a:1", "[::1]:65535"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert!("a".parse::<Address>().is_err());
        assert!("0.0.0.0:1".parse::<Address>().unwrap().is_unspecified());
    }
}
