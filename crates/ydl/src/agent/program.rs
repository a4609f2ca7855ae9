//! A user program as the agent sees it: started through a shim, stopped, waited for.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::container_shim::{self, ShimConnection};
use super::exec::ExecError;
use super::output::{Capture, CaptureView, Captured, OutputSpec};
use super::shim_protocol::{
    self, FRAME_BYTES_MAX, START_BYTES_MAX, ShimCommand, ShimEvent, ShimExit, StartRequest,
};
use crate::docker::Container;
use ydl_os::process::{Signal, become_subreaper};
use ydl_os::{children, reason, spawn};

/// Timeout of the program's start by the shim, whose file may be on a slow network.
pub(super) const START_MAX: Duration = Duration::from_secs(60);
/// Timeout of the shim's exit report after a kill; then the shim is killed itself.
const KILL_MAX: Duration = Duration::from_secs(15);
/// Timeout of the shim's exit after its last event.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of the remaining output after the last process has exited.
pub(super) const OUTPUT_MAX: Duration = Duration::from_secs(5);

/// Program to run.
#[derive(Clone, Debug)]
pub struct ProgramSpec {
    pub argv: Vec<String>,
    /// Complete environment: nothing is inherited, except the image's variables in a container.
    pub env: BTreeMap<String, String>,
    /// Additional variables of each process, if the program runs several times.
    pub each: Vec<BTreeMap<String, String>>,
    pub cwd: PathBuf,
    /// Path of this binary.
    pub shim: PathBuf,
    /// Container to run in; none to run here.
    pub container: Option<Container>,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
}

/// Reason why a program did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The program cannot be executed: the user's error.
    Program(ExecError),
    /// The shim did not start: the node's error.
    Shim { what: &'static str, error: io::Error },
}

impl StartError {
    pub fn hint(&self) -> Option<&str> {
        match self {
            StartError::Program(error) => error.hint.as_deref(),
            StartError::Shim { .. } => None,
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Program(error) => error.fmt(out),
            StartError::Shim { what, error } => {
                write!(out, "cannot {what} the program's shim: {}", reason(error))
            }
        }
    }
}

impl std::error::Error for StartError {}

/// A running program. Dropping it kills all of the program's processes.
#[derive(Debug)]
pub struct Program {
    pid: u32,
    shim_host_pid: Option<u32>,
    grace: Duration,
    commands: mpsc::Sender<ShimCommand>,
    exit: watch::Receiver<Option<ShimExit>>,
    output: CaptureView,
}

