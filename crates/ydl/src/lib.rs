//! Runtime of ydl: one binary that is client, master and agent.
//!
//! Each folder is a module; its `mod.rs` describes it. Public is what the binary and the tests use.

pub mod agent;
pub mod backend;
mod cli;
pub mod client;
mod commands;
mod compat;
mod docker;
mod gpus;
pub mod logs;
pub mod master;
mod terminal;

pub use cli::reference as command_reference;
pub use compat::all as compat_commands;

use clap::Parser;
use cli::{Cli, CliCommand};
use std::{
    io::{self, Write},
    panic,
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
};
use ydl_os::report::{Exit, Report};

/// Parses the arguments, dispatches the command and returns the exit code.
pub fn main() -> ExitCode {
    panic::set_hook(Box::new(|panic| {
        let reason = panic.payload_as_str().unwrap_or("unknown panic");
        let location = panic.location().map(|location| format!(" at {location}"));
        let location = location.unwrap_or_default();
        terminal::message(format!("error: ydl itself failed: {reason}{location} (this is a bug)"));
    }));
    let dispatch = || compat::run_if_named().unwrap_or_else(|| start(Cli::parse()));
    if let Ok(code) = panic::catch_unwind(panic::AssertUnwindSafe(dispatch)) {
        return code;
    }
    Exit::Internal.into()
}

fn start(cli: Cli) -> ExitCode {
    match cli.command {
        CliCommand::Master { dir } => {
            init_logging();
            dir.map_or_else(master::run_in_container, master::run)
        }
        CliCommand::Agent { dir, container_logs } => {
            init_logging();
            agent::run(dir, container_logs)
        }
        CliCommand::Shim { socket } => agent::shim::run(socket.as_deref()),
        _ => match run(cli) {
            Ok(exit) => exit.into(),
            Err(report) => {
                terminal::message(report.to_string());
                report.exit.into()
            }
        },
    }
}

/// Sends the log of a master, an agent or a gateway to stderr, which the parent process redirects to a file.
fn init_logging() {
    tracing_subscriber::fmt()
        .with_writer(|| CappedStderr)
        .with_ansi(false)
        .with_max_level(tracing::Level::INFO)
        .init();
}

/// Stderr up to a limit, so that a job that restarts for a year does not fill the disk with its log. Write errors are
/// dropped: the subscriber panics when it cannot report one, and a full disk must not end the job.
struct CappedStderr;

const STDERR_BYTES_MAX: u64 = 64 << 20;
static STDERR_BYTES: AtomicU64 = AtomicU64::new(0);

impl Write for CappedStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len() as u64;
        if STDERR_BYTES.fetch_add(length, Ordering::Relaxed) < STDERR_BYTES_MAX {
            let _ = io::stderr().write_all(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn run(cli: Cli) -> Result<Exit, Report> {
    match cli.command {
        CliCommand::Submit(args) => commands::submit::run(*args, cli.global),
        CliCommand::Ls(args) => commands::ls::run(args, cli.global),
        CliCommand::Status(args) => commands::status::run(args, cli.global),
        CliCommand::Logs(args) => commands::logs::run(args, cli.global),
        CliCommand::Fetch(args) => commands::fetch::run(args, cli.global),
        CliCommand::Kill(args) => commands::kill::run(args, cli.global),
        CliCommand::Scale(args) => commands::scale::run(args, cli.global),
        CliCommand::PortForward(args) => commands::port_forward::run(args, cli.global),
        CliCommand::Gateway(args) => {
            init_logging();
            commands::gateway::run(args, cli.global)
        }
        CliCommand::Board(args) => commands::tensorboard::run(args),
        CliCommand::Pack(args) => commands::pack::run(args, cli.global),
        CliCommand::Kv(args) => commands::kv::run(args, cli.global),
        CliCommand::MasterAccess { job, dir } => {
            commands::master_access::run(&job, &dir, cli.global)
        }
        CliCommand::PythonPackage { dir } => commands::python_package::run(&dir),
        CliCommand::Nodes(args) => commands::nodes::run(args, cli.global),
        CliCommand::Queues => commands::queues::run(cli.global),
        CliCommand::Doctor(args) => commands::doctor::run(args, cli.global),
        CliCommand::Compat(args) => compat::install::run(args, cli.global),
        CliCommand::Completions { shell } => commands::completions::run(shell),
        CliCommand::Master { .. } | CliCommand::Agent { .. } | CliCommand::Shim { .. } => {
            Ok(Exit::BadInput)
        }
    }
}
