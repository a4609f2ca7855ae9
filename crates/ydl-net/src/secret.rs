//! The secret of a job, and the tokens derived from it.
//!
//! A token is a scope in clear text and a MAC of that scope under the job's secret. The holder of the secret can verify any
//! token without storing one, and the token of one container reveals nothing about that of another.

use std::fmt;
use std::hint::black_box;
use std::path::Path;

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use super::text;
use ydl_os::private::{self, PrivateError};

/// Bytes of a secret, and of a MAC.
const BYTES: usize = 32;

/// Domain separation: no other use of the secret can produce a MAC that is a token.
const PURPOSE: &[u8] = b"ydl token 1\0";

/// The name under which [`Secret::to_hex`] travels among the credentials of a master on a cluster.
pub const CREDENTIAL: &str = "ydl.secret";

/// Maximum length of a token; a longer header is ignored.
pub const TOKEN_BYTES_MAX: usize = 512;

/// Secret of a job. It leaves the process only through [`Secret::write`] and [`Secret::to_hex`].
pub struct Secret([u8; BYTES]);

impl Secret {
    /// Generates a secret. Returns `None` if the system provides no random bytes.
    pub fn random() -> Option<Self> {
        let mut bytes = [0; BYTES];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Some(Self(bytes))
    }

    pub fn from_hex(text: &str) -> Option<Self> {
        text::from_hex(text).map(Self)
    }

    /// The secret in clear text, for the credentials that carry it. Never for a log or an argument.
    pub fn to_hex(&self) -> String {
        hex::encode(self.0)
    }

    /// Writes the secret to a file that only its owner can read.
    pub fn write(&self, path: &Path) -> Result<(), PrivateError> {
        let mut line = self.to_hex().into_bytes();
        line.push(b'\n');
        let written = private::write(path, &line);
        erase(&mut line);
        written
    }

    /// Reads a secret; refuses a file that others can read.
    pub fn read(path: &Path) -> Result<Self, PrivateError> {
        let mut line = private::read(path, BYTES * 2 + 1)?;
        let secret = std::str::from_utf8(&line).ok().and_then(|line| Self::from_hex(line.trim()));
        erase(&mut line);
        secret
            .ok_or(PrivateError::Malformed { path: path.to_owned(), what: "64 digits of a secret" })
    }

    /// Creates the token for `scope`. Returns `None` for a container whose name is invalid in a header.
    pub fn token(&self, scope: &Scope) -> Option<Token> {
        let mac = match scope {
            Scope::Agent(container) | Scope::Program(container) if !is_name(container) => {
                return None;
            }
            _ => hmac::sign(&self.key(), &scope.message()),
        };
        Some(Token(format!("{scope}.{}", hex::encode(mac.as_ref()))))
    }

    /// Returns the scope of `token` if it was made with this secret. The MAC is compared in constant time.
    pub fn verify(&self, token: &str) -> Option<Scope> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (scope, mac) = token.rsplit_once('.')?;
        let mac: [u8; BYTES] = text::from_hex(mac)?;
        let scope = Scope::parse(scope)?;
        hmac::verify(&self.key(), &scope.message(), &mac).ok()?;
        Some(scope)
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        erase(&mut self.0);
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Overwrites a secret. `black_box` keeps the compiler from removing the write.
fn erase(bytes: &mut [u8]) {
    bytes.fill(0);
    black_box(bytes);
}

/// Permissions of a token.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// The agent of this container.
    Agent(String),
    /// User code in this container: the key-value store and events, nothing else.
    Program(String),
    /// The job's owner: view, kill, scale, and the key-value store.
    Client,
    /// A viewer: read-only access.
    Viewer,
}

impl Scope {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "client" => return Some(Self::Client),
            "viewer" => return Some(Self::Viewer),
            _ => {}
        }
        let (kind, container) = text.split_once('.')?;
        let container = is_name(container).then(|| container.to_owned())?;
        match kind {
            "agent" => Some(Self::Agent(container)),
            "program" => Some(Self::Program(container)),
            _ => None,
        }
    }

    fn message(&self) -> Vec<u8> {
        [PURPOSE, self.to_string().as_bytes()].concat()
    }
}