impl Program {
    /// Returns when the program runs. If the future is dropped before, nothing runs.
    pub async fn start(spec: ProgramSpec, output: OutputSpec) -> Result<Program, StartError> {
        let shim_error = |what| move |error| StartError::Shim { what, error };
        let start = StartRequest {
            argv: spec.argv,
            env: spec.env,
            cwd: spec.cwd.into_os_string().into_string().map_err(|cwd| {
                let sentence = format!("the directory `{}` is not UTF-8", cwd.display());
                StartError::Program(ExecError { errno: 0, sentence, hint: None })
            })?,
            inherit: spec.container.is_some(),
            each: spec.each,
            grace_ms: u64::try_from(spec.grace.as_millis()).unwrap_or(u64::MAX),
        };
        // Before the start: orphans cannot be adopted later.
        become_subreaper().map_err(shim_error("prepare"))?;
        let (capture, stdout, stderr) = Capture::start(output).map_err(shim_error("prepare"))?;
        let (connection, capture) = match &spec.container {
            Some(container) => container_shim::start(container, capture, stdout, stderr).await?,
            None => {
                let connection = start_local(&spec.shim, stdout, stderr);
                (connection.map_err(|(what, error)| shim_error(what)(error))?, capture)
            }
        };
        let ShimConnection { socket, process: mut shim, pid: shim_host_pid } = connection;
        let (mut reader, mut writer) = socket.into_split();
        let exchange = async {
            writer.write_all(&shim_protocol::frame(&start, START_BYTES_MAX)?).await?;
            read_report(&mut reader).await
        };
        let report = timeout(START_MAX, exchange).await;
        let report = match report.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(report) => report,
            Err(error) => {
                // The shim may have started the program before it was lost.
                let _ = shim.start_kill();
                let _ = timeout(EXIT_TIMEOUT, shim.wait()).await;
                sweep().await;
                return Err(shim_error("talk to")(error));
            }
        };
        let pid = match report {
            ShimEvent::Started { pid } => pid,
            ShimEvent::Failed(error) => {
                // The shim exits by itself; waiting reaps it.
                let _ = timeout(EXIT_TIMEOUT, shim.wait()).await;
                return Err(StartError::Program(error));
            }
            ShimEvent::Exited(_) => {
                return Err(shim_error("talk to")(io::ErrorKind::InvalidData.into()));
            }
        };
        let (commands, commands_rx) = mpsc::channel(8);
        let (exited, exit) = watch::channel(None);
        let output = capture.view();
        let client =
            ShimClient { shim, reader, writer, commands_rx, capture, container: spec.container };
        tokio::spawn(async move {
            let exit = client.run().await;
            // The receiver is gone if the program was dropped.
            let _ = exited.send(Some(exit));
        });
        Ok(Program { pid, shim_host_pid, grace: spec.grace, commands, exit, output })
    }

    /// Returns the pid of the first process; in a container, as seen inside.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the pid of the shim if it is not a descendant of this process: in a container, as seen on the host.
    pub fn shim_host_pid(&self) -> Option<u32> {
        self.shim_host_pid
    }

    /// Waits for the exit. Repeatable and cancel-safe.
    pub async fn wait(&mut self) -> ShimExit {
        match self.exit.wait_for(Option::is_some).await {
            Ok(exit) => exit.clone().unwrap_or_default(),
            // The runtime is shutting down, and the program with it.
            Err(_) => lost_shim_exit(),
        }
    }

    /// Returns the state of the output capture.
    pub fn output(&self) -> Captured {
        self.output.so_far()
    }

    /// Sends SIGTERM to the program's groups.
    pub fn terminate(&self) {
        self.send_command(ShimCommand::Terminate);
    }

    /// Sends SIGKILL to all processes of the program.
    pub fn kill(&self) {
        self.send_command(ShimCommand::Kill);
    }

    /// Stops the program; kills it after the grace period it was started with.
    pub async fn stop(&mut self) -> ShimExit {
        self.stop_within(self.grace).await
    }

    /// Like [`stop`](Self::stop), with another grace period. Dropping the future cancels only the steps not taken yet.
    pub async fn stop_within(&mut self, grace: Duration) -> ShimExit {
        self.terminate();
        if let Ok(exit) = timeout(grace, self.wait()).await {
            return exit;
        }
        self.kill();
        self.wait().await
    }

    fn send_command(&self, command: ShimCommand) {
        // Full: the same commands are already queued. Closed: the program has exited.
        let _ = self.commands.try_send(command);
    }
}

/// Client of one shim. Runs from start to exit, so that callers may stop waiting.
struct ShimClient {
    shim: Child,
    reader: OwnedReadHalf,
    writer: OwnedWriteHalf,
    commands_rx: mpsc::Receiver<ShimCommand>,
    capture: Capture,
    container: Option<Container>,
}

impl ShimClient {
    async fn run(mut self) -> ShimExit {
        let ended = self.wait_for_exit().await;
        // The pipes close when the shim exits. It may have been killed, or hang.
        let exit_status = timeout(EXIT_TIMEOUT, self.shim.wait()).await;
        if exit_status.is_err() {
            let _ = self.shim.start_kill();
            let _ = timeout(EXIT_TIMEOUT, self.shim.wait()).await;
        }
        // The engine removes containers that exited normally.
        if let Some(container) = &self.container
            && (ended.is_err()
                || !exit_status.is_ok_and(|status| status.is_ok_and(|status| status.success())))
        {
            container.remove().await;
        }
        let exit = match ended {
            Ok(exited) => {
                if exited.survivors > 0 {
                    tracing::warn!(
                        "{} processes of the program survived SIGKILL",
                        exited.survivors
                    );
                }
                exited
            }
            Err(error) => {
                tracing::warn!("lost the connection to the program's shim: {}", reason(&error));
                sweep().await;
                lost_shim_exit()
            }
        };
        let captured = self.capture.finish(OUTPUT_MAX).await;
        ShimExit {
            stderr_tail: captured.stderr_tail,
            dropped_bytes: captured.dropped_bytes,
            ..exit
        }
    }

