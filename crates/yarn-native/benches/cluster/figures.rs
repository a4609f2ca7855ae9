//! Medians, and memory of processes as reported by the system.

use std::fs;

/// Prints median, minimum and maximum; returns the median.
pub fn line(what: &str, unit: &str, mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values[values.len() / 2];
    let (least, most) = (values[0], values[values.len() - 1]);
    let times = values.len();
    println!("{what:<58} {middle:>9.1} {unit:<8} ({least:.1} – {most:.1}, {times} runs)");
    middle
}

/// Returns a field of `/proc/PID/status`, in MiB.
pub fn status_mib(pid: u32, what: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(what));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

/// Resets `VmHWM` of this process.
pub fn reset_peak() {
    fs::write("/proc/self/clear_refs", "5").expect("Linux resets the peak of a process");
}