/// Formats the scope as in a token before the MAC. No two scopes have the same text.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(container) => write!(f, "agent.{container}"),
            Self::Program(container) => write!(f, "program.{container}"),
            Self::Client => f.write_str("client"),
            Self::Viewer => f.write_str("viewer"),
        }
    }
}

/// Returns whether a container's name is valid in a header.
fn is_name(container: &str) -> bool {
    (1..=256).contains(&container.len()) && container.bytes().all(|b| b.is_ascii_graphic())
}

/// Bearer token. It is sent to its own server only.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Accepts the text of a header or a file; [`Secret::verify`] decides whether it is valid.
    pub fn new(text: &str) -> Option<Self> {
        let fits = (1..=TOKEN_BYTES_MAX).contains(&text.len());
        (fits && text.bytes().all(|b| b.is_ascii_graphic())).then(|| Self(text.to_owned()))
    }

    /// The token in clear text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Writes the token to a file that only its owner can read.
    pub fn write(&self, path: &Path) -> Result<(), PrivateError> {
        private::write(path, format!("{}\n", self.0).as_bytes())
    }

    /// Reads a token; refuses a file that others can read.
    pub fn read(path: &Path) -> Result<Self, PrivateError> {
        let mut line = private::read(path, TOKEN_BYTES_MAX + 1)?;
        let token = std::str::from_utf8(&line).ok().and_then(|line| Self::new(line.trim()));
        erase(&mut line);
        token.ok_or(PrivateError::Malformed { path: path.to_owned(), what: "a token" })
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.0).into_bytes();
        erase(&mut bytes);
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes() -> [Scope; 4] {
        [
            Scope::Agent("container_e17_1410901177871_0001_01_000005".into()),
            Scope::Program("c.1".into()),
            Scope::Agent("c.1".into()),
            Scope::Client,
        ]
    }

    #[test]
    fn a_token_is_valid_for_its_own_scope_only() {
        let secret = Secret::random().unwrap();
        for scope in scopes() {
            let token = secret.token(&scope).unwrap();
            assert_eq!(secret.verify(token.as_str()), Some(scope.clone()));
            let (_, mac) = token.as_str().rsplit_once('.').unwrap();
            for other in scopes().into_iter().filter(|other| *other != scope) {
                assert_eq!(secret.verify(&format!("{other}.{mac}")), None);
            }
        }
    }

    #[test]
    fn a_token_of_another_job_is_invalid() {
        let (ours, theirs) = (Secret::random().unwrap(), Secret::random().unwrap());
        assert_eq!(ours.verify(theirs.token(&Scope::Client).unwrap().as_str()), None);
    }

    #[test]
    fn a_modified_token_is_invalid() {
        let secret = Secret::random().unwrap();
        let token = secret.token(&Scope::Agent("c1".into())).unwrap();
        let token = token.as_str();
        for place in 0..token.len() {
            assert_eq!(secret.verify(&token[..place]), None);
            for letter in ["0", "f", ".", "é", ""] {
                let mut changed = token.to_owned();
                changed.replace_range(place..=place, letter);
                if changed != token {
                    assert_eq!(secret.verify(&changed), None, "{changed}");
                }
            }
        }
        assert_eq!(secret.verify(&"a".repeat(1 << 20)), None);
    }

    #[test]
    fn a_container_name_invalid_in_a_header_has_no_token() {
        let secret = Secret::random().unwrap();
        for name in ["", "a b", "a\r\nb", "é", &"x".repeat(257)] {
            assert_eq!(secret.token(&Scope::Agent(name.into())), None);
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let secret = Secret::from_hex(&"ab".repeat(32)).unwrap();
        let token = secret.token(&Scope::Client).unwrap();
        assert_eq!(format!("{secret:?} {token:?}"), "Secret(..) Token(..)");
    }

    #[test]
    fn secrets_and_tokens_round_trip_through_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let secret = Secret::random().unwrap();
        secret.write(&path).unwrap();
        assert_eq!(Secret::read(&path).unwrap().to_hex(), secret.to_hex());
        let token = secret.token(&Scope::Program("c1".into())).unwrap();
        token.write(&path).unwrap();
        assert_eq!(Token::read(&path).unwrap(), token);
        assert!(Secret::read(&path).is_err());
        private::write(&path, &[0xff; 64]).unwrap();
        assert!(matches!(Secret::read(&path).unwrap_err(), PrivateError::Malformed { .. }));
    }
}
