//! Processes by pid, never confused with a later process of the same number.

use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};
use serde::{Deserialize, Serialize};

pub use rustix::process::Signal;

use super::proc_tree::Entry;

/// A process and the moment it started: numbers are used again, this pair is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identity {
    pub pid: u32,
    /// In clock ticks after the machine's start, as the kernel tells it.
    pub started: u64,
}

impl Identity {
    /// The process that has this pid now, if any, be it a zombie.
    pub fn of(pid: u32) -> Option<Identity> {
        Entry::of(pid).map(|entry| entry.identity())
    }

    /// This very process.
    pub fn this() -> Option<Identity> {
        Identity::of(std::process::id())
    }

    /// Whether the process still runs; one that only waits to be reaped does not.
    pub fn is_alive(self) -> bool {
        Entry::of(self.pid).is_some_and(|entry| entry.identity() == self && !entry.is_over())
    }

    /// Sends a signal; says whether the process was still there to receive it.
    pub fn signal(self, signal: Signal) -> io::Result<bool> {
        let pid = checked(self.pid)?;
        // A descriptor pins the process, so that it cannot be replaced between look and signal.
        let sent = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => {
                if Identity::of(self.pid) != Some(self) {
                    return Ok(false);
                }
                rustix::process::pidfd_send_signal(&fd, signal)
            }
            Err(Errno::SRCH) => return Ok(false),
            // Kernels before 5.3, and some containers, have no such descriptors.
            Err(_) => {
                if Identity::of(self.pid) != Some(self) {
                    return Ok(false);
                }
                rustix::process::kill_process(pid, signal)
            }
        };
        was_there(sent)
    }
}

/// Sends a signal to every process of a group; says whether there was any.
pub fn kill_group(group: u32, signal: Signal) -> io::Result<bool> {
    was_there(rustix::process::kill_process_group(checked(group)?, signal))
}

/// From now on descendants that lose their parent become children of this process instead of
/// init's, so that none of them is lost from sight.
pub fn become_subreaper() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// The pid of this process's parent; `None` where it lies outside this pid namespace.
pub fn parent() -> Option<u32> {
    rustix::process::getppid().map(|pid| pid.as_raw_pid() as u32)
}

/// A pid fit for a system call: 0 and negative numbers mean groups there.
fn checked(pid: u32) -> io::Result<Pid> {
    i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("no pid: `{pid}`")))
}

fn was_there(sent: rustix::io::Result<()>) -> io::Result<bool> {
    match sent {
        Ok(()) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_is_known_by_its_pid_and_its_start() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let identity = Identity::of(child.id()).unwrap();
        assert!(identity.is_alive());

        let impostor = Identity { started: identity.started + 1, ..identity };
        assert!(!impostor.is_alive());
        assert!(!impostor.signal(Signal::KILL).unwrap());
        assert!(identity.is_alive());

        assert!(identity.signal(Signal::KILL).unwrap());
        child.wait().unwrap();
        assert!(!identity.is_alive());
        assert!(!identity.signal(Signal::KILL).unwrap());
    }

    #[test]
    fn pid_zero_is_nobody() {
        assert!(kill_group(0, Signal::CONT).is_err());
        assert!(kill_group(u32::MAX, Signal::CONT).is_err());
        assert_eq!(Identity::of(0), None);
    }
}
