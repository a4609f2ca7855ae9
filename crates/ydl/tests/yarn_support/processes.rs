//! Processes of jobs on this machine.

use super::wait_for;
use std::{fs, process::Command};

/// Sends a signal to processes of this test's jobs.
pub fn signal(name: &str, pids: &[i32]) {
    for pid in pids {
        let sent = Command::new("kill").args([name, &pid.to_string()]).status();
        assert!(sent.expect("it can be sent").success(), "{name} {pid}");
    }
}

/// The same for processes of which some end by themselves, or with others.
pub fn signal_those_left(name: &str, pids: &[i32]) {
    let words = pids.iter().map(ToString::to_string);
    let sent = Command::new("kill").arg(name).args(words).output();
    sent.expect("it can be tried");
}

/// Kills processes and waits until they are gone.
pub fn end_all(pids: &[i32]) {
    signal_those_left("-9", pids);
    wait_for(&format!("the end of {pids:?}"), || {
        (!pids.iter().any(|pid| lives(*pid))).then_some(())
    });
}

/// Whether the process lives; one that has ended and is not waited for yet does not.
pub fn lives(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next());
    state.is_some_and(|state| state != 'Z')
}

fn pids() -> Vec<i32> {
    let all = fs::read_dir("/proc").expect("processes").flatten();
    let pids = all.filter_map(|process| process.file_name().to_str()?.parse().ok());
    pids.collect()
}

/// The live processes that YARN started in containers with this in their names.
pub fn processes_in(container: &str) -> Vec<i32> {
    let inside = |pid: &i32| container_of(*pid).is_some_and(|it| it.contains(container));
    let found = pids().into_iter().filter(inside).filter(|pid| lives(*pid));
    found.collect()
}

/// Everything that runs in a container, its programs included, children first.
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

/// The process of that attempt's master of an application, given by what the names of its containers have in common.
pub fn master(digits: &str, attempt: u32) -> Option<i32> {
    let inside = processes_in(&format!("{digits}{attempt:02}_000001"));
    inside.into_iter().find(|pid| is_ydl(*pid, "master"))
}

/// Whether a process is `ydl` with that verb.
fn is_ydl(pid: i32, verb: &str) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.starts_with(format!("./ydl\0{verb}").as_bytes())
}

/// The containers of an application in which an agent's process is.
pub fn agents(digits: &str) -> Vec<String> {
    let agents = processes_in(digits).into_iter().filter(|pid| is_ydl(*pid, "agent"));
    agents.filter_map(container_of).collect()
}

/// The container that a process is in.
fn container_of(pid: i32) -> Option<String> {
    let variables = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = variables.split(|byte| *byte == 0);
    variables.find_map(|variable| {
        let variable = String::from_utf8_lossy(variable);
        variable.strip_prefix("CONTAINER_ID=").map(str::to_owned)
    })
}

/// When a process began, which no other of that number did.
pub fn began(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let rest = stat.rsplit(')').next()?;
    rest.split_whitespace().nth(19)?.parse().ok()
}
