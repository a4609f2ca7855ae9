//! Errors of data transfers.

use crate::hdfs::{HdfsError, Kind};
use std::{io, path::Path};
use ydl_os::{
    reason,
    report::{Exit, Report},
};

/// Failed data transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// One sentence.
    pub what: String,
    /// True if this machine is the cause, so that another one may succeed.
    pub of_node: bool,
    /// Suggestion for the user.
    pub hint: Option<String>,
    pub(super) may_pass: bool,
    /// True if the source was changed, so that it must be listed again.
    pub(super) changed: bool,
    denied: bool,
}

impl Trouble {
    /// Returns true if a retry may succeed.
    pub fn may_pass(&self) -> bool {
        self.may_pass
    }

    /// Returns true if the source was changed and must be listed again.
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// Returns true if HDFS denied permission.
    pub fn is_denied(&self) -> bool {
        self.denied
    }

    /// Adds a hint for the user.
    pub fn hint(self, hint: impl Into<String>) -> Trouble {
        Trouble { hint: Some(hint.into()), ..self }
    }

    /// Returns the error and its hint in one sentence.
    pub fn sentence(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{} ({hint})", self.what),
            None => self.what.clone(),
        }
    }

    /// Creates a permanent error.
    pub fn lasting(what: impl Into<String>) -> Trouble {
        Trouble {
            what: what.into(),
            of_node: false,
            hint: None,
            may_pass: false,
            changed: false,
            denied: false,
        }
    }

    /// Creates an error for a source that was changed.
    pub(super) fn changed(what: impl Into<String>) -> Trouble {
        Trouble { changed: true, ..Trouble::lasting(what) }
    }

    /// Creates an error of this machine; another machine may succeed.
    pub fn of_node(what: impl Into<String>) -> Trouble {
        Trouble { of_node: true, ..Trouble::lasting(what) }
    }

    /// Creates an error for a write to the local disk.
    pub fn here(path: &Path, error: &io::Error) -> Trouble {
        Trouble {
            of_node: true,
            ..Trouble::lasting(format!("cannot write `{}`: {}", path.display(), reason(error)))
        }
    }
}

impl From<HdfsError> for Trouble {
    fn from(error: HdfsError) -> Trouble {
        let may_pass = error.may_pass();
        Trouble {
            may_pass,
            of_node: may_pass,
            denied: error.kind == Kind::Denied,
            hint: error.hint,
            ..Trouble::lasting(error.what)
        }
    }
}

impl From<Report> for Trouble {
    fn from(report: Report) -> Trouble {
        let may_pass = report.exit == Exit::Unreachable;
        Trouble { may_pass, of_node: may_pass, hint: report.hint, ..Trouble::lasting(report.what) }
    }
}
