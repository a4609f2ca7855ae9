//! Errors of data transfers.

use crate::hdfs::{HdfsError, Kind};
use std::{io, path::Path};
use ydl_os::{
    reason,
    report::{Exit, Report},
};

/// Failed data transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataError {
    /// One sentence.
    pub what: String,
    /// True if this machine is the cause, so that another one may succeed.
    pub of_node: bool,
    /// Suggestion for the user.
    pub hint: Option<String>,
    pub(super) is_transient: bool,
    /// True if the source was changed, so that it must be listed again.
    pub(super) changed: bool,
    denied: bool,
}

impl DataError {
    /// Returns true if a retry may succeed.
    pub fn is_transient(&self) -> bool {
        self.is_transient
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
    pub fn hint(self, hint: impl Into<String>) -> DataError {
        DataError { hint: Some(hint.into()), ..self }
    }

    /// Returns the error and its hint in one sentence.
    pub fn sentence(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{} ({hint})", self.what),
            None => self.what.clone(),
        }
    }

    /// Creates a permanent error.
    pub fn permanent(what: impl Into<String>) -> DataError {
        DataError {
            what: what.into(),
            of_node: false,
            hint: None,
            is_transient: false,
            changed: false,
            denied: false,
        }
    }

    /// Creates an error for a source that was changed.
    pub(super) fn changed(what: impl Into<String>) -> DataError {
        DataError { changed: true, ..DataError::permanent(what) }
    }

    /// Creates an error of this machine; another machine may succeed.
    pub fn of_this_node(what: impl Into<String>) -> DataError {
        DataError { of_node: true, ..DataError::permanent(what) }
    }

    /// Creates an error for a write to the local disk.
    pub fn local_write(path: &Path, error: &io::Error) -> DataError {
        DataError {
            of_node: true,
            ..DataError::permanent(format!("cannot write `{}`: {}", path.display(), reason(error)))
        }
    }
}

impl From<HdfsError> for DataError {
    fn from(error: HdfsError) -> DataError {
        let is_transient = error.is_transient();
        DataError {
            is_transient,
            of_node: is_transient,
            denied: error.kind == Kind::Denied,
            hint: error.hint,
            ..DataError::permanent(error.what)
        }
    }
}

impl From<Report> for DataError {
    fn from(report: Report) -> DataError {
        let is_transient = report.exit == Exit::Unreachable;
        DataError {
            is_transient,
            of_node: is_transient,
            hint: report.hint,
            ..DataError::permanent(report.what)
        }
    }
}

impl From<DataError> for Report {
    fn from(error: DataError) -> Report {
        let exit = if error.is_transient { Exit::Unreachable } else { Exit::Internal };
        let report = Report::new(exit, error.what);
        match error.hint {
            Some(hint) => report.hint(hint),
            None => report,
        }
    }
}
