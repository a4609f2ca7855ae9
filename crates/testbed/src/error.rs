//! The error type of this crate.

use std::{fmt, io, path::Path};

/// Classifies an error by its remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A required program is not installed or has an unsupported version.
    Missing,
    /// A download failed: check the network and retry.
    Unreachable,
    /// A daemon or a tool exited unexpectedly; `log` has its last output.
    Exited,
    /// A condition was not met before its deadline.
    Timeout,
    /// The request names something that does not exist.
    InvalidRequest,
    /// A system call failed: disk, permissions, processes.
    System,
}

/// A message with an optional hint and the last lines of the log concerned.
#[derive(Clone, Debug)]
pub struct Error {
    /// The class of the error.
    pub kind: ErrorKind,
    /// The failed action, its object and the cause.
    pub message: String,
    /// A remedy.
    pub hint: Option<String>,
    /// The end of the log of the failed process.
    pub log: Option<String>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), hint: None, log: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn log(mut self, log: impl Into<String>) -> Error {
        self.log = Some(log.into());
        self
    }

    /// Returns a `map_err` function for an action on a file or directory.
    pub(crate) fn at<'a>(action: &'a str, path: &'a Path) -> impl FnOnce(io::Error) -> Error + 'a {
        move |error| {
            let message = format!("cannot {action} `{}`: {error}", path.display());
            Error::new(ErrorKind::System, message)
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(log) = &self.log {
            write!(f, "\n\n{}", log.trim_end())?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
