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
    /// How it is called; the first is its own name.
    pub names: &'static [&'static str],
    /// One line about it.
    pub about: &'static str,
    /// What follows the name in its help.
    pub usage: &'static str,
    /// How its words are read.
    pub style: Style,
    /// Its flags, in the order of its help.
    pub flags: &'static [&'static [Flag]],
    /// Where it leads.
    pub leads: Leads,
}

/// Where a door leads.
#[derive(Clone, Copy, Debug)]
pub enum Leads {
    /// To a job.
    Job(fn(&mut Typed, &Here) -> Result<Sheet, Report>),
    /// To something that runs here, for as long as this process does.
    Here(fn(&Typed) -> Result<Exit, Report>),
}

/// Command lines that become jobs.
pub const DOORS: &[Door] =
    &[dmlc_submit::DOOR, dmlc_yarn::DOOR, launch::DOOR, ydl_mx::DOOR, yarn_tf::DOOR];
