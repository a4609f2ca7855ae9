//! Hadoop credentials: tokens and secrets, and their file formats.
//!
//! The same format is used in the file named by `HADOOP_TOKEN_FILE_LOCATION` and in a container's
//! launch context. Of the two formats, ResourceManager and NodeManagers write the first; Hadoop 3.0
//! and later read both.
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

/// Magic bytes of a credentials file.
const MAGIC: &[u8; 4] = b"HDTS";

/// Maximum file size; a token has some hundred bytes, a process some dozen tokens.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Tokens and secrets by alias.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    tokens: BTreeMap<String, Token>,
    secrets: BTreeMap<String, Secret>,
}

/// Serialization format of credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Hadoop's Writable format, readable by every version.
    #[default]
    Writable,
    /// Protocol buffers, for Hadoop 3.0 and later.
    Protobuf,
}

/// Error reading or writing credentials.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// A file cannot be read or written.
    #[error("cannot {action} the credentials file `{}`: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// `read` or `write`.
        action: &'static str,
        /// The system error.
        source: io::Error,
    },
    /// A file has an invalid format.
    #[error("invalid credentials file `{}`: {why}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The format error.
        why: FormatError,
    },
    /// Bytes have an invalid format.
    #[error("invalid credentials: {0}")]
    Bytes(#[from] FormatError),
}

/// Error in the format of credentials or identifiers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The magic bytes are missing.
    #[error("missing `HDTS` header")]
    Magic,
    /// The format version is unknown.
    #[error("unknown format version {0}, expected 0 or 1")]
    Format(u8),
    /// The data is truncated.
    #[error("unexpected end of data at byte {0}")]
    Short(usize),
    /// A length or number is invalid.
    #[error("invalid number at byte {0}")]
    Number(usize),
    /// A text is not UTF-8.
    #[error("text at byte {0} is not UTF-8")]
    Text(usize),
}

impl Credentials {
    /// Parses credentials. Trailing bytes are ignored, as in Hadoop: some writers pass on more of
    /// their buffer than they filled.
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

    /// Serializes the credentials. The buffer is erased when dropped.
    pub fn to_bytes(&self, format: Format) -> Zeroizing<Vec<u8>> {
        // Allocates the full capacity up front: growing the buffer would leave copies of passwords
        // behind.
        let tokens = self.tokens.iter().map(|(alias, token)| {
            let fields = [alias.len(), token.identifier.len(), token.kind.len()];
            let others = [token.password.expose().len(), token.service.len()];
            64 + fields.iter().chain(&others).sum::<usize>()
        });
        let secrets = self.secrets.iter();
        let secrets = secrets.map(|(alias, secret)| 32 + alias.len() + secret.expose().len());
        let capacity = 64 + tokens.sum::<usize>() + secrets.sum::<usize>();
        let mut bytes = Zeroizing::new(Vec::with_capacity(capacity));
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
        debug_assert!(bytes.len() <= capacity, "the buffer grew");
        bytes
    }

    /// Reads a credentials file.
    pub fn read(path: &Path) -> Result<Self, CredentialsError> {
        let unreadable =
            |source| CredentialsError::File { path: path.to_owned(), action: "read", source };
        // Checked first: opening a FIFO would block until a writer connects.
        if !path.metadata().map_err(unreadable)?.is_file() {
            return Err(unreadable(io::Error::other("not a file")));
        }
        let file = File::open(path).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        if length > FILE_BYTES_MAX {
            let why = format!("larger than {} MiB", FILE_BYTES_MAX >> 20);
            return Err(unreadable(io::Error::other(why)));
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(length as usize + 1));
        file.take(length).read_to_end(&mut bytes).map_err(unreadable)?;
        Self::parse(&bytes).map_err(|why| CredentialsError::Corrupt { path: path.to_owned(), why })
    }

    /// Writes a credentials file readable only by its owner. Replaces an existing file atomically.
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
            // Best effort: the original error is reported.
            let _ = std::fs::remove_file(&part);
            CredentialsError::File { path: path.to_owned(), action: "write", source }
        })
    }

    /// Adds a token under an alias, by convention its service. Replaces an existing one.
    pub fn add(&mut self, alias: impl Into<String>, token: Token) {
        self.tokens.insert(alias.into(), token);
    }

    /// Adds copies of the tokens for `service` under other services of the same server, such as
    /// those from [`NameNodes::token_services`](crate::namenode::NameNodes::token_services).
    /// Existing tokens are kept.
    pub fn copy_to_services(&mut self, service: &str, services: &[String]) {
        let tokens = self.tokens.values().filter(|token| token.service == service);
        for token in tokens.cloned().collect::<Vec<_>>() {
            for other in services {
                let copy = Token { service: other.clone(), ..token.clone() };
                if self.for_service(&copy.kind, other).is_none() {
                    // The alias includes the kind, since a server may have tokens of several kinds.
                    self.add(format!("{other} {}", copy.kind), copy);
                }
            }
        }
    }

    /// Adds all tokens and secrets of `other`, which replace existing ones with the same alias.
    pub fn extend(&mut self, other: Self) {
        self.tokens.extend(other.tokens);
        self.secrets.extend(other.secrets);
    }

    /// Returns the tokens with their aliases.
    pub fn tokens(&self) -> impl Iterator<Item = (&str, &Token)> {
        self.tokens.iter().map(|(alias, token)| (alias.as_str(), token))
    }

    /// Returns the token with this alias.
    pub fn token(&self, alias: &str) -> Option<&Token> {
        self.tokens.get(alias)
    }

    /// Returns the first token of a kind, regardless of its service. For tokens issued without a
    /// service.
    pub fn of_kind(&self, kind: &str) -> Option<&Token> {
        self.tokens.values().find(|token| token.kind == kind)
    }

    /// Returns the token of a kind for a service such as `127.0.0.1:8032`. A token's service may
    /// list several addresses separated by commas, as for highly available ResourceManagers.
    pub fn for_service(&self, kind: &str, service: &str) -> Option<&Token> {
        let fits = |token: &&Token| {
            token.kind == kind && token.service.split(',').any(|one| one.trim() == service)
        };
        self.tokens.values().find(fits)
    }

    /// Removes all tokens of a kind. An ApplicationMaster removes its AMRM token before passing
    /// credentials on.
    pub fn remove_kind(&mut self, kind: &str) {
        self.tokens.retain(|_, token| token.kind != kind);
    }

    /// Returns the secrets with their aliases.
    pub fn secrets(&self) -> impl Iterator<Item = (&str, &Secret)> {
        self.secrets.iter().map(|(alias, secret)| (alias.as_str(), secret))
    }

    /// Returns the secret with this alias.
    pub fn secret(&self, alias: &str) -> Option<&Secret> {
        self.secrets.get(alias)
    }

    /// Adds a secret under an alias. Replaces an existing one.
    pub fn set_secret(&mut self, alias: impl Into<String>, secret: impl Into<Secret>) {
        self.secrets.insert(alias.into(), secret.into());
    }

    /// Removes a secret and returns it.
    pub fn take_secret(&mut self, alias: &str) -> Option<Secret> {
        self.secrets.remove(alias)
    }

    /// Returns whether there are neither tokens nor secrets.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.secrets.is_empty()
    }
}
