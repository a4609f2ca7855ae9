//! `ydl completions`: prints a shell script that completes commands and flags.

use crate::{cli::Cli, terminal};
use clap::CommandFactory;
use clap_complete::Shell;
use ydl_os::report::{Exit, Report};

/// Prints the script.
pub(crate) fn run(shell: Shell) -> Result<Exit, Report> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ydl", &mut script);
    terminal::print(script)?;
    Ok(Exit::Success)
}
