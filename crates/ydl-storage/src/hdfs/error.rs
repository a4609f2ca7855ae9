//! Errors of HDFS calls.

use std::fmt;
use ydl_os::report::{Exit, Report};

/// Failed HDFS operation.
#[derive(Clone, Debug)]
pub struct HdfsError {
    /// Kind of the failure.
    pub kind: Kind,
    /// One sentence: what failed, on what, why.
    pub what: String,
    /// Suggestion for the user.
    pub hint: Option<String>,
}

/// Kinds of failures, by the reaction they need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// There is no such file or directory.
    NotFound,
    /// There is one already.
    Exists,
    /// Permission denied.
    Denied,
    /// The NameNode takes no changes now.
    SafeMode,
    /// The directory holds all that it may.
    Quota,
    /// No DataNode has room, or none takes writes.
    NoSpace,
    /// Authentication failed: no token or ticket, or an expired one.
    Unauthenticated,
    /// Another writer holds the lease. Unsynced data is lost, and writes fail.
    LeaseLost,
    /// The servers are behind with what was written already; a little later they take more.
    NotReplicated,
    /// No response in time. A retry may succeed.
    Unreachable,
    /// Invalid input or configuration.
    BadInput,
    /// Anything else.
    Other,
}

impl HdfsError {
    pub(super) fn new(kind: Kind, what: impl Into<String>) -> HdfsError {
        HdfsError { kind, what: what.into(), hint: None }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> HdfsError {
        self.hint = Some(hint.into());
        self
    }

    /// Returns true if a retry may succeed without a change to the job.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.kind,
            Kind::Unreachable | Kind::SafeMode | Kind::NoSpace | Kind::NotReplicated
        )
    }
}

impl fmt::Display for HdfsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for HdfsError {}

impl From<HdfsError> for Report {
    fn from(error: HdfsError) -> Report {
        let exit = match error.kind {
            Kind::Unreachable | Kind::SafeMode => Exit::Unreachable,
            Kind::BadInput => Exit::BadInput,
            _ => Exit::Internal,
        };
        let report = Report::new(exit, error.what);
        match error.hint {
            Some(hint) => report.hint(hint),
            None => report,
        }
    }
}
