//! Processes of cluster jobs. The nodes are this machine.

use super::wait_for;
use std::{fs, process::Command};

/// Sends a signal to processes, all of which must exist.
pub fn signal(name: &str, pids: &[i32]) {
    for pid in pids {
        let sent = Command::new("kill").args([name, &pid.to_string()]).status();
        assert!(sent.expect("it can be sent").success(), "{name} {pid}");
    }
}

/// Sends a signal to processes, some of which may have ended.
pub fn signal_remaining(name: &str, pids: &[i32]) {
    let words = pids.iter().map(ToString::to_string);
    let sent = Command::new("kill").arg(name).args(words).output();
    sent.expect("it can be tried");
}

/// Kills processes and waits until they have ended.
pub fn kill_all(pids: &[i32]) {
    signal_remaining("-9", pids);
    wait_for(&format!("the end of {pids:?}"), || {
        (!pids.iter().any(|pid| is_alive(*pid))).then_some(())
    });
}

/// Returns true for a process that runs. A zombie does not.
pub fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next());
    state.is_some_and(|state| state != 'Z')
}

fn pids() -> Vec<i32> {
    let all = fs::read_dir("/proc").expect("processes").flatten();
    let pids = all.filter_map(|process| process.file_name().to_str()?.parse().ok());
    pids.collect()
}

/// Returns the processes that YARN started in containers whose id contains `container`.
pub fn processes_in(container: &str) -> Vec<i32> {
    let inside = |pid: &i32| container_of(*pid).is_some_and(|it| it.contains(container));
    let found = pids().into_iter().filter(inside).filter(|pid| is_alive(*pid));
    found.collect()
}

/// Returns all processes of a container and their descendants, children first.
pub fn tree(container: &str) -> Vec<i32> {
    let parent = |pid: i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let rest = stat.rsplit(')').next()?;
        rest.split_whitespace().nth(1)?.parse::<i32>().ok()
    };
    let all: Vec<_> = pids().into_iter().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut tree = processes_in(container);
    let mut seen = 0;
    while seen < tree.len() {
        let of = tree[seen];
        seen += 1;
        for (pid, parent) in &all {
            if *parent == of && !tree.contains(pid) {
                tree.push(*pid);
            }
        }
    }
    tree.reverse();
    tree
}

/// Returns the master process of an attempt of an application, given the common part of its container ids.
pub fn master(digits: &str, attempt: u32) -> Option<i32> {
    let inside = processes_in(&format!("{digits}{attempt:02}_000001"));
    inside.into_iter().find(|pid| is_ydl(*pid, "master"))
}

/// Returns true for a `ydl` process with that subcommand.
fn is_ydl(pid: i32, subcommand: &str) -> bool {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    command.starts_with(format!("./ydl\0{subcommand}").as_bytes())
}

/// Returns the containers of an application with an agent process.
pub fn agents(digits: &str) -> Vec<String> {
    let agents = processes_in(digits).into_iter().filter(|pid| is_ydl(*pid, "agent"));
    agents.filter_map(container_of).collect()
}

/// Returns the container of a process.
fn container_of(pid: i32) -> Option<String> {
    let variables = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = variables.split(|byte| *byte == 0);
    variables.find_map(|variable| {
        let variable = String::from_utf8_lossy(variable);
        variable.strip_prefix("CONTAINER_ID=").map(str::to_owned)
    })
}

/// Returns the start time of a process, which tells processes with the same pid apart.
pub fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let rest = stat.rsplit(')').next()?;
    rest.split_whitespace().nth(19)?.parse().ok()
}
