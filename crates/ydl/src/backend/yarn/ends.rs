//! How YARN's words about the end of a container become the core's.

use super::runtime;
use yarn_native::types::ExitStatus;
use ydl_core::ContainerExit;

/// The most of YARN's words that anybody wants to read.
const WORDS_MAX: usize = 500;
/// What a shell says of a program that it finds and cannot execute, or does not find.
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;
/// What the system's loader says of a program that lacks something.
const LOADER: i32 = 1;
/// A NodeManager that was started again does not know how the container ended.
const FORGOTTEN: i32 = 154;

/// How a container ended that had so much memory.
pub(super) fn end_of(exit: ExitStatus, words: &str, memory_mib: u64) -> ContainerExit {
    // An image that a node does not run ends with whatever number its helper found fit.
    if exit != ExitStatus::Exited(0)
        && let Some(why) = runtime::refusal(words)
    {
        return ContainerExit::NodeFault { why };
    }
    match exit {
        ExitStatus::Exited(LOADER) if words.contains("version `GLIBC") => {
            ContainerExit::NodeFault { why: cannot_execute(exit, words) }
        }
        ExitStatus::Exited(NOT_EXECUTABLE | NOT_FOUND) => {
            ContainerExit::NodeFault { why: cannot_execute(exit, words) }
        }
        ExitStatus::Exited(FORGOTTEN) => ContainerExit::NodeLost,
        ExitStatus::Exited(status) => ContainerExit::Completed { status },
        // The ResourceManager has one number for what we gave back and for what was lost.
        ExitStatus::Aborted if words.contains("*lost* node") => ContainerExit::NodeLost,
        ExitStatus::Preempted | ExitStatus::KilledByContainerScheduler => ContainerExit::Preempted,
        ExitStatus::MemoryExceeded => over(words, "physical", memory_mib),
        ExitStatus::VirtualMemoryExceeded => over(words, "virtual", memory_mib),
        ExitStatus::Aborted
        | ExitStatus::KilledByMaster
        | ExitStatus::KilledByResourceManager
        | ExitStatus::KilledAfterApplication => ContainerExit::Released,
        ExitStatus::DisksFailed => fault(words, "its disks have failed"),
        // It never ran: mostly, a file could not be fetched.
        ExitStatus::Unfinished => fault(words, "its node could not prepare it"),
        ExitStatus::KilledForExcessLogs => ContainerExit::Completed { status: exit.number() },
        // Whatever later versions invent, the program had no part in a number below zero.
        other => fault(words, &format!("its node ended it with status {other}")),
    }
}

fn fault(words: &str, otherwise: &str) -> ContainerExit {
    let why = telling(words).unwrap_or_else(|| otherwise.to_owned());
    ContainerExit::NodeFault { why }
}

fn cannot_execute(code: ExitStatus, words: &str) -> String {
    let why = inexecutable(words).unwrap_or_else(|| {
        format!("code {code}: it is made for another kind of processor, or its directory is mounted `noexec`")
    });
    format!("it cannot execute `ydl`: {why}")
}

/// Why a node cannot execute this very program, if its shell or its loader has said so.
pub(crate) fn inexecutable(words: &str) -> Option<String> {
    let said = words.lines().map(without_time).map(str::trim);
    let mut said = said.filter(|line| line.contains("ydl: ")).peekable();
    let first = short(said.peek()?);
    let all: Vec<_> = said.collect();
    let says = |what: &str| all.iter().any(|line| line.contains(what));
    if says("Exec format error") {
        Some("it is made for another kind of processor".to_owned())
    } else if says("Permission denied") {
        Some("the node's directory is mounted `noexec`, or closed to this user".to_owned())
    } else if says("No such file") || says("shared libraries") || says(" not found") {
        Some(format!("the node lacks something that it needs: {first}"))
    } else {
        None
    }
}

/// The line that tells a person most: the first that is not about itself.
pub(super) fn telling(words: &str) -> Option<String> {
    let lines = words.lines().map(without_time).map(str::trim);
    let noise = [
        "at ",
        "For more detailed output",
        "Container exited with",
        "Container killed on request",
        "Container launch failed",
        "Exception from container-launch",
        "Stack trace",
        "Failing this attempt",
        ".Failing this attempt",
    ];
    let mut lines = lines.filter(|line| {
        let line = line.trim_end_matches(['.', ',', ':', ';']);
        !line.is_empty() && !noise.iter().any(|noise| line.starts_with(noise))
    });
    lines.next().map(short)
}

/// Hadoop 3 puts the time before each of its words: `[2026-01-31 12:00:00.123]Killed`.
fn without_time(line: &str) -> &str {
    let timed = line.strip_prefix('[').and_then(|rest| {
        let (time, words) = rest.split_once(']')?;
        let is_time = time.starts_with(|c: char| c.is_ascii_digit()) && time.contains(':');
        is_time.then_some(words)
    });
    timed.unwrap_or(line)
}

/// A line of YARN's words without their time.
pub(super) fn bare(line: &str) -> String {
    short(without_time(line).trim())
}

/// As much of a line as anybody reads.
pub(super) fn short(line: &str) -> String {
    line.chars().filter(|c| !c.is_control()).take(WORDS_MAX).collect()
}

/// How much memory was used and allowed. The node says both in units that are rounded; how much was too much Hadoop 3
/// says to the byte.
fn over(words: &str, kind: &str, memory_mib: u64) -> ContainerExit {
    let said = usage(words, kind);
    let (used, limit) = said.unwrap_or((memory_mib << 20, memory_mib << 20));
    let used = match excess(words, kind) {
        Some(excess) => limit.saturating_add(excess).max(used),
        None => used,
    };
    let limit_mib = limit >> 20;
    // What was killed for a few bytes too many used more than it had, and should say so.
    let used_mib = used.div_ceil(1 << 20).max(limit_mib);
    ContainerExit::MemoryLimit { used_mib, limit_mib }
}

/// The figures of `Current usage: 148.7 MB of 128 MB physical memory used; 1.2 GB of 2 GB virtual memory used`.
fn usage(words: &str, kind: &str) -> Option<(u64, u64)> {
    let (_, said) = words.split_once("Current usage: ")?;
    let (before, _) = said.split_once(&format!(" {kind} memory used"))?;
    let figures = before.rsplit("; ").next()?;
    let (used, limit) = figures.split_once(" of ")?;
    Some((bytes(used)?, bytes(limit)?))
}

/// The figure of `is running 25165824B beyond the 'PHYSICAL' memory limit`.
fn excess(words: &str, kind: &str) -> Option<u64> {
    let kind = kind.to_uppercase();
    let (before, _) = words.split_once(&format!("B beyond the '{kind}' memory limit"))?;
    before.rsplit(' ').next()?.parse().ok()
}

/// As Hadoop writes bytes: `128 MB`, `1.2 GB`, `148.7 MB`, `512 B`.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.trim().split_once(' ')?;
    let shift = match unit {
        "B" => 0,
        "KB" => 10,
        "MB" => 20,
        "GB" => 30,
        "TB" => 40,
        "PB" => 50,
        _ => return None,
    };
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let whole: u64 = whole.parse().ok()?;
    let tenths: u64 = tenths.get(..1)?.parse().ok()?;
    let unit = 1_u64 << shift;
    whole.checked_mul(unit)?.checked_add(tenths * unit / 10)
}

#[cfg(test)]
mod tests;
