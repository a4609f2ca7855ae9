//! The table of contents: parse, log, dispatch, exit code.

use clap::Parser;
use std::{
    io::{self, Write},
    panic,
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
};
use ydl::{
    agent,
    cli::{Cli, Command},
    commands, doors, master, show,
};
use ydl_os::report::{Exit, Report};

fn main() -> ExitCode {
    panic::set_hook(Box::new(|about| {
        let what = about.payload_as_str().unwrap_or("for no stated reason");
        let place = about.location().map(|place| format!(" at {place}"));
        let place = place.unwrap_or_default();
        show::tell(format!("error: ydl itself failed: {what}{place} (this is a bug)"));
    }));
    let begin = || doors::enter().unwrap_or_else(|| start(Cli::parse()));
    if let Ok(code) = panic::catch_unwind(panic::AssertUnwindSafe(begin)) {
        return code;
    }
    Exit::Trouble.into()
}

fn start(cli: Cli) -> ExitCode {
    match cli.command {
        Command::Master { dir } => {
            log();
            dir.map_or_else(master::run_in_container, master::run)
        }
        Command::Agent { dir } => {
            log();
            agent::run(dir)
        }
        Command::Shim { socket } => agent::keeper::run(socket.as_deref()),
        _ => match run(cli) {
            Ok(exit) => exit.into(),
            Err(report) => {
                show::tell(report.to_string());
                report.exit.into()
            }
        },
    }
}

/// What master and agent have to say goes to stderr, which their starter leads into a file.
fn log() {
    tracing_subscriber::fmt()
        .with_writer(|| Diary)
        .with_ansi(false)
        .with_max_level(tracing::Level::INFO)
        .init();
}

/// Stderr up to a limit: a job that restarts for a year must not fill the disk with what is said about it. And a disk
/// that is full must not end the job: the subscriber panics where it cannot say that it could not write.
struct Diary;

const DIARY_BYTES_MAX: u64 = 64 << 20;
static DIARY_BYTES: AtomicU64 = AtomicU64::new(0);

impl Write for Diary {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len() as u64;
        if DIARY_BYTES.fetch_add(length, Ordering::Relaxed) < DIARY_BYTES_MAX {
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
        Command::Submit(args) => commands::submit::run(*args, cli.global),
        Command::Ls(args) => commands::ls::run(args, cli.global),
        Command::Status(args) => commands::status::run(args, cli.global),
        Command::Logs(args) => commands::logs::run(args, cli.global),
        Command::Fetch(args) => commands::fetch::run(args, cli.global),
        Command::Kill(args) => commands::kill::run(args, cli.global),
        Command::Scale(args) => commands::scale::run(args, cli.global),
        Command::PortForward(args) => commands::open::run(args, cli.global),
        Command::Board(args) => commands::board::run(args),
        Command::Pack(args) => commands::pack::run(args, cli.global),
        Command::Kv(args) => commands::kv::run(args, cli.global),
        Command::Nodes(args) => commands::nodes::run(args, cli.global),
        Command::Queues => commands::queues::run(cli.global),
        Command::Doctor(args) => commands::doctor::run(args, cli.global),
        Command::Compat(args) => doors::install::run(args, cli.global),
        Command::Completions { shell } => commands::completions::run(shell),
        Command::Master { .. } | Command::Agent { .. } | Command::Shim { .. } => Ok(Exit::BadInput),
    }
}
