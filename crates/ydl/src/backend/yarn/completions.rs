//! Maps YARN's exit statuses and diagnostics to the core's container exits.

use super::runtime;
use yarn_native::types::ExitStatus;
use ydl_core::ContainerExit;

/// Longest diagnostics line to keep.
const DIAGNOSTICS_MAX: usize = 500;
/// Exit codes of a shell for a program that is not executable or not found.
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;
/// Exit code of the dynamic loader for a missing library.
const LOADER_FAILURE: i32 = 1;
/// Exit code of a container after its NodeManager restarted and lost the status.
const UNKNOWN_AFTER_RESTART: i32 = 154;

/// Maps the exit of a container of this size.
pub(super) fn container_exit(
    exit: ExitStatus,
    diagnostics: &str,
    memory_mib: u64,
) -> ContainerExit {
    let of_node = without_program_output(diagnostics);
    // The helper of a node that cannot run an image exits with an arbitrary code.
    if exit != ExitStatus::Exited(0)
        && let Some(why) = runtime::image_error(of_node)
    {
        return ContainerExit::NodeFault { reason: why };
    }
    match exit {
        ExitStatus::Exited(LOADER_FAILURE) if is_loader_failure(of_node) => {
            ContainerExit::NodeFault { reason: cannot_execute(exit, diagnostics) }
        }
        ExitStatus::Exited(NOT_EXECUTABLE | NOT_FOUND) => {
            ContainerExit::NodeFault { reason: cannot_execute(exit, diagnostics) }
        }
        ExitStatus::Exited(UNKNOWN_AFTER_RESTART) => ContainerExit::NodeLost,
        ExitStatus::Exited(status) => ContainerExit::Completed { status },
        // The ResourceManager uses one status for released and for lost containers.
        ExitStatus::Aborted if diagnostics.contains("*lost* node") => ContainerExit::NodeLost,
        ExitStatus::Preempted | ExitStatus::KilledByContainerScheduler => ContainerExit::Preempted,
        ExitStatus::MemoryExceeded => memory_exceeded(diagnostics, "physical", memory_mib),
        ExitStatus::VirtualMemoryExceeded => memory_exceeded(diagnostics, "virtual", memory_mib),
        ExitStatus::Aborted
        | ExitStatus::KilledByMaster
        | ExitStatus::KilledByResourceManager
        | ExitStatus::KilledAfterApplication => ContainerExit::Released,
        ExitStatus::DisksFailed => node_fault(diagnostics, "its disks have failed"),
        // The container never ran. Most often a file could not be localized.
        ExitStatus::Unfinished => node_fault(diagnostics, "its node could not prepare it"),
        ExitStatus::KilledForExcessLogs => ContainerExit::Completed { status: exit.number() },
        // Later versions may add statuses. A negative status never comes from the program.
        other => node_fault(diagnostics, &format!("its node ended it with status {other}")),
    }
}

/// Cuts diagnostics before the end of a program's output, which a node appends under the name of its file.
fn without_program_output(diagnostics: &str) -> &str {
    let mut start = 0;
    for line in diagnostics.split_inclusive('\n') {
        let name = line.split_once("Last ").and_then(|(_, rest)| rest.split_once(" bytes of "));
        if let Some((count, name)) = name
            && count.bytes().all(|digit| digit.is_ascii_digit())
            && !["agent.stderr", "prelaunch.err"].iter().any(|own| name.starts_with(own))
        {
            return &diagnostics[..start];
        }
        start += line.len();
    }
    diagnostics
}

/// Returns true if the dynamic loader rejected this binary. Diagnostics may also quote a program of the job.
fn is_loader_failure(diagnostics: &str) -> bool {
    let mut lines = diagnostics.lines().map(strip_timestamp);
    lines.any(|line| line.trim().starts_with("./ydl: ") && line.contains("version `GLIBC"))
}

fn node_fault(diagnostics: &str, otherwise: &str) -> ContainerExit {
    let why = summary_line(diagnostics).unwrap_or_else(|| otherwise.to_owned());
    ContainerExit::NodeFault { reason: why }
}

