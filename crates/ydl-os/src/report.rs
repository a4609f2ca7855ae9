//! Failure reports to the user, and exit codes.

use std::{fmt, process::ExitCode};

/// Exit status of the `ydl` process. A job that failed because of a program exits with that program's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The job succeeded, or the command completed.
    Success,
    /// A program of the job failed: its exit code, or 128 plus the signal.
    Program(u8),
    /// Invalid input; nothing was touched.
    BadInput,
    /// The job failed for a reason other than a program's exit.
    JobFailed,
    /// The job was killed.
    JobKilled,
    /// The job or its master cannot be reached.
    Unreachable,
    /// Internal error: a disk, a permission, a bug.
    Internal,
    /// Interrupted; the job may continue.
    Interrupted,
}

impl Exit {
    /// Number as documented in `docs/reference/exit-codes.md`.
    pub fn code(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::Program(code) => code.max(1),
            Exit::BadInput => 2,
            Exit::JobFailed => 120,
            Exit::JobKilled => 121,
            Exit::Unreachable => 122,
            Exit::Internal => 123,
            Exit::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// Failure as shown to the user: a message (what failed, on what, why), an optional hint, and the exit status.
#[derive(Debug)]
pub struct Report {
    /// Message: lower case, no full stop, values in backticks.
    pub what: String,
    /// Remedy.
    pub hint: Option<String>,
    /// Exit status of the process.
    pub exit: Exit,
}

impl Report {
    /// Creates a report.
    pub fn new(exit: Exit, what: impl Into<String>) -> Report {
        Report { what: what.into(), hint: None, exit }
    }

    /// Invalid input.
    pub fn bad_input(what: impl Into<String>) -> Report {
        Report::new(Exit::BadInput, what)
    }

    /// Internal error.
    pub fn internal(what: impl Into<String>) -> Report {
        Report::new(Exit::Internal, what)
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Report {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        if let Some(hint) = &self.hint {
            write!(f, "\n\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Report {}
