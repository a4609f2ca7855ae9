//! One user program, as the agent sees it: started through a keeper, stopped, waited for.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
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
    self, START_BYTES_MAX, ShimCommand, ShimEvent, ShimExit, StartRequest, WORD_BYTES_MAX,
};
use crate::docker::Container;
use ydl_os::process::{Signal, become_subreaper};
use ydl_os::{children, reason, spawn};

/// How long the keeper may take to start the program, whose file may lie on a slow network.
pub(super) const START_MAX: Duration = Duration::from_secs(60);
/// How long after a kill the keeper may take to say that all is over; then it is killed itself.
const KILL_MAX: Duration = Duration::from_secs(15);
/// How long the keeper may take to leave after its last word.
const LEAVE_MAX: Duration = Duration::from_secs(5);
/// How long to wait for the rest of the output when nobody is left who could write to it.
pub(super) const OUTPUT_MAX: Duration = Duration::from_secs(5);

/// What to run.
#[derive(Clone, Debug)]
pub struct ProgramSpec {
    pub argv: Vec<String>,
    /// The whole environment: nothing is inherited, but in a container what its image has set.
    pub env: BTreeMap<String, String>,
    /// Where it runs several times: what is different for each of its processes.
    pub each: Vec<BTreeMap<String, String>>,
    pub cwd: PathBuf,
    /// This very binary.
    pub shim: PathBuf,
    /// The container it runs in; without one it runs here.
    pub container: Option<Container>,
    /// Between SIGTERM and SIGKILL.
    pub grace: Duration,
}

/// How a program ended. Told when none of its processes is left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// The largest resident memory of any one of its processes; 0 if the keeper was lost.
    pub peak_memory_bytes: u64,
    pub cpu_ms: u64,
    pub stderr_tail: String,
    /// Output that could not be written.
    pub dropped_bytes: u64,
    /// Somebody killed the keeper, so how the program itself ended is unknown: it was killed.
    pub shim_lost: bool,
    /// The kernel ended a process of its container, because the container had no memory left.
    #[serde(default)]
    pub memory_short: bool,
}

/// Why there is no program.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The program itself cannot be run: it is the user's to repair.
    Program(ExecError),
    /// The keeper did not come up: it is this node that fails.
    Shim { what: &'static str, error: io::Error },
}

impl StartError {
    pub fn hint(&self) -> Option<&str> {
        match self {
            StartError::Program(refusal) => refusal.hint.as_deref(),
            StartError::Shim { .. } => None,
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Program(refusal) => refusal.fmt(out),
            StartError::Shim { what, error } => {
                write!(out, "cannot {what} the program's shim: {}", reason(error))
            }
        }
    }
}

impl std::error::Error for StartError {}

/// A running program. When it is dropped, everything the program started is killed.
#[derive(Debug)]
pub struct Program {
    pid: u32,
    outside: Option<u32>,
    grace: Duration,
    words: mpsc::Sender<ShimCommand>,
    exit: watch::Receiver<Option<Exit>>,
    output: CaptureView,
}

