//! What is wrong with a job file, and where.

use std::{fmt, rc::Rc};

/// Where something was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// In the job file, both counted from 1.
    File {
        /// The line.
        line: usize,
        /// The column, in characters.
        column: usize,
    },
    /// In an argument, shown as it was typed.
    Flag(Rc<str>),
    /// Nowhere in particular.
    Whole,
}

impl Location {
    /// An argument.
    pub fn flag(text: impl Into<Rc<str>>) -> Location {
        Location::Flag(text.into())
    }
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Where.
    pub at: Location,
    /// The sentence.
    pub what: String,
    /// The remedy.
    pub hint: Option<String>,
}

impl Diagnostic {
    /// A mistake at that place.
    pub fn new(at: Location, what: impl Into<String>) -> Diagnostic {
        Diagnostic { at, what: what.into(), hint: None }
    }

    /// The same with a remedy; an empty one is none.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Diagnostic {
        let hint = hint.into();
        self.hint = (!hint.is_empty()).then_some(hint);
        self
    }
}

/// Every mistake of one job, in the order of their places.
#[derive(Debug, PartialEq, Eq)]
pub struct Diagnostics {
    /// The job file as the user named it; empty where the job was given by flags.
    pub file: String,
    /// At least one.
    pub all: Vec<Diagnostic>,
}

impl Diagnostics {
    /// These mistakes, in the order of their places.
    pub fn new(file: impl Into<String>, mut all: Vec<Diagnostic>) -> Diagnostics {
        all.sort_by(|a, b| a.at.cmp(&b.at));
        Diagnostics { file: file.into(), all }
    }

    /// One mistake about the file as a whole.
    pub fn whole(file: impl Into<String>, what: impl Into<String>, hint: &str) -> Diagnostics {
        Diagnostics::new(file, vec![Diagnostic::new(Location::Whole, what).hint(hint)])
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, wrong) in self.all.iter().enumerate() {
            if n > 0 {
                f.write_str("\n\n")?;
            }
            f.write_str("error: ")?;
            match &wrong.at {
                Location::File { line, column } => write!(f, "{}:{line}:{column}: ", self.file)?,
                Location::Flag(text) => write!(f, "{text}: ")?,
                Location::Whole if self.file.is_empty() => {}
                Location::Whole => write!(f, "{}: ", self.file)?,
            }
            f.write_str(&wrong.what)?;
            if let Some(hint) = &wrong.hint {
                write!(f, "\n\nhint: {hint}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}
