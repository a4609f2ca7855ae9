//! The children this process has started, told apart from strays: processes that became its
//! children because their own parent died (see [`become_subreaper`](super::process)).
//!
//! Whoever starts a process that a sweep for strays must spare starts it through here.

use std::io;
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, WaitOptions};

use super::proc_tree::Tree;
use super::process::{Identity, Signal};

static OURS: Mutex<Vec<Identity>> = Mutex::new(Vec::new());

/// Starts a child that is nobody's stray.
pub fn spawn(command: &mut tokio::process::Command) -> io::Result<tokio::process::Child> {
    // Held until the child is entered, else a sweep in another thread would take it for a stray.
    let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    // Children that have ended leave the list here, so it cannot grow without end.
    ours.retain(|child| Identity::of(child.pid) == Some(*child));
    let child = command.spawn()?;
    ours.extend(child.id().and_then(Identity::of));
    Ok(child)
}

/// Kills every stray and all below it, and reaps those that have ended. Says how many strays there
/// still are: to be called again until there are none, or patience is at its end.
pub fn sweep() -> io::Result<usize> {
    let ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    let tree = Tree::below(std::process::id())?;
    let mut left = 0;
    for stray in tree.children(std::process::id()) {
        if ours.contains(&stray.identity()) {
            continue;
        }
        if stray.is_over() {
            reap(stray.pid);
            continue;
        }
        left += 1;
        for process in tree.descendants(stray.pid).into_iter().chain([stray]) {
            // One that may not be killed (another user's) stays counted above.
            let _ = process.identity().signal(Signal::KILL);
        }
    }
    Ok(left)
}

fn reap(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // An error means that it is no child of ours, and then it is not ours to reap.
        let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
    }
}
