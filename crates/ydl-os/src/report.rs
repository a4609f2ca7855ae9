//! What a person is told when something fails, and the code the process ends with.

use std::{fmt, process::ExitCode};

/// How `ydl` ends. A job that failed because of a program ends with that program's own code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The job succeeded, or the command did what it was asked.
    Success,
    /// A program of the job failed: its exit code, or 128 and the signal.
    Program(u8),
    /// What was given is wrong; nothing was touched.
    BadInput,
    /// The job failed for another reason than a program's end.
    JobFailed,
    /// The job was killed.
    JobKilled,
    /// The job or its master cannot be reached.
    Unreachable,
    /// ydl itself failed: a disk, a permission, a bug.
    Trouble,
    /// Interrupted; the job may go on.
    Interrupted,
}

impl Exit {
    /// The number, as documented in `docs/reference/exit-codes.md`.
    pub fn code(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::Program(code) => code.max(1),
            Exit::BadInput => 2,
            Exit::JobFailed => 120,
            Exit::JobKilled => 121,
            Exit::Unreachable => 122,
            Exit::Trouble => 123,
            Exit::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// One sentence (what failed, on what, why), a remedy if there is one, and how to end.
#[derive(Debug)]
pub struct Report {
    /// The sentence: lower case, no full stop, values in backticks.
    pub what: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// How the process ends.
    pub exit: Exit,
}

impl Report {
    /// A failure of that kind.
    pub fn new(exit: Exit, what: impl Into<String>) -> Report {
        Report { what: what.into(), hint: None, exit }
    }

    /// What was given is wrong.
    pub fn bad_input(what: impl Into<String>) -> Report {
        Report::new(Exit::BadInput, what)
    }

    /// ydl itself failed.
    pub fn trouble(what: impl Into<String>) -> Report {
        Report::new(Exit::Trouble, what)
    }

    /// The same with a remedy.
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
