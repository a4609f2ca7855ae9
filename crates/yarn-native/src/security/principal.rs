//! Required Kerberos principals of servers.

use std::fmt;
use std::net::IpAddr;

use crate::security::error::SecurityError;
use crate::security::glob::glob_matches;

/// Placeholder for the server's host name in a configured principal.
const HOST: &str = "_HOST";

/// Required principal of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerPrincipal {
    /// An exact principal, such as `yarn/_HOST@EXAMPLE.COM`; `_HOST` stands for the host that is
    /// called.
    Exact(String),
    /// A glob pattern, such as `yarn/*.example.com@EXAMPLE.COM` (`*`, `?`, `[…]` and `{a,b}`).
    Pattern(String),
}

/// `_HOST` requires a host name, but only an address is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot replace `_HOST` in `{principal}` by `{host}`: expected a host name, not an address"
)]
pub struct HostNameRequired {
    principal: String,
    host: String,
}

/// Principal claimed by a server: the two parts of `yarn/rm.example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimedPrincipal {
    primary: String,
    host: String,
}

/// Name to request a ticket for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TargetName {
    /// Principal with its realm.
    Principal(String),
    /// `yarn@host`; the Kerberos library determines the realm.
    HostBased(String),
}

impl fmt::Display for ServerPrincipal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Pattern(pattern) => f.write_str(pattern),
        }
    }
}

impl fmt::Display for ClaimedPrincipal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.primary, self.host)
    }
}

impl ClaimedPrincipal {
    /// Validates the claimed name. It is used in principals and messages, so only the characters of
    /// names are allowed.
    pub(crate) fn new(primary: &str, host: &str) -> Result<Self, SecurityError> {
        let plain = |part: &str| {
            let letter = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
            (1..=255).contains(&part.len()) && part.bytes().all(letter)
        };
        if !plain(primary) || !plain(host) {
            return Err(SecurityError::protocol("invalid server name"));
        }
        Ok(Self { primary: primary.to_owned(), host: host.to_owned() })
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }
}

impl ServerPrincipal {
    /// Returns whether verifying the claim requires a lookup of the claimed host.
    pub(crate) fn needs_lookup(&self, claim: &ClaimedPrincipal, dialed_host: &str) -> bool {
        matches!(self, Self::Exact(name) if split_principal(name).1 == Some(HOST))
            && !claim.host.eq_ignore_ascii_case(dialed_host)
    }

    /// Verifies the claim and returns the name to request a ticket for. `dialed_host` is the host
    /// that was called; `is_peer` tells that the claimed host resolves to the peer's address. (Java
    /// compares with the peer's reverse lookup, which trusts the same servers.)
    pub(crate) fn target(
        &self,
        claim: &ClaimedPrincipal,
        dialed_host: &str,
        is_peer: bool,
    ) -> Result<TargetName, SecurityError> {
        let (matches, realm) = match self {
            Self::Exact(name) => {
                let (primary, host, realm) = split_principal(name);
                let host_matches = match host {
                    Some(HOST) => claim.host.eq_ignore_ascii_case(dialed_host) || is_peer,
                    Some(host) => claim.host == host,
                    None => false,
                };
                (primary == claim.primary && host_matches, realm)
            }
            Self::Pattern(pattern) => {
                let (name, realm) = match pattern.split_once('@') {
                    Some((name, realm)) => (name, Some(realm)),
                    None => (pattern.as_str(), None),
                };
                let matches = glob_matches(name, &claim.to_string());
                (matches, realm.filter(|realm| !realm.contains(['*', '?', '[', '{'])))
            }
        };
        if !matches {
            let (claimed, expected) = (claim.to_string(), self.to_string());
            return Err(SecurityError::WrongServer { claimed, expected });
        }
        Ok(match realm {
            Some(realm) => TargetName::Principal(format!("{claim}@{realm}")),
            None => TargetName::HostBased(format!("{}@{}", claim.primary, claim.host)),
        })
    }
}

/// Splits `yarn/host@REALM` into its three parts.
fn split_principal(principal: &str) -> (&str, Option<&str>, Option<&str>) {
    let (name, realm) = match principal.split_once('@') {
        Some((name, realm)) => (name, Some(realm)),
        None => (principal, None),
    };
    match name.split_once('/') {
        Some((primary, host)) => (primary, Some(host), realm),
        None => (name, None, realm),
    }
}