fn cannot_execute(code: ExitStatus, diagnostics: &str) -> String {
    let why = exec_failure_reason(diagnostics).unwrap_or_else(|| {
        format!("code {code}: it is made for another kind of processor, or its directory is mounted `noexec`")
    });
    format!("it cannot execute `ydl`: {why}")
}

/// Returns why a node cannot execute this binary, if its shell or loader reported it.
pub(crate) fn exec_failure_reason(diagnostics: &str) -> Option<String> {
    let lines = diagnostics.lines().map(strip_timestamp).map(str::trim);
    let mut lines = lines.filter(|line| line.contains("ydl: ")).peekable();
    let first = truncate(lines.peek()?);
    let all: Vec<_> = lines.collect();
    let contains = |text: &str| all.iter().any(|line| line.contains(text));
    if contains("Exec format error") {
        Some("it is made for another kind of processor".to_owned())
    } else if contains("Permission denied") {
        Some("the node's directory is mounted `noexec`, or closed to this user".to_owned())
    } else if contains("No such file") || contains("shared libraries") || contains(" not found") {
        Some(format!("the node lacks something that it needs: {first}"))
    } else {
        None
    }
}

/// Returns the most informative line of diagnostics: the first that is not boilerplate.
pub(super) fn summary_line(diagnostics: &str) -> Option<String> {
    let lines = diagnostics.lines().map(strip_timestamp).map(str::trim);
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
    lines.next().map(truncate)
}

/// Hadoop 3 prefixes each line with the time: `[2026-01-31 12:00:00.123]Killed`.
fn strip_timestamp(line: &str) -> &str {
    let timed = line.strip_prefix('[').and_then(|rest| {
        let (time, message) = rest.split_once(']')?;
        let is_time = time.starts_with(|c: char| c.is_ascii_digit()) && time.contains(':');
        is_time.then_some(message)
    });
    timed.unwrap_or(line)
}

/// Returns a line of diagnostics without its timestamp.
pub(super) fn clean_line(line: &str) -> String {
    truncate(strip_timestamp(line).trim())
}

/// Truncates a line to a readable length.
pub(super) fn truncate(line: &str) -> String {
    line.chars().filter(|c| !c.is_control()).take(DIAGNOSTICS_MAX).collect()
}

/// Returns used and allowed memory. The node rounds both; Hadoop 3 reports the excess in bytes.
fn memory_exceeded(diagnostics: &str, kind: &str, memory_mib: u64) -> ContainerExit {
    let figures = usage(diagnostics, kind);
    let (used, limit) = figures.unwrap_or((memory_mib << 20, memory_mib << 20));
    let used = match excess(diagnostics, kind) {
        Some(excess) => limit.saturating_add(excess).max(used),
        None => used,
    };
    let limit_mib = limit >> 20;
    // Rounding must not hide an excess of a few bytes.
    let used_mib = used.div_ceil(1 << 20).max(limit_mib);
    ContainerExit::MemoryLimit { used_mib, limit_mib }
}

/// Parses the figures of `Current usage: 148.7 MB of 128 MB physical memory used; 1.2 GB of 2 GB virtual memory
/// used`.
fn usage(diagnostics: &str, kind: &str) -> Option<(u64, u64)> {
    let (_, rest) = diagnostics.split_once("Current usage: ")?;
    let (before, _) = rest.split_once(&format!(" {kind} memory used"))?;
    let figures = before.rsplit("; ").next()?;
    let (used, limit) = figures.split_once(" of ")?;
    Some((bytes(used)?, bytes(limit)?))
}

/// Parses the figure of `is running 25165824B beyond the 'PHYSICAL' memory limit`.
fn excess(diagnostics: &str, kind: &str) -> Option<u64> {
    let kind = kind.to_uppercase();
    let (before, _) = diagnostics.split_once(&format!("B beyond the '{kind}' memory limit"))?;
    before.rsplit(' ').next()?.parse().ok()
}

/// Parses sizes as Hadoop prints them: `128 MB`, `1.2 GB`, `148.7 MB`, `512 B`.
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
