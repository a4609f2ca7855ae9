//! Daemon processes: start, signal, wait, logs.

use crate::{
    error::{Error, ErrorKind},
    probe, tool,
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    net::SocketAddr,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Timeout of a daemon's exit after a signal.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of bytes read from the end of a log.
const LOG_MAX: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct Daemon {
    pub name: String,
    /// Listens once the daemon accepts requests.
    pub address: SocketAddr,
    /// Its command; runs again on every restart.
    command: Mutex<Command>,
    child: Mutex<Option<Child>>,
    /// Set when this crate stopped the daemon, so that its exit is no error.
    stopped: AtomicBool,
    logs: PathBuf,
}

impl Daemon {
    pub(crate) fn new(name: &str, address: SocketAddr, command: Command, logs: &Path) -> Daemon {
        Daemon {
            name: name.to_owned(),
            address,
            command: Mutex::new(command),
            child: Mutex::new(None),
            stopped: AtomicBool::new(false),
            logs: logs.to_path_buf(),
        }
    }

    /// Starts the daemon unless it runs, without waiting for it to listen.
    pub(crate) fn spawn(&self) -> Result<(), Error> {
        let mut child = lock(&self.child);
        if self.exit_status(&mut child).is_none() && child.is_some() {
            return Ok(());
        }
        let out = self.logs.join(format!("{}.out", self.name));
        let open = || File::options().create(true).append(true).open(&out);
        let output = open().map_err(Error::at("write", &out))?;
        let errors = output.try_clone().map_err(Error::at("write", &out))?;
        let mut command = lock(&self.command);
        // A separate process group: Ctrl-C ends the test, and the watcher kills the daemon.
        command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
        let spawned = command.spawn().map_err(|error| {
            let program = command.get_program().to_string_lossy().into_owned();
            Error::new(ErrorKind::Missing, format!("cannot run `{program}`: {error}"))
        })?;
        *child = Some(spawned);
        self.stopped.store(false, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        let mut child = lock(&self.child);
        match self.exit_status(&mut child) {
            Some(_) => None,
            None => child.as_ref().map(Child::id),
        }
    }

    /// Sends a signal. Fails if the daemon does not run.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Error> {
        let mut child = lock(&self.child);
        match (self.exit_status(&mut child), child.as_ref()) {
            // The child is not reaped yet, so its process id cannot belong to another process.
            (None, Some(child)) => kill_process(Pid::from_child(child), signal).map_err(|error| {
                let message = format!("cannot signal `{}`: {error}", self.name);
                Error::new(ErrorKind::System, message)
            }),
            _ => {
                let message = format!("`{}` is not running", self.name);
                Err(Error::new(ErrorKind::InvalidRequest, message).log(self.log(20)))
            }
        }
    }

    /// Sends a signal that terminates the daemon, and waits for its exit.
    pub(crate) fn terminate(&self, signal: Signal) -> Result<(), Error> {
        self.check()?;
        self.stopped.store(true, Ordering::Relaxed);
        self.signal(signal)?;
        probe::wait_for(&format!("`{}` to exit", self.name), EXIT_TIMEOUT, || {
            self.pid().is_none().then_some(())
        })
    }

    /// Fails if the daemon exited without being stopped.
    pub(crate) fn check(&self) -> Result<(), Error> {
        // Locked across both reads: `spawn` resets `stopped` under the same lock.
        let mut child = lock(&self.child);
        let status = self.exit_status(&mut child);
        let unexpected = status.filter(|_| !self.stopped.load(Ordering::Relaxed));
        unexpected.map_or(Ok(()), |status| {
            let message = format!("`{}` exited with {status}", self.name);
            Err(Error::new(ErrorKind::Exited, message).log(self.log(40)))
        })
    }

    fn exit_status(&self, child: &mut MutexGuard<'_, Option<Child>>) -> Option<ExitStatus> {
        // Waiting for a child fails only when there is none.
        child.as_mut().and_then(|child| child.try_wait().ok().flatten())
    }

    /// Returns the last lines of its log, then of its standard output and error.
    pub(crate) fn log(&self, lines: usize) -> String {
        let mut text = String::new();
        for ending in ["log", "out"] {
            let path = self.logs.join(format!("{}.{ending}", self.name));
            let end = read_end(&path).unwrap_or_default();
            if !end.trim().is_empty() {
                text += &format!("── {}\n{}\n", path.display(), tool::tail(&end, lines));
            }
        }
        text
    }

    /// Returns the end of its log, up to a mebibyte.
    pub(crate) fn recent_log(&self) -> String {
        let path = self.logs.join(format!("{}.log", self.name));
        read_end(&path).unwrap_or_default()
    }

    /// Returns its resident memory in KiB.
    pub(crate) fn memory_kib(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()?)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().strip_suffix(" kB")?.parse().ok()
    }
}

fn read_end(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_MAX)))?;
    let mut bytes = Vec::new();
    file.take(LOG_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Locks, ignoring poisoning: a panic leaves the protected data consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