    /// Forwards commands until the shim reports the exit, or the connection ends.
    async fn wait_for_exit(&mut self) -> io::Result<ShimExit> {
        let mut report = pin!(read_report(&mut self.reader));
        let mut deadline: Option<Instant> = None;
        let mut is_owned = true;
        let in_container = self.container.is_some();
        loop {
            tokio::select! {
                report = &mut report => return match report? {
                    ShimEvent::Exited(exited) => Ok(exited),
                    other => {
                        let sentence = format!("unexpected event {other:?}");
                        Err(io::Error::new(io::ErrorKind::InvalidData, sentence))
                    }
                },
                command = self.commands_rx.recv(), if is_owned => match command {
                    Some(command) => {
                        if command == ShimCommand::Kill {
                            deadline.get_or_insert(Instant::now() + KILL_MAX);
                        }
                        let frame = shim_protocol::frame(&command, FRAME_BYTES_MAX)?;
                        // If the shim has exited, its side of the socket ends.
                        let _ = timeout(EXIT_TIMEOUT, self.writer.write_all(&frame)).await;
                    }
                    None => {
                        // The program was dropped; closing our side tells the shim to kill.
                        is_owned = false;
                        deadline.get_or_insert(Instant::now() + KILL_MAX);
                        let _ = self.writer.shutdown().await;
                    }
                },
                // A killed docker command takes the output with it. Events of its shim arrived before.
                _ = self.shim.wait(), if in_container && deadline.is_none() => {
                    deadline = Some(Instant::now() + EXIT_TIMEOUT);
                }
                () = sleep_until_some(deadline) => {
                    let _ = self.shim.start_kill();
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
    }
}

/// Starts the shim of a program that runs on this machine.
fn start_local(
    shim: &Path,
    stdout: io::PipeWriter,
    stderr: io::PipeWriter,
) -> Result<ShimConnection, (&'static str, io::Error)> {
    let prepare = |error| ("prepare", error);
    let (socket, shim_end) = UnixStream::pair().map_err(prepare)?;
    let shim_end = shim_end.into_std().and_then(|shim_end| {
        shim_end.set_nonblocking(false)?;
        Ok(std::os::fd::OwnedFd::from(shim_end))
    });
    let mut command = Command::new(shim);
    command
        .arg("shim")
        .env_clear()
        .stdin(Stdio::from(shim_end.map_err(prepare)?))
        .stdout(stdout)
        .stderr(stderr);
    // Keeps signals to the agent's group away from the shim, which has to clean up after it.
    spawn::own_session(command.as_std_mut());
    // The command is dropped here: it holds the other ends of socket and pipes, which must close when the shim exits.
    let process = children::spawn(&mut command).map_err(|error| ("start", error))?;
    Ok(ShimConnection { socket, process, pid: None })
}

async fn sleep_until_some(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Kills the orphans of a lost shim, which were adopted by this process as a subreaper.
async fn sweep() {
    let deadline = Instant::now() + EXIT_TIMEOUT;
    loop {
        match children::sweep() {
            Ok(0) => return,
            Ok(survivors) if Instant::now() > deadline => {
                tracing::warn!("{survivors} processes of the program survived SIGKILL");
                return;
            }
            Ok(_) => sleep(Duration::from_millis(5)).await,
            Err(error) => {
                tracing::warn!("cannot find the program's remaining processes: {}", reason(&error));
                return;
            }
        }
    }
}

fn lost_shim_exit() -> ShimExit {
    ShimExit { signal: Some(Signal::KILL.as_raw()), ..ShimExit::default() }
}

async fn read_report(reader: &mut OwnedReadHalf) -> io::Result<ShimEvent> {
    let mut head = [0; 4];
    reader.read_exact(&mut head).await?;
    let mut body = vec![0; shim_protocol::length(head, FRAME_BYTES_MAX)?];
    reader.read_exact(&mut body).await?;
    shim_protocol::message(&body)
}
