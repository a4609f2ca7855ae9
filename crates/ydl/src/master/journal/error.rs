//! Errors of journal files.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use super::format::VERSION;
use super::{JOURNAL_BYTES_MAX, RECORD_BYTES_MAX};

/// Journal file error.
#[derive(Debug)]
#[non_exhaustive]
pub enum JournalError {
    Io {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    NotAJournal {
        path: PathBuf,
    },
    Version {
        path: PathBuf,
        version: u32,
    },
    /// Valid records follow a damaged one, or the header is damaged.
    Damaged {
        path: PathBuf,
        offset: u64,
    },
    /// The record is empty or too long.
    Length {
        path: PathBuf,
        length: usize,
    },
    Full {
        path: PathBuf,
    },
}

impl JournalError {
    pub(super) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { doing, path: path.to_owned(), source }
    }
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { doing, path, source } => {
                write!(f, "cannot {doing} the journal `{}`: {source}", path.display())
            }
            Self::NotAJournal { path } => {
                write!(f, "cannot use `{}`: it is not a journal", path.display())
            }
            Self::Version { path, version } => write!(
                f,
                "cannot use the journal `{}`: it has version {version}, but this ydl supports {VERSION}",
                path.display()
            ),
            Self::Damaged { path, offset } => {
                write!(f, "the journal `{}` is damaged at byte {offset}", path.display())
            }
            Self::Length { path, length } => write!(
                f,
                "cannot append {length} bytes to the journal `{}`: a record has 1 to \
                 {RECORD_BYTES_MAX}",
                path.display()
            ),
            Self::Full { path } => write!(
                f,
                "cannot append to the journal `{}`: it is at its limit of {JOURNAL_BYTES_MAX} bytes",
                path.display()
            ),
        }
    }
}

impl std::error::Error for JournalError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
