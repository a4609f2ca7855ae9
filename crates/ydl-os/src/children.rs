//! The children this process has started, told apart from strays: processes that became its
//! children because their own parent died (see [`become_subreaper`](super::process)).
//!
//! Whoever starts a process that a sweep for strays must spare starts it through here.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, WaitOptions};

use super::proc_tree::{Entry, Tree};
use super::process::{Identity, Signal};

static OURS: Mutex<Ours> = Mutex::new(Ours { children: BTreeSet::new(), crowd: CROWD });

/// So many children are entered before those that have ended are looked for.
const CROWD: usize = 64;

struct Ours {
    children: BTreeSet<Identity>,
    /// Looking costs as much as there are children, so it is done when their number has doubled.
    crowd: usize,
}

/// Starts a child that is nobody's stray.
pub fn spawn(command: &mut tokio::process::Command) -> io::Result<tokio::process::Child> {
    // Held until the child is entered, else a sweep in another thread would take it for a stray.
    let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    if ours.children.len() >= ours.crowd {
        ours.children.retain(|child| Identity::of(child.pid) == Some(*child));
        ours.crowd = CROWD.max(ours.children.len() * 2);
    }
    let child = command.spawn()?;
    ours.children.extend(child.id().and_then(Identity::of));
    Ok(child)
}

/// Kills every stray and all below it, and reaps those that have ended. Says how many strays there
/// still are: to be called again until there are none, or patience is at its end.
pub fn sweep() -> io::Result<usize> {
    let ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut left = 0;
    for stray in Entry::children_of(std::process::id())? {
        if ours.children.contains(&stray.identity()) {
            continue;
        }
        if stray.is_over() {
            reap(stray.pid);
            continue;
        }
        left += 1;
        let tree = Tree::below(stray.pid)?;
        for process in tree.descendants(stray.pid).into_iter().chain([&stray]) {
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
