//! Why there is no cluster, or why it does not do what was waited for.

use std::{fmt, io, path::Path};

/// What a caller can do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A program this machine needs is not there, or has the wrong version: install it.
    Missing,
    /// Something could not be fetched: mend the network, try again.
    Unreachable,
    /// A daemon or a tool ended when it should not have; `log` has its last words.
    Ended,
    /// A fact did not come true in its time.
    Late,
    /// The caller asked for something that does not exist.
    Wrong,
    /// The disk, a permission, the operating system.
    Trouble,
}

/// One sentence, a remedy where there is one, and the last lines of the log that tells more.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What can be done about it.
    pub kind: Kind,
    /// What failed, on what, why.
    pub what: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The end of the log of whatever failed.
    pub log: Option<String>,
}

impl Failure {
    pub(crate) fn new(kind: Kind, what: impl Into<String>) -> Failure {
        Failure { kind, what: what.into(), hint: None, log: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn log(mut self, log: impl Into<String>) -> Failure {
        self.log = Some(log.into());
        self
    }

    /// For `map_err` of anything done to a file or directory.
    pub(crate) fn at<'a>(doing: &'a str, path: &'a Path) -> impl FnOnce(io::Error) -> Failure + 'a {
        move |error| {
            let what = format!("cannot {doing} `{}`: {error}", path.display());
            Failure::new(Kind::Trouble, what)
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(log) = &self.log {
            write!(f, "\n\n{}", log.trim_end())?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}
