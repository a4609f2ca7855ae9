//! One daemon: started, signalled, waited for, and its log.

use crate::{
    fact,
    failure::{Failure, Kind},
    tool,
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

/// How long a daemon may take to end after SIGTERM.
const END: Duration = Duration::from_secs(30);

/// The most that is read of the end of a log.
const LOG_MAX: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct Daemon {
    pub name: String,
    /// Open once the daemon can be talked to.
    pub door: SocketAddr,
    /// Its command, to be run any number of times.
    command: Mutex<Command>,
    child: Mutex<Option<Child>>,
    /// Whether it was this crate that ended it, so that nobody wonders where it is.
    ended: AtomicBool,
    logs: PathBuf,
}

impl Daemon {
    pub(crate) fn new(name: &str, door: SocketAddr, command: Command, logs: &Path) -> Daemon {
        Daemon {
            name: name.to_owned(),
            door,
            command: Mutex::new(command),
            child: Mutex::new(None),
            ended: AtomicBool::new(false),
            logs: logs.to_path_buf(),
        }
    }

    /// Starts it unless it is there already, and does not wait.
    pub(crate) fn spawn(&self) -> Result<(), Failure> {
        let mut child = held(&self.child);
        if self.look(&mut child).is_none() && child.is_some() {
            return Ok(());
        }
        let out = self.logs.join(format!("{}.out", self.name));
        let open = || File::options().create(true).append(true).open(&out);
        let output = open().map_err(Failure::at("write", &out))?;
        let errors = output.try_clone().map_err(Failure::at("write", &out))?;
        let mut command = held(&self.command);
        // A group of its own: Ctrl-C ends the test, and the watcher ends the daemon.
        command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
        let spawned = command.spawn().map_err(|error| {
            let program = command.get_program().to_string_lossy().into_owned();
            Failure::new(Kind::Missing, format!("cannot run `{program}`: {error}"))
        })?;
        *child = Some(spawned);
        self.ended.store(false, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        let mut child = held(&self.child);
        match self.look(&mut child) {
            Some(_) => None,
            None => child.as_ref().map(Child::id),
        }
    }

    /// Sends a signal; a daemon that is not there is an error, because a test believes it is.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let mut child = held(&self.child);
        match (self.look(&mut child), child.as_ref()) {
            // The child has not been waited for, so that its number cannot be another's.
            (None, Some(child)) => kill_process(Pid::from_child(child), signal).map_err(|error| {
                let what = format!("cannot signal `{}`: {error}", self.name);
                Failure::new(Kind::Trouble, what)
            }),
            _ => {
                let what = format!("`{}` does not run", self.name);
                Err(Failure::new(Kind::Wrong, what).log(self.log(20)))
            }
        }
    }

    /// Sends a signal that ends it, and waits for the end.
    pub(crate) fn end(&self, signal: Signal) -> Result<(), Failure> {
        self.check()?;
        self.ended.store(true, Ordering::Relaxed);
        self.signal(signal)?;
        fact::wait_for(&format!("the end of `{}`", self.name), END, || {
            self.pid().is_none().then_some(())
        })
    }

    /// Fails if it has ended by itself.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        // Held over both looks: whoever starts it anew meanwhile says at once that nobody has ended it.
        let mut child = held(&self.child);
        let status = self.look(&mut child);
        let unasked = status.filter(|_| !self.ended.load(Ordering::Relaxed));
        unasked.map_or(Ok(()), |status| {
            let what = format!("`{}` ended with {status}", self.name);
            Err(Failure::new(Kind::Ended, what).log(self.log(40)))
        })
    }

    fn look(&self, child: &mut MutexGuard<'_, Option<Child>>) -> Option<ExitStatus> {
        // Waiting for one's own child fails only when there is none.
        child.as_mut().and_then(|child| child.try_wait().ok().flatten())
    }

    /// The last lines of what it logged, then of what it printed.
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

    /// All of its log that is still there, up to a mebibyte.
    pub(crate) fn whole_log(&self) -> String {
        let path = self.logs.join(format!("{}.log", self.name));
        read_end(&path).unwrap_or_default()
    }

    /// Resident memory, in KiB.
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

/// A test that panicked while it held a daemon has left nothing half done.
fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
