//! Figures: medians, and what the system says of a process's memory.

use std::fs;

/// Prints median, least and most; gives the median.
pub fn line(what: &str, unit: &str, mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values[values.len() / 2];
    let (least, most) = (values[0], values[values.len() - 1]);
    let times = values.len();
    println!("{what:<58} {middle:>9.1} {unit:<8} ({least:.1} – {most:.1}, {times} runs)");
    middle
}

/// A line of `/proc/PID/status`, in MiB.
pub fn status_mib(pid: u32, what: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(what));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

/// From here on `VmHWM` of this process counts anew.
pub fn forget_peak() {
    fs::write("/proc/self/clear_refs", "5").expect("Linux lets a process forget its peak");
}
