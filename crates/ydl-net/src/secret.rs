//! The secret of a job, and the tokens that follow from it.
//!
//! A token is the scope it opens, written out, and a MAC of that scope under the job's secret. So
//! whoever holds the secret can check any token without remembering one, and a token of one
//! container tells nothing about that of another.

use std::fmt;
use std::hint::black_box;
use std::path::Path;

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use super::text;
use ydl_os::private::{self, PrivateError};

/// Bytes of a secret, and of a MAC.
const BYTES: usize = 32;

/// What MACs are made for, so that no other use of the secret can give one that is a token.
const PURPOSE: &[u8] = b"ydl token 1\0";

/// The name under which [`Secret::to_hex`] travels among the credentials of a master on a cluster.
pub const CREDENTIAL: &str = "ydl.secret";

/// A token is at most this long; a header with more is not looked at.
pub const TOKEN_BYTES_MAX: usize = 512;

/// The secret of a job. It leaves the process only through [`Secret::write`] and [`Secret::to_hex`].
pub struct Secret([u8; BYTES]);

impl Secret {
    /// A new secret, or nothing where the system gives no random bytes.
    pub fn random() -> Option<Self> {
        let mut bytes = [0; BYTES];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Some(Self(bytes))
    }

    pub fn from_hex(text: &str) -> Option<Self> {
        text::from_hex(text).map(Self)
    }

    /// The secret in the clear, for the credentials that carry it. Never for a log or an argument.
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

    /// The token that opens `scope`. A container whose name no header can carry has none.
    pub fn token(&self, scope: &Scope) -> Option<Token> {
        let mac = match scope {
            Scope::Agent(container) | Scope::Program(container) if !is_name(container) => {
                return None;
            }
            _ => hmac::sign(&self.key(), &scope.message()),
        };
        Some(Token(format!("{scope}.{}", hex::encode(mac.as_ref()))))
    }

    /// The scope that `token` opens, if it was made with this secret. The comparison of the MAC
    /// takes the same time whatever is wrong with it.
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

/// Overwrites what was secret. The compiler must believe that someone looks at the zeroes, or it
/// would leave the writing out.
fn erase(bytes: &mut [u8]) {
    bytes.fill(0);
    black_box(bytes);
}

/// What the bearer of a token may do.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Speak for this container.
    Agent(String),
    /// User code in this container: the key-value store and events, nothing else.
    Program(String),
    /// A person's command: view, kill, scale, and the key-value store.
    Client,
    /// A person who may look, and change nothing.
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

/// The scope as it stands in a token before the MAC. No two scopes are written alike.
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

/// Whether a container's name can stand in a header.
fn is_name(container: &str) -> bool {
    (1..=256).contains(&container.len()) && container.bytes().all(|b| b.is_ascii_graphic())
}

/// A token as it stands after `Bearer`. It may be shown to the peer it is for, and to nobody else.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Takes what a header or a file holds; whether it opens anything is for [`Secret::verify`].
    pub fn new(text: &str) -> Option<Self> {
        let fits = (1..=TOKEN_BYTES_MAX).contains(&text.len());
        (fits && text.bytes().all(|b| b.is_ascii_graphic())).then(|| Self(text.to_owned()))
    }

    /// The token in the clear.
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
    fn a_token_opens_its_own_scope_and_no_other() {
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
    fn a_token_of_another_job_opens_nothing() {
        let (ours, theirs) = (Secret::random().unwrap(), Secret::random().unwrap());
        assert_eq!(ours.verify(theirs.token(&Scope::Client).unwrap().as_str()), None);
    }

    #[test]
    fn a_token_with_any_letter_changed_or_missing_opens_nothing() {
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
    fn a_container_that_no_header_can_carry_has_no_token() {
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
    fn secrets_and_tokens_survive_a_file() {
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
