//! Why data is not where it should be.

use crate::hdfs::{HdfsError, Kind};
use std::{io, path::Path};
use ydl_os::{
    reason,
    report::{Exit, Report},
};

/// Why files did not come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// One sentence.
    pub what: String,
    /// Whether it is this machine that fails, so that another may do.
    pub of_node: bool,
    /// What a person can do about it.
    pub hint: Option<String>,
    pub(super) may_pass: bool,
    /// Whether it is because somebody has changed what is to come, so that it is to be listed anew.
    pub(super) changed: bool,
    denied: bool,
}

impl Trouble {
    /// Whether the same may succeed a little later.
    pub fn may_pass(&self) -> bool {
        self.may_pass
    }

    /// Whether it may be had when it is listed anew: somebody has changed it.
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// Whether this user may not, as he is told by HDFS.
    pub fn is_denied(&self) -> bool {
        self.denied
    }

    /// With what a person can do about it.
    pub fn hint(self, hint: impl Into<String>) -> Trouble {
        Trouble { hint: Some(hint.into()), ..self }
    }

    /// What, and what to do about it, in one sentence.
    pub fn sentence(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{} ({hint})", self.what),
            None => self.what.clone(),
        }
    }

    /// It will not go away by itself.
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

    /// Somebody has changed what is to come.
    pub(super) fn changed(what: impl Into<String>) -> Trouble {
        Trouble { changed: true, ..Trouble::lasting(what) }
    }

    /// This machine fails; another may do.
    pub fn of_node(what: impl Into<String>) -> Trouble {
        Trouble { of_node: true, ..Trouble::lasting(what) }
    }

    /// Something on this disk.
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