impl Program {
    /// Returns when the program runs. If the returned future is dropped before, nothing runs.
    pub async fn start(spec: ProgramSpec, output: OutputSpec) -> Result<Program, StartError> {
        let broken = |what| move |error| StartError::Shim { what, error };
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
        // Before anything is started: it is too late for orphans that have gone elsewhere.
        become_subreaper().map_err(broken("prepare"))?;
        let (capture, stdout, stderr) = Capture::start(output).map_err(broken("prepare"))?;
        let (begun, capture) = match &spec.container {
            Some(container) => container_shim::start(container, capture, stdout, stderr).await?,
            None => {
                let begun = here(&spec.shim, stdout, stderr);
                (begun.map_err(|(what, error)| broken(what)(error))?, capture)
            }
        };
        let ShimConnection { socket, command: mut shim, pid: outside } = begun;
        let (mut ears, mut mouth) = socket.into_split();
        let exchange = async {
            mouth.write_all(&shim_protocol::frame(&start, START_BYTES_MAX)?).await?;
            read_report(&mut ears).await
        };
        let report = timeout(START_MAX, exchange).await;
        let report = match report.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(report) => report,
            Err(error) => {
                // It may have started the program, and what that has started, before it was lost.
                let _ = shim.start_kill();
                let _ = timeout(LEAVE_MAX, shim.wait()).await;
                sweep().await;
                return Err(broken("talk to")(error));
            }
        };
        let pid = match report {
            ShimEvent::Started { pid } => pid,
            ShimEvent::Failed(refusal) => {
                // It leaves by itself; waited for, it leaves nothing behind.
                let _ = timeout(LEAVE_MAX, shim.wait()).await;
                return Err(StartError::Program(refusal));
            }
            ShimEvent::Exited(_) => {
                return Err(broken("talk to")(io::ErrorKind::InvalidData.into()));
            }
        };
        let (words, told) = mpsc::channel(8);
        let (exited, exit) = watch::channel(None);
        let output = capture.view();
        let tender = ShimClient { shim, ears, mouth, told, capture, container: spec.container };
        tokio::spawn(async move {
            let exit = tender.tend().await;
            // The program may have been dropped: then nobody asks.
            let _ = exited.send(Some(exit));
        });
        Ok(Program { pid, outside, grace: spec.grace, words, exit, output })
    }

    /// Its process, or the first of them; in a container, as it is called there.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The keeper's process where it is not below this one: in a container, seen from outside.
    pub fn outside(&self) -> Option<u32> {
        self.outside
    }

    /// How the program ended; the same each time it is asked. May be dropped and asked again.
    pub async fn wait(&mut self) -> Exit {
        match self.exit.wait_for(Option::is_some).await {
            Ok(exit) => exit.clone().unwrap_or_default(),
            // The runtime is going down, and the program with it.
            Err(_) => lost(),
        }
    }

    /// What has become of the output so far: whether it can be written, how much was dropped.
    pub fn output(&self) -> Captured {
        self.output.so_far()
    }

    /// Asks the program to stop: SIGTERM to its group.
    pub fn terminate(&self) {
        self.say(ShimCommand::Terminate);
    }

    /// SIGKILL to everything the program has started.
    pub fn kill(&self) {
        self.say(ShimCommand::Kill);
    }

    /// Asks the program to stop and kills it after the grace period it was started with.
    pub async fn stop(&mut self) -> Exit {
        self.stop_within(self.grace).await
    }

    /// As [`stop`](Self::stop), with another grace period. Dropped half-way, it has no further effect
    /// than what it has already said.
    pub async fn stop_within(&mut self, grace: Duration) -> Exit {
        self.terminate();
        if let Ok(exit) = timeout(grace, self.wait()).await {
            return exit;
        }
        self.kill();
        self.wait().await
    }

    fn say(&self, word: ShimCommand) {
        // Full: as much was said already, and not yet heard. Closed: there is nothing to stop.
        let _ = self.words.try_send(word);
    }
}

/// Serves one program from its start to its end, so that whoever asks may stop asking.
struct ShimClient {
    shim: Child,
    ears: OwnedReadHalf,
    mouth: OwnedWriteHalf,
    told: mpsc::Receiver<ShimCommand>,
    capture: Capture,
    container: Option<Container>,
}

impl ShimClient {
    async fn tend(mut self) -> Exit {
        let ended = self.listen().await;
        // Not before it has left are the pipes closed. It may have been killed, or hang.
        let left = timeout(LEAVE_MAX, self.shim.wait()).await;
        if left.is_err() {
            let _ = self.shim.start_kill();
            let _ = timeout(LEAVE_MAX, self.shim.wait()).await;
        }
        // The engine removes what has ended in order.
        if let Some(container) = &self.container
            && (ended.is_err() || !left.is_ok_and(|left| left.is_ok_and(|status| status.success())))
        {
            container.remove().await;
        }
        let exit = match ended {
            Ok(exited) => {
                if exited.left > 0 {
                    tracing::warn!("{} processes of the program outlive SIGKILL", exited.left);
                }
                Exit {
                    code: exited.code,
                    signal: exited.signal,
                    peak_memory_bytes: exited.peak_rss_bytes,
                    cpu_ms: exited.user_ms + exited.system_ms,
                    memory_short: exited.memory_short,
                    ..Exit::default()
                }
            }
            Err(error) => {
                tracing::warn!("the program's shim is lost: {}", reason(&error));
                sweep().await;
                lost()
            }
        };
        let captured = self.capture.finish(OUTPUT_MAX).await;
        Exit { stderr_tail: captured.stderr_tail, dropped_bytes: captured.dropped_bytes, ..exit }
    }