/// Replaces `_HOST` in a configured principal: `rm/_HOST@REALM` becomes `rm/rm1.example@REALM`.
/// Names without `_HOST` as their second part are returned unchanged. The host must be the
/// canonical DNS name.
pub fn replace_host(principal: &str, host: &str) -> Result<String, HostNameRequired> {
    let words: Vec<&str> = principal.split(['/', '@']).collect();
    let &[service, HOST, realm] = words.as_slice() else {
        return Ok(principal.to_owned());
    };
    let host = host.trim_end_matches('.').to_lowercase();
    if host.is_empty() || host.parse::<IpAddr>().is_ok() {
        let principal = principal.to_owned();
        return Err(HostNameRequired { principal, host });
    }
    Ok(format!("{service}/{host}@{realm}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expected: ServerPrincipal, claim: &str, is_peer: bool) -> Result<TargetName, ()> {
        let (primary, host) = claim.split_once('/').expect("a claim has two halves");
        let claim = ClaimedPrincipal::new(primary, host).expect("a plain claim");
        expected.target(&claim, "rm.example.com", is_peer).map_err(|_| ())
    }

    #[test]
    fn only_the_called_host_is_accepted() {
        let named = |text: &str| ServerPrincipal::Exact(text.into());
        let rm = Ok(TargetName::Principal("yarn/rm.example.com@EXAMPLE.COM".into()));
        assert_eq!(check(named("yarn/_HOST@EXAMPLE.COM"), "yarn/rm.example.com", false), rm);
        assert_eq!(check(named("yarn/_HOST@EXAMPLE.COM"), "yarn/evil.example.com", false), Err(()));
        assert_eq!(check(named("yarn/_HOST@EXAMPLE.COM"), "evil/rm.example.com", true), Err(()));
        assert_eq!(
            check(named("yarn/rm.example.com@EXAMPLE.COM"), "yarn/rm.example.com", false),
            rm
        );
        assert_eq!(check(named("yarn/rm@EXAMPLE.COM"), "yarn/rm.example.com", true), Err(()));
        assert_eq!(check(named("yarn"), "yarn/rm.example.com", true), Err(()));
    }

    #[test]
    fn alias_of_the_called_host_is_accepted() {
        let alias = check(ServerPrincipal::Exact("yarn/_HOST@A".into()), "yarn/alias", true);
        assert_eq!(alias, Ok(TargetName::Principal("yarn/alias@A".into())));
    }

    #[test]
    fn principal_without_realm_is_host_based() {
        let target =
            check(ServerPrincipal::Exact("yarn/_HOST".into()), "yarn/rm.example.com", false);
        assert_eq!(target, Ok(TargetName::HostBased("yarn@rm.example.com".into())));
    }

    #[test]
    fn patterns_match_principals() {
        let like = |text: &str| ServerPrincipal::Pattern(text.into());
        let rm = TargetName::Principal("yarn/rm.example.com@A".into());
        assert_eq!(check(like("yarn/*.example.com@A"), "yarn/rm.example.com", false), Ok(rm));
        assert_eq!(check(like("yarn/*.example.org@A"), "yarn/rm.example.com", false), Err(()));
        let found = TargetName::HostBased("yarn@rm.example.com".into());
        assert_eq!(check(like("*/r?.*"), "yarn/rm.example.com", false), Ok(found.clone()));
        assert_eq!(check(like("*@*"), "yarn/rm.example.com", false), Ok(found));
    }

    #[test]
    fn claims_with_invalid_characters_are_rejected() {
        for (primary, host) in [("", "a"), ("a", ""), ("a/b", "c"), ("a", "b@C"), ("a", "b\nc")] {
            assert!(ClaimedPrincipal::new(primary, host).is_err(), "{primary} {host}");
        }
        assert!(ClaimedPrincipal::new("a", &"b".repeat(300)).is_err());
    }

    #[test]
    fn host_placeholder_is_replaced() {
        let replace =
            |principal, host| replace_host(principal, host).map_err(|error| error.to_string());
        assert_eq!(replace("rm/_HOST@R", "RM1.Example."), Ok("rm/rm1.example@R".into()));
        assert_eq!(replace("rm/fixed@R", "other"), Ok("rm/fixed@R".into()));
        assert_eq!(replace("alice@R", "other"), Ok("alice@R".into()));
        assert_eq!(replace("_HOST/x@R", "other"), Ok("_HOST/x@R".into()));
        assert_eq!(
            replace("rm/_HOST@R", "10.0.0.1"),
            Err("cannot replace `_HOST` in `rm/_HOST@R` by `10.0.0.1`: expected a host name, not an address".into())
        );
        assert!(replace("rm/_HOST@R", "").is_err());
    }
}
