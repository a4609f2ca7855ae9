//! What a caller can do about a failure.

use std::fmt;
use ydl_os::report::{Exit, Report};

/// Something that could not be done in HDFS.
#[derive(Clone, Debug)]
pub struct HdfsError {
    /// What a caller can do about it.
    pub kind: Kind,
    /// One sentence: what failed, on what, why.
    pub what: String,
    /// What a person can do about it.
    pub hint: Option<String>,
}

/// Failures, by what can be done about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// There is no such file or directory.
    NotFound,
    /// There is one already.
    Exists,
    /// This user may not.
    Denied,
    /// The NameNode takes no changes now.
    SafeMode,
    /// The directory holds all that it may.
    Quota,
    /// No DataNode has room, or none takes writes.
    NoSpace,
    /// There is no proof of who calls: no token, no ticket, or one that has ended.
    NoProof,
    /// Somebody else has taken the file over; what was not synced is lost, and nothing more can be written.
    LeaseLost,
    /// The servers are behind with what was written already; a little later they take more.
    Behind,
    /// Nobody answered, or not in time. Trying again later may help.
    Unreachable,
    /// What the user or the configuration says makes no sense.
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

    /// Whether the same call may succeed a little later without anybody doing anything to the job.
    pub fn may_pass(&self) -> bool {
        matches!(self.kind, Kind::Unreachable | Kind::SafeMode | Kind::NoSpace | Kind::Behind)
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
            _ => Exit::Trouble,
        };
        let report = Report::new(exit, error.what);
        match error.hint {
            Some(hint) => report.hint(hint),
            None => report,
        }
    }
}