    /// Hands words on until the keeper says that the program has ended, or says no more.
    async fn listen(&mut self) -> io::Result<ShimExit> {
        let mut report = pin!(read_report(&mut self.ears));
        let mut deadline: Option<Instant> = None;
        let mut owned = true;
        let contained = self.container.is_some();
        loop {
            tokio::select! {
                report = &mut report => return match report? {
                    ShimEvent::Exited(exited) => Ok(exited),
                    other => {
                        let sentence = format!("it said {other:?}");
                        Err(io::Error::new(io::ErrorKind::InvalidData, sentence))
                    }
                },
                word = self.told.recv(), if owned => match word {
                    Some(word) => {
                        if word == ShimCommand::Kill {
                            deadline.get_or_insert(Instant::now() + KILL_MAX);
                        }
                        let frame = shim_protocol::frame(&word, WORD_BYTES_MAX)?;
                        // A keeper that is gone says so by the end of its side of the socket.
                        let _ = timeout(LEAVE_MAX, self.mouth.write_all(&frame)).await;
                    }
                    None => {
                        // The program was dropped; the end of our side tells the keeper to kill.
                        owned = false;
                        deadline.get_or_insert(Instant::now() + KILL_MAX);
                        let _ = self.mouth.shutdown().await;
                    }
                },
                // A docker command that is killed takes the output with it. What its keeper has said was said before.
                _ = self.shim.wait(), if contained && deadline.is_none() => {
                    deadline = Some(Instant::now() + LEAVE_MAX);
                }
                () = until(deadline) => {
                    let _ = self.shim.start_kill();
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
    }
}

/// Starts the keeper of a program that runs here.
fn here(
    shim: &Path,
    stdout: io::PipeWriter,
    stderr: io::PipeWriter,
) -> Result<ShimConnection, (&'static str, io::Error)> {
    let prepare = |error| ("prepare", error);
    let (socket, theirs) = UnixStream::pair().map_err(prepare)?;
    let theirs = theirs.into_std().and_then(|theirs| {
        theirs.set_nonblocking(false)?;
        Ok(std::os::fd::OwnedFd::from(theirs))
    });
    let mut command = Command::new(shim);
    command
        .arg("shim")
        .env_clear()
        .stdin(Stdio::from(theirs.map_err(prepare)?))
        .stdout(stdout)
        .stderr(stderr);
    // A signal to the agent's group must not take the keeper, which has to clean up after it.
    spawn::own_session(command.as_std_mut());
    // The command goes with this function: it holds the other ends of socket and pipes, which must close when the keeper
    // does.
    let command = children::spawn(&mut command).map_err(|error| ("start", error))?;
    Ok(ShimConnection { socket, command, pid: None })
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Kills what the keeper has left behind. It all came to this process, which is a subreaper.
async fn sweep() {
    let deadline = Instant::now() + LEAVE_MAX;
    loop {
        match children::sweep() {
            Ok(0) => return,
            Ok(left) if Instant::now() > deadline => {
                tracing::warn!("{left} processes of the program outlive SIGKILL");
                return;
            }
            Ok(_) => sleep(Duration::from_millis(5)).await,
            Err(error) => {
                tracing::warn!("cannot look for what is left of it: {}", reason(&error));
                return;
            }
        }
    }
}

fn lost() -> Exit {
    Exit { signal: Some(Signal::KILL.as_raw()), shim_lost: true, ..Exit::default() }
}

async fn read_report(ears: &mut OwnedReadHalf) -> io::Result<ShimEvent> {
    let mut head = [0; 4];
    ears.read_exact(&mut head).await?;
    let mut body = vec![0; shim_protocol::length(head, WORD_BYTES_MAX)?];
    ears.read_exact(&mut body).await?;
    shim_protocol::message(&body)
}
