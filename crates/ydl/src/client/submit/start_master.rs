//! Starts the master of a local job in its own session, so that it outlives the terminal.

use serde::Deserialize;
use std::{fs::File, io, process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};
use ydl_os::{
    process::Identity,
    reason,
    report::{Exit, Report},
    spawn,
};
use ydl_proto::{
    files::{JobDir, MasterAddress},
    version::from_json,
};

/// Maximum time for a master to print its address.
const READY_MAX: Duration = Duration::from_secs(10);
/// Maximum length of a master's first line.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// First line of a master's output.
#[derive(Debug, Deserialize)]
struct ReadyMessage {
    address: Option<String>,
    error: Option<String>,
    hint: Option<String>,
}

/// Starts the master of a job and waits until it listens.
pub(crate) async fn start_master(dir: &JobDir) -> Result<(Child, MasterAddress), Report> {
    let failed = |error: io::Error| {
        Report::internal(format!("cannot start the job's master: {}", reason(&error)))
    };
    let log = File::create(dir.master_log()).map_err(failed)?;
    let binary = std::env::current_exe().map_err(failed)?;
    let mut command = std::process::Command::new(binary);
    command
        .arg("master")
        .arg(dir.path())
        // Otherwise the file system of the working directory could not be unmounted while the job runs.
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log);
    spawn::own_session(&mut command);
    let mut child = Command::from(command).spawn().map_err(failed)?;
    let Some(stdout) = child.stdout.take() else {
        return Err(Report::internal("the job's master has no stdout"));
    };
    let mut line = String::new();
    let mut reader = BufReader::new(stdout.take(LINE_BYTES_MAX));
    let message = match timeout(READY_MAX, reader.read_line(&mut line)).await {
        Ok(Ok(_)) => from_json::<ReadyMessage>(line.as_bytes()).ok(),
        Ok(Err(_)) => None,
        Err(_) => {
            // Without a client, the master would keep running.
            let _ = child.start_kill();
            let what = format!("the job's master was not ready after {}s", READY_MAX.as_secs());
            return Err(Report::internal(what).hint(log_hint(dir)));
        }
    };
    match message {
        Some(ReadyMessage { address: Some(address), .. }) => {
            let process = child.id().and_then(Identity::of);
            let address = MasterAddress {
                address,
                attempt: 1,
                pid: process.map_or(0, |process| process.pid),
                pid_started: process.map_or(0, |process| process.started),
            };
            Ok((child, address))
        }
        Some(ReadyMessage { error: Some(error), hint, .. }) => {
            let report = Report::new(Exit::Internal, error);
            Err(report.hint(hint.unwrap_or_else(|| log_hint(dir))))
        }
        _ => {
            let what = "the job's master exited before it was ready";
            Err(Report::internal(what).hint(log_hint(dir)))
        }
    }
}

fn log_hint(dir: &JobDir) -> String {
    format!("see its log in `{}`", dir.master_log().display())
}
