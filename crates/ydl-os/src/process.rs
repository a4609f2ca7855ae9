//! Processes by pid and start time, so that a reused pid is never confused with its predecessor.

use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};
use serde::{Deserialize, Serialize};

pub use rustix::process::Signal;

use super::proc_tree::ProcessInfo;

/// Process id with the start time of the process; a pid can be reused, the pair cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identity {
    pub pid: u32,
    /// Clock ticks since boot, as reported by the kernel.
    pub started: u64,
}

impl Identity {
    /// Returns the process that has this pid now, including a zombie.
    pub fn of(pid: u32) -> Option<Identity> {
        ProcessInfo::of(pid).map(|entry| entry.identity())
    }

    /// Identity of this process.
    pub fn this() -> Option<Identity> {
        Identity::of(std::process::id())
    }

    /// Returns whether the process runs; a zombie does not.
    pub fn is_alive(self) -> bool {
        ProcessInfo::of(self.pid)
            .is_some_and(|entry| entry.identity() == self && !entry.is_zombie())
    }

    /// Sends a signal. Returns whether the process existed.
    pub fn signal(self, signal: Signal) -> io::Result<bool> {
        let pid = checked(self.pid)?;
        // A pidfd pins the process, so that it cannot be replaced between check and signal.
        let sent = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => {
                if Identity::of(self.pid) != Some(self) {
                    return Ok(false);
                }
                rustix::process::pidfd_send_signal(&fd, signal)
            }
            Err(Errno::SRCH) => return Ok(false),
            // Kernels before 5.3, and some containers, have no pidfd.
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

/// Sends a signal to every process of a group. Returns whether there was any.
pub fn kill_group(group: u32, signal: Signal) -> io::Result<bool> {
    was_there(rustix::process::kill_process_group(checked(group)?, signal))
}

/// Makes this process a subreaper: orphaned descendants become its children instead of those of init.
pub fn become_subreaper() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Returns the pid of the parent; `None` if it is outside this pid namespace.
pub fn parent() -> Option<u32> {
    rustix::process::getppid().map(|pid| pid.as_raw_pid() as u32)
}

/// Checks a pid for a system call: 0 and negative numbers mean groups there.
fn checked(pid: u32) -> io::Result<Pid> {
    i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("invalid pid `{pid}`")))
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
    fn a_process_is_identified_by_pid_and_start_time() {
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
    fn pid_zero_is_invalid() {
        assert!(kill_group(0, Signal::CONT).is_err());
        assert!(kill_group(u32::MAX, Signal::CONT).is_err());
        assert_eq!(Identity::of(0), None);
    }
}
