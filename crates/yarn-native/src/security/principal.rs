//! Which Kerberos principal a server may have.

use std::fmt;
use std::net::IpAddr;

use crate::security::error::SecurityError;
use crate::security::glob::is_like;

/// The word in a configured principal that stands for the server's own host.
const HOST: &str = "_HOST";

/// The principal a server must have to be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerPrincipal {
    /// Exactly this one, as in `yarn/_HOST@EXAMPLE.COM`; `_HOST` is the host that is called.
    Exact(String),
    /// Any that fits the pattern, as in `yarn/*.example.com@EXAMPLE.COM` (`*`, `?`, `[…]`
    /// and `{a,b}`).
    Pattern(String),
}

/// `_HOST` stands for a name, and only an address is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot put `{host}` into `{principal}`: it takes the name of the host, not its address")]
pub struct HostNameRequired {
    principal: String,
    host: String,
}

/// Who the server says it is: the two halves of `yarn/rm.example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimedPrincipal {
    primary: String,
    host: String,
}

/// The name to ask a ticket for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TargetName {
    /// A principal with its realm.
    Principal(String),
    /// `yarn@host`; the Kerberos library finds the realm.
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
    /// What a server says goes into names and messages, so it may hold nothing but a name's letters.
    pub(crate) fn new(primary: &str, host: &str) -> Result<Self, SecurityError> {
        let plain = |part: &str| {
            let letter = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
            (1..=255).contains(&part.len()) && part.bytes().all(letter)
        };
        if !plain(primary) || !plain(host) {
            return Err(SecurityError::protocol("it calls itself by something that is no name"));
        }
        Ok(Self { primary: primary.to_owned(), host: host.to_owned() })
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }
}

impl ServerPrincipal {
    /// Whether the claim can only be judged by where the claimed host's address leads.
    pub(crate) fn needs_lookup(&self, claim: &ClaimedPrincipal, dialed_host: &str) -> bool {
        matches!(self, Self::Exact(name) if split_principal(name).1 == Some(HOST))
            && !claim.host.eq_ignore_ascii_case(dialed_host)
    }

    /// The name to ask a ticket for, if the claim is one to believe. `called` is the host that was
    /// called; `is_peer` says that the claimed host's name leads to the address that answered.
    /// (Java compares with the name that the address leads to, which trusts the same servers.)
    pub(crate) fn target(
        &self,
        claim: &ClaimedPrincipal,
        dialed_host: &str,
        is_peer: bool,
    ) -> Result<TargetName, SecurityError> {
        let (fits, realm) = match self {
            Self::Exact(name) => {
                let (primary, host, realm) = split_principal(name);
                let host_fits = match host {
                    Some(HOST) => claim.host.eq_ignore_ascii_case(dialed_host) || is_peer,
                    Some(host) => claim.host == host,
                    None => false,
                };
                (primary == claim.primary && host_fits, realm)
            }
            Self::Pattern(pattern) => {
                let (name, realm) = match pattern.split_once('@') {
                    Some((name, realm)) => (name, Some(realm)),
                    None => (pattern.as_str(), None),
                };
                let fits = is_like(name, &claim.to_string());
                (fits, realm.filter(|realm| !realm.contains(['*', '?', '[', '{'])))
            }
        };
        if !fits {
            let (claimed, expected) = (claim.to_string(), self.to_string());
            return Err(SecurityError::WrongServer { claimed, expected });
        }
        Ok(match realm {
            Some(realm) => TargetName::Principal(format!("{claim}@{realm}")),
            None => TargetName::HostBased(format!("{}@{}", claim.primary, claim.host)),
        })
    }
}

/// `yarn/host@REALM` → its three parts.
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

/// Puts the host into a configured name: `rm/_HOST@REALM` becomes `rm/rm1.example@REALM`. Names without
/// `_HOST` in the second place stay as they are. The host must be the canonical name, as DNS has it.
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
    fn the_host_that_was_called_may_answer_and_no_other() {
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
    fn another_name_of_the_same_machine_is_believed() {
        let alias = check(ServerPrincipal::Exact("yarn/_HOST@A".into()), "yarn/alias", true);
        assert_eq!(alias, Ok(TargetName::Principal("yarn/alias@A".into())));
    }

    #[test]
    fn without_a_realm_the_library_finds_it() {
        let target =
            check(ServerPrincipal::Exact("yarn/_HOST".into()), "yarn/rm.example.com", false);
        assert_eq!(target, Ok(TargetName::HostBased("yarn@rm.example.com".into())));
    }

    #[test]
    fn patterns_take_what_fits() {
        let like = |text: &str| ServerPrincipal::Pattern(text.into());
        let rm = TargetName::Principal("yarn/rm.example.com@A".into());
        assert_eq!(check(like("yarn/*.example.com@A"), "yarn/rm.example.com", false), Ok(rm));
        assert_eq!(check(like("yarn/*.example.org@A"), "yarn/rm.example.com", false), Err(()));
        let found = TargetName::HostBased("yarn@rm.example.com".into());
        assert_eq!(check(like("*/r?.*"), "yarn/rm.example.com", false), Ok(found.clone()));
        assert_eq!(check(like("*@*"), "yarn/rm.example.com", false), Ok(found));
    }

    #[test]
    fn a_claim_with_odd_letters_is_refused() {
        for (primary, host) in [("", "a"), ("a", ""), ("a/b", "c"), ("a", "b@C"), ("a", "b\nc")] {
            assert!(ClaimedPrincipal::new(primary, host).is_err(), "{primary} {host}");
        }
        assert!(ClaimedPrincipal::new("a", &"b".repeat(300)).is_err());
    }

    #[test]
    fn the_host_is_put_in() {
        let put =
            |principal, host| replace_host(principal, host).map_err(|error| error.to_string());
        assert_eq!(put("rm/_HOST@R", "RM1.Example."), Ok("rm/rm1.example@R".into()));
        assert_eq!(put("rm/fixed@R", "other"), Ok("rm/fixed@R".into()));
        assert_eq!(put("alice@R", "other"), Ok("alice@R".into()));
        assert_eq!(put("_HOST/x@R", "other"), Ok("_HOST/x@R".into()));
        assert_eq!(
            put("rm/_HOST@R", "10.0.0.1"),
            Err("cannot put `10.0.0.1` into `rm/_HOST@R`: it takes the name of the host, not its address".into())
        );
        assert!(put("rm/_HOST@R", "").is_err());
    }
}
