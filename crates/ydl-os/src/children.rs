//! Children of this process, told apart from strays: processes that were reparented to it when their own parent died
//! (see [`become_subreaper`](super::process)).
//!
//! Processes that a sweep for strays must spare are started through this module.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, WaitOptions};

use super::proc_tree::{ProcessInfo, Tree};
use super::process::{Identity, Signal};

static OURS: Mutex<Ours> = Mutex::new(Ours { children: BTreeSet::new(), crowd: CROWD });

/// Number of children registered before ended ones are pruned.
const CROWD: usize = 64;

struct Ours {
    children: BTreeSet<Identity>,
    /// Pruning costs as much as there are children, so it happens when their number has doubled.
    crowd: usize,
}

/// Starts a child and registers it, so that a sweep spares it.
pub fn spawn(command: &mut tokio::process::Command) -> io::Result<tokio::process::Child> {
    // Held until the child is registered, else a sweep in another thread would take it for a stray.
    let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    if ours.children.len() >= ours.crowd {
        ours.children.retain(|child| Identity::of(child.pid) == Some(*child));
        ours.crowd = CROWD.max(ours.children.len() * 2);
    }
    let child = command.spawn()?;
    ours.children.extend(child.id().and_then(Identity::of));
    Ok(child)
}

/// Kills every stray and its descendants, and reaps those that have ended. Returns the number of strays left: call again
/// until it is zero or the deadline passes.
pub fn sweep() -> io::Result<usize> {
    let ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut left = 0;
    for stray in ProcessInfo::children_of(std::process::id())? {
        if ours.children.contains(&stray.identity()) {
            continue;
        }
        if stray.is_zombie() {
            reap(stray.pid);
            continue;
        }
        left += 1;
        let tree = Tree::below(stray.pid)?;
        for process in tree.descendants(stray.pid).into_iter().chain([&stray]) {
            // A stray of another user cannot be killed; it stays counted above.
            let _ = process.identity().signal(Signal::KILL);
        }
    }
    Ok(left)
}

fn reap(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // An error means that it is not a child of this process.
        let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
    }
}
