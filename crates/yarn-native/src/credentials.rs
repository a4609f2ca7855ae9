//! Hadoop's credentials: the tokens and secrets a process holds, and the files that carry them.
//!
//! The same bytes are in the file that `HADOOP_TOKEN_FILE_LOCATION` names and in the launch context of a
//! container. There are two formats; ResourceManager and NodeManagers write the first, and everything since
//! Hadoop 3.0 reads both.
//!
//! ```
//! use yarn_native::credentials::{Credentials, Format};
//!
//! let mut credentials = Credentials::default();
//! credentials.set_secret("job", b"never in the environment".to_vec());
//! let bytes = credentials.to_bytes(Format::Writable);
//! assert_eq!(Credentials::from_bytes(&bytes)?, credentials);
//! # Ok::<(), yarn_native::credentials::CredentialsError>(())
//! ```

mod identifier;
mod protobuf;
mod writable;

pub use identifier::{IdentifierError, TokenIdentifier};

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use zeroize::Zeroizing;

use crate::token::{Secret, Token};

/// What every credentials file begins with.
const MAGIC: &[u8; 4] = b"HDTS";

/// Larger files are not read: a token has some hundred bytes, a process some dozen tokens.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Tokens and secrets, each under its alias.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    tokens: BTreeMap<String, Token>,
    secrets: BTreeMap<String, Secret>,
}

/// How credentials are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Hadoop's own, which every version reads.
    #[default]
    Writable,
    /// Protocol buffers; Hadoop 3.0 and later.
    Protobuf,
}

/// Why credentials cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// The file cannot be read or written.
    #[error("cannot {action} the credentials file `{}`: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// `read` or `write`.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("`{}` is no credentials file: {why}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with its bytes.
        why: FormatError,
    },
    /// Bytes are not credentials.
    #[error("these are no credentials: {0}")]
    Bytes(#[from] FormatError),
}

/// What is wrong with some bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// They do not begin as credentials do.
    #[error("they do not begin with `HDTS`")]
    Magic,
    /// A format that nobody knows.
    #[error("their format is {0}, and only 0 and 1 are known")]
    Format(u8),
    /// They stop in the middle.
    #[error("they end at byte {0}, in the middle")]
    Short(usize),
    /// A length or number makes no sense.
    #[error("a number at byte {0} makes no sense")]
    Number(usize),
    /// A name is not text.
    #[error("a name at byte {0} is not UTF-8")]
    Text(usize),
}

