//! Command lines and specifications of older systems, translated into job files.
//!
//! A command line becomes a job file, which is then handled like any other: checks, messages and behaviour are the same.
//! Flags without a meaning here are accepted with a note.

mod archive;
mod builder;
mod caller;
mod container_runtime;
mod dmlc;
mod dmlc_submit;
mod dmlc_yarn;
pub mod flags;
mod launch;
mod libhdfs;
mod neighbours;
pub mod parser;
mod program;
mod python;
mod setup_script;
mod shipping;
pub mod skein;
pub mod text;
mod yarn_tf;
mod ydl_mx;

pub use builder::JobFileBuilder;
pub use caller::{CallerEnv, Cluster};
use flags::Flag;
use parser::{ParsedArgs, Style};
use ydl_os::report::{Exit, Report};

/// Command line of another system.
#[derive(Debug)]
pub struct CompatCommand {
    /// Names; the first is the canonical one.
    pub names: &'static [&'static str],
    /// One line about it, without a period.
    pub about: &'static str,
    /// Usage line of the help, without the name.
    pub usage: &'static str,
    /// Parsing style.
    pub style: Style,
    /// Its flags, in the order of its help.
    pub flags: &'static [&'static [Flag]],
    /// Implementation.
    pub action: CommandAction,
}

/// Implementation of a command.
#[derive(Clone, Copy, Debug)]
pub enum CommandAction {
    /// Translates the arguments into a job to submit.
    Translate(fn(&mut ParsedArgs, &CallerEnv) -> Result<JobFileBuilder, Report>),
    /// Runs in this process.
    Run(fn(&ParsedArgs) -> Result<Exit, Report>),
}

/// Command lines that become jobs, without those that `ydl` runs itself.
pub const COMMANDS: &[CompatCommand] =
    &[dmlc_submit::COMMAND, dmlc_yarn::COMMAND, launch::COMMAND, ydl_mx::COMMAND, yarn_tf::COMMAND];
