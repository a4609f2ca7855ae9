//! Command lines and specifications of older systems, translated into job files.
//!
//! A command line's words become a job file and nothing else: the file then takes the path of every other one, so checks,
//! messages and behaviour are the same. Flags without a meaning here are accepted with a note.

mod archive;
mod command;
mod dmlc;
mod dmlc_submit;
mod dmlc_yarn;
pub mod flags;
mod launch;
mod libhdfs;
mod runtime;
mod script;
pub mod sheet;
pub mod skein;
mod yarn_tf;
mod ydl_mx;

use flags::{Flag, Style, Typed};
pub use sheet::{Cluster, Here, Sheet};
use ydl_os::report::{Exit, Report};

/// A command line of another system.
#[derive(Debug)]
pub struct Door {
    /// Names; the first is the canonical one.
    pub names: &'static [&'static str],
    /// One line about it.
    pub about: &'static str,
    /// Usage line of the help, without the name.
    pub usage: &'static str,
    /// Parsing style.
    pub style: Style,
    /// Its flags, in the order of its help.
    pub flags: &'static [&'static [Flag]],
    /// Target of the command.
    pub leads: Leads,
}

/// Target of a command.
#[derive(Clone, Copy, Debug)]
pub enum Leads {
    /// Submits a job.
    Job(fn(&mut Typed, &Here) -> Result<Sheet, Report>),
    /// Runs in this process.
    Here(fn(&Typed) -> Result<Exit, Report>),
}

/// Command lines that become jobs.
pub const DOORS: &[Door] =
    &[dmlc_submit::DOOR, dmlc_yarn::DOOR, launch::DOOR, ydl_mx::DOOR, yarn_tf::DOOR];
