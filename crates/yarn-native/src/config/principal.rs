//! The Kerberos names of servers: `_HOST` put in, and what a server says compared with what it should.

use std::net::IpAddr;

/// Alternatives that the braces of one pattern may make.
const ALTERNATIVES_MAX: usize = 64;

/// What stands for the server's own host in a configured name.
const HOST: &str = "_HOST";

/// Why a server's name cannot be told, or is not the right one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrincipalError {
    /// `_HOST` stands for a name, and only an address is known.
    #[error(
        "cannot put `{host}` into `{principal}`: it takes the name of the host, not its address"
    )]
    NeedsName {
        /// The configured name.
        principal: String,
        /// The address.
        host: String,
    },
    /// A name as configured has no host in it, and so fits no server.
    #[error("`{principal}` does not name a server: `service/host@REALM` is expected")]
    NotAServer {
        /// The configured name.
        principal: String,
    },
    /// The server is somebody else.
    #[error("the server calls itself `{actual}`, expected `{expected}`")]
    Mismatch {
        /// What the server said.
        actual: String,
        /// The configured name or pattern.
        expected: String,
    },
}

/// Puts the host into a configured name: `rm/_HOST@REALM` becomes `rm/rm1.example@REALM`. Names without
/// `_HOST` in the second place stay as they are. The host must be the canonical name, as DNS has it.
pub fn replace_host(principal: &str, host: &str) -> Result<String, PrincipalError> {
    let parts: Vec<&str> = principal.split(['/', '@']).collect();
    let &[service, HOST, realm] = parts.as_slice() else {
        return Ok(principal.to_owned());
    };
    let host = host.trim_end_matches('.').to_lowercase();
    if host.is_empty() || host.parse::<IpAddr>().is_ok() {
        return Err(PrincipalError::NeedsName {
            principal: principal.to_owned(),
            host,
        });
    }
    Ok(format!("{service}/{host}@{realm}"))
}

/// Who a server must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerPrincipal {
    /// The configured name, perhaps with `_HOST`.
    pub name: Option<String>,
    /// A pattern that takes the place of the name: `*`, `?`, `[…]` and `{a,b}`.
    pub pattern: Option<String>,
}

impl ServerPrincipal {
    /// Whether `_HOST` must be replaced before the name can be used.
    pub fn needs_host(&self) -> bool {
        self.name
            .as_deref()
            .is_some_and(|name| name.split(['/', '@']).nth(1) == Some(HOST))
    }

    /// The name of the server on `host`, if one is configured.
    pub fn on(&self, host: &str) -> Result<Option<String>, PrincipalError> {
        self.name
            .as_deref()
            .map(|name| replace_host(name, host))
            .transpose()
    }

    /// Compares what a server says it is, `service/server`, with the configuration. The realm is not part of
    /// the handshake: it is compared when the caller knows it.
    pub fn check(
        &self,
        service: &str,
        server: &str,
        realm: Option<&str>,
        host: &str,
    ) -> Result<(), PrincipalError> {
        let mut actual = format!("{service}/{server}");
        if let Some(realm) = realm {
            actual = format!("{actual}@{realm}");
        }
        if let Some(pattern) = self.pattern.as_deref().filter(|text| !text.is_empty()) {
            // A pattern for whole names is cut before its realm when ours is not known.
            let comparable = match (realm, pattern.rsplit_once('@')) {
                (None, Some((before, _))) => before,
                _ => pattern,
            };
            return if matches_glob(comparable, &actual) {
                Ok(())
            } else {
                Err(PrincipalError::Mismatch {
                    actual,
                    expected: pattern.to_owned(),
                })
            };
        }
        let Some(expected) = self.on(host)? else {
            // Without a configured name nobody can say that this is the wrong one.
            return Ok(());
        };
        let (name, expected_realm) = match expected.rsplit_once('@') {
            Some((name, realm)) => (name, Some(realm)),
            None => (expected.as_str(), None),
        };
        if !name.contains('/') {
            return Err(PrincipalError::NotAServer {
                principal: expected,
            });
        }
        let same_realm = match (realm, expected_realm) {
            (Some(actual), Some(expected)) => actual == expected,
            _ => true,
        };
        let same_name = name
            .split_once('/')
            .is_some_and(|(kind, at)| kind == service && at.eq_ignore_ascii_case(server));
        if same_name && same_realm {
            Ok(())
        } else {
            Err(PrincipalError::Mismatch { actual, expected })
        }
    }
}

/// Whether the whole text fits a glob. Patterns with too many alternatives fit nothing.
fn matches_glob(pattern: &str, text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    alternatives(pattern).is_some_and(|patterns| {
        patterns.iter().any(|pattern| {
            let pattern: Vec<char> = pattern.chars().collect();
            fits(&pattern, &text)
        })
    })
}

