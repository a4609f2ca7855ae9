//! Errors in a job file and their locations.

use std::{fmt, rc::Rc};

/// Location of a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// In the job file; line and column start at 1.
    File {
        /// Line.
        line: usize,
        /// Column, in characters.
        column: usize,
    },
    /// In an argument, as typed.
    Flag(Rc<str>),
    /// In the job as a whole.
    Whole,
}

impl Location {
    /// Creates the location of an argument.
    pub fn flag(text: impl Into<Rc<str>>) -> Location {
        Location::Flag(text.into())
    }
}

/// Error at a location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Location.
    pub at: Location,
    /// Message.
    pub what: String,
    /// Hint.
    pub hint: Option<String>,
}

impl Diagnostic {
    /// Creates an error without a hint.
    pub fn new(at: Location, what: impl Into<String>) -> Diagnostic {
        Diagnostic { at, what: what.into(), hint: None }
    }

    /// Sets the hint; an empty one is ignored.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Diagnostic {
        let hint = hint.into();
        self.hint = (!hint.is_empty()).then_some(hint);
        self
    }
}

/// All errors of a job, ordered by location.
#[derive(Debug, PartialEq, Eq)]
pub struct Diagnostics {
    /// Job file as named by the user; empty for a job from flags.
    pub file: String,
    /// Errors, at least one.
    pub all: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Sorts the errors by location.
    pub fn new(file: impl Into<String>, mut all: Vec<Diagnostic>) -> Diagnostics {
        all.sort_by(|a, b| a.at.cmp(&b.at));
        Diagnostics { file: file.into(), all }
    }

    /// Creates an error about the file as a whole.
    pub(crate) fn of_file(
        file: impl Into<String>,
        what: impl Into<String>,
        hint: &str,
    ) -> Diagnostics {
        Diagnostics::new(file, vec![Diagnostic::new(Location::Whole, what).hint(hint)])
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, diagnostic) in self.all.iter().enumerate() {
            if n > 0 {
                f.write_str("\n\n")?;
            }
            f.write_str("error: ")?;
            match &diagnostic.at {
                Location::File { line, column } => write!(f, "{}:{line}:{column}: ", self.file)?,
                Location::Flag(text) => write!(f, "{text}: ")?,
                Location::Whole if self.file.is_empty() => {}
                Location::Whole => write!(f, "{}: ", self.file)?,
            }
            f.write_str(&diagnostic.what)?;
            if let Some(hint) = &diagnostic.hint {
                write!(f, "\n\nhint: {hint}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}