impl Credentials {
    /// Reads credentials from their bytes. What follows them is ignored, as Hadoop does: some writers hand
    /// on more of their buffer than they filled.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CredentialsError> {
        Ok(Self::parse(bytes)?)
    }

    fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        if !bytes.starts_with(MAGIC) {
            return Err(FormatError::Magic);
        }
        match bytes.get(MAGIC.len()) {
            None => Err(FormatError::Short(MAGIC.len())),
            Some(0) => writable::parse(bytes, MAGIC.len() + 1),
            Some(1) => protobuf::parse(bytes, MAGIC.len() + 1),
            Some(other) => Err(FormatError::Format(*other)),
        }
    }

    /// The bytes of these credentials. They are erased when dropped.
    pub fn to_bytes(&self, format: Format) -> Zeroizing<Vec<u8>> {
        // Room for everything from the start: a buffer that grew would leave copies of passwords behind.
        let tokens = self.tokens.iter().map(|(alias, token)| {
            let fields = [alias.len(), token.identifier.len(), token.kind.len()];
            let others = [token.password.expose().len(), token.service.len()];
            64 + fields.iter().chain(&others).sum::<usize>()
        });
        let secrets = self.secrets.iter();
        let secrets = secrets.map(|(alias, secret)| 32 + alias.len() + secret.expose().len());
        let room = 64 + tokens.sum::<usize>() + secrets.sum::<usize>();
        let mut bytes = Zeroizing::new(Vec::with_capacity(room));
        bytes.extend_from_slice(MAGIC);
        match format {
            Format::Writable => {
                bytes.push(0);
                writable::write(self, &mut bytes);
            }
            Format::Protobuf => {
                bytes.push(1);
                protobuf::write(self, &mut bytes);
            }
        }
        debug_assert!(bytes.len() <= room, "the buffer grew");
        bytes
    }

    /// Reads a credentials file.
    pub fn read(path: &Path) -> Result<Self, CredentialsError> {
        let unreadable =
            |source| CredentialsError::File { path: path.to_owned(), action: "read", source };
        // Looked at first: opening a pipe waits for somebody to write into it.
        if !path.metadata().map_err(unreadable)?.is_file() {
            return Err(unreadable(io::Error::other("not a file")));
        }
        let file = File::open(path).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        if length > FILE_BYTES_MAX {
            let why = format!("it is larger than {} MiB", FILE_BYTES_MAX >> 20);
            return Err(unreadable(io::Error::other(why)));
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(length as usize + 1));
        file.take(length).read_to_end(&mut bytes).map_err(unreadable)?;
        Self::parse(&bytes).map_err(|why| CredentialsError::Corrupt { path: path.to_owned(), why })
    }

    /// Writes a credentials file that only its owner can read. It takes the place of an earlier one at once
    /// and whole: nobody sees half of it.
    pub fn write(&self, path: &Path, format: Format) -> Result<(), CredentialsError> {
        static WRITTEN: AtomicU32 = AtomicU32::new(0);
        let bytes = self.to_bytes(format);
        let mut name = path.file_name().unwrap_or_default().to_owned();
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        name.push(format!(".{}.{number}.part", std::process::id()));
        let part = path.with_file_name(name);
        let store = || {
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            std::fs::rename(&part, path)
        };
        store().map_err(|source| {
            // Best effort: the error that counts is the one above.
            let _ = std::fs::remove_file(&part);
            CredentialsError::File { path: path.to_owned(), action: "write", source }
        })
    }

    /// Adds a token under an alias, by custom its service; replaces the one that had it.
    pub fn add(&mut self, alias: impl Into<String>, token: Token) {
        self.tokens.insert(alias.into(), token);
    }

    /// Adds copies of the tokens for `service` that are for the same server under other names, such as
    /// [`NameNodes::token_spellings`](crate::namenode::NameNodes::token_spellings) gives: one for each
    /// spelling that has none yet.
    pub fn copy_to_services(&mut self, service: &str, spellings: &[String]) {
        let tokens = self.tokens.values().filter(|token| token.service == service);
        for token in tokens.cloned().collect::<Vec<_>>() {
            for spelling in spellings {
                let copy = Token { service: spelling.clone(), ..token.clone() };
                if self.for_service(&copy.kind, spelling).is_none() {
                    // Under an alias of its own: the same server may have tokens of several kinds.
                    self.add(format!("{spelling} {}", copy.kind), copy);
                }
            }
        }
    }

    /// Takes over everything another one has; where both use an alias, the other one's counts.
    pub fn extend(&mut self, other: Self) {
        self.tokens.extend(other.tokens);
        self.secrets.extend(other.secrets);
    }

    /// The tokens with their aliases.
    pub fn tokens(&self) -> impl Iterator<Item = (&str, &Token)> {
        self.tokens.iter().map(|(alias, token)| (alias.as_str(), token))
    }

    /// The token with this alias.
    pub fn token(&self, alias: &str) -> Option<&Token> {
        self.tokens.get(alias)
    }

    /// The first token of a kind, whatever its service: for tokens that come without one.
    pub fn of_kind(&self, kind: &str) -> Option<&Token> {
        self.tokens.values().find(|token| token.kind == kind)
    }

    /// The token of a kind for a service such as `127.0.0.1:8032`. A token may be for several, separated by
    /// commas: so are those for ResourceManagers that take over from each other.
    pub fn for_service(&self, kind: &str, service: &str) -> Option<&Token> {
        let fits = |token: &&Token| {
            token.kind == kind && token.service.split(',').any(|one| one.trim() == service)
        };
        self.tokens.values().find(fits)
    }

    /// Removes all tokens of a kind: a master takes its own token out before it hands credentials on.
    pub fn remove_kind(&mut self, kind: &str) {
        self.tokens.retain(|_, token| token.kind != kind);
    }

    /// The secrets with their aliases.
    pub fn secrets(&self) -> impl Iterator<Item = (&str, &Secret)> {
        self.secrets.iter().map(|(alias, secret)| (alias.as_str(), secret))
    }

    /// The secret with this alias.
    pub fn secret(&self, alias: &str) -> Option<&Secret> {
        self.secrets.get(alias)
    }

    /// Adds a secret under an alias; replaces the one that had it.
    pub fn set_secret(&mut self, alias: impl Into<String>, secret: impl Into<Secret>) {
        self.secrets.insert(alias.into(), secret.into());
    }

    /// Removes a secret and returns it.
    pub fn take_secret(&mut self, alias: &str) -> Option<Secret> {
        self.secrets.remove(alias)
    }

    /// Whether there is nothing in them.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.secrets.is_empty()
    }
}