/// The patterns without braces that a pattern with braces stands for.
fn alternatives(pattern: &str) -> Option<Vec<String>> {
    let mut done = Vec::new();
    let mut open = vec![pattern.to_owned()];
    while let Some(pattern) = open.pop() {
        // The innermost pair: the first closing brace, and the last opening one before it.
        let pair = pattern
            .find('}')
            .and_then(|close| Some((pattern[..close].rfind('{')?, close)));
        let Some((start, end)) = pair else {
            done.push(pattern);
            continue;
        };
        for middle in pattern[start + 1..end].split(',') {
            open.push(format!(
                "{}{middle}{}",
                &pattern[..start],
                &pattern[end + 1..]
            ));
        }
        if open.len() + done.len() > ALTERNATIVES_MAX {
            return None;
        }
    }
    Some(done)
}

/// Matches with one point to return to, the last `*`: time grows with the product of the lengths, no more.
fn fits(pattern: &[char], text: &[char]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        let step = match pattern.get(p) {
            Some('*') => {
                star = Some((p + 1, t));
                p += 1;
                continue;
            }
            Some('?') => Some(1),
            Some('[') => class(&pattern[p..], text[t]),
            Some('\\') if pattern.get(p + 1) == Some(&text[t]) => Some(2),
            Some(letter) if *letter == text[t] && *letter != '\\' => Some(1),
            _ => None,
        };
        match (step, star) {
            (Some(length), _) => (p, t) = (p + length, t + 1),
            (None, Some((after, from))) => {
                star = Some((after, from + 1));
                (p, t) = (after, from + 1);
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|letter| *letter == '*')
}

/// The length of a `[…]` that the letter fits.
fn class(pattern: &[char], letter: char) -> Option<usize> {
    let end = 2 + pattern.get(2..)?.iter().position(|end| *end == ']')?;
    let (negated, members) = match pattern[1] {
        '!' | '^' => (true, &pattern[2..end]),
        _ => (false, &pattern[1..end]),
    };
    let mut found = false;
    let mut at = 0;
    while at < members.len() {
        if let [from, '-', to, ..] = members[at..] {
            found |= (from..=to).contains(&letter);
            at += 3;
        } else {
            found |= members[at] == letter;
            at += 1;
        }
    }
    (found != negated).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_put_in() {
        let put =
            |principal, host| replace_host(principal, host).map_err(|error| error.to_string());
        assert_eq!(
            put("rm/_HOST@R", "RM1.Example."),
            Ok("rm/rm1.example@R".into())
        );
        assert_eq!(put("rm/fixed@R", "other"), Ok("rm/fixed@R".into()));
        assert_eq!(put("alice@R", "other"), Ok("alice@R".into()));
        assert_eq!(put("_HOST/x@R", "other"), Ok("_HOST/x@R".into()));
        assert_eq!(
            put("rm/_HOST@R", "10.0.0.1"),
            Err("cannot put `10.0.0.1` into `rm/_HOST@R`: it takes the name of the host, not its address".into())
        );
        assert!(put("rm/_HOST@R", "").is_err());
    }

    #[test]
    fn a_server_must_be_who_it_should_be() {
        let configured = |name: Option<&str>, pattern: Option<&str>| ServerPrincipal {
            name: name.map(str::to_owned),
            pattern: pattern.map(str::to_owned),
        };
        let rm = configured(Some("yarn/_HOST@R"), None);
        assert!(rm.needs_host());
        assert_eq!(rm.check("yarn", "rm1.example", None, "rm1.example"), Ok(()));
        assert_eq!(
            rm.check("yarn", "rm1.example", Some("R"), "rm1.example"),
            Ok(())
        );
        assert!(
            rm.check("yarn", "rm1.example", Some("EVIL"), "rm1.example")
                .is_err()
        );
        assert!(
            rm.check("yarn", "rm2.example", None, "rm1.example")
                .is_err()
        );
        assert!(
            rm.check("hdfs", "rm1.example", None, "rm1.example")
                .is_err()
        );
        let any = configured(Some("yarn/_HOST@R"), Some("*"));
        assert_eq!(any.check("hdfs", "anything", None, "10.0.0.1"), Ok(()));
        let some = configured(None, Some("{yarn,hdfs}/rm?.example@*"));
        assert_eq!(some.check("hdfs", "rm7.example", None, "x"), Ok(()));
        assert_eq!(some.check("hdfs", "rm7.example", Some("Q"), "x"), Ok(()));
        assert!(some.check("http", "rm7.example", None, "x").is_err());
        assert!(
            configured(Some("alice@R"), None)
                .check("alice", "x", None, "x")
                .is_err()
        );
    }

    #[test]
    fn globs_match_whole_texts() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("a*b*c", "a--b--c", true),
            ("a*b*c", "a--b--", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]x", "x", false),
            ("[", "[", false),
            ("{a,b{c,d}}", "bd", true),
            ("{a", "{a", true),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
        ] {
            assert_eq!(matches_glob(pattern, text), expected, "{pattern} {text}");
        }
        let many = "{a,b}".repeat(30);
        assert!(
            !matches_glob(&many, "a"),
            "too many alternatives fit nothing"
        );
        let slow = format!("{}b", "a*".repeat(500));
        assert!(!matches_glob(&slow, &"a".repeat(2000)));
    }
}
