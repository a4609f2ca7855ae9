//! Medians, and the state of processes from `/proc`.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Returns the system time in nanoseconds.
pub fn now_ns() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("a clock after 1970").as_nanos()
}

/// Returns the seconds from one time to another.
pub fn seconds(from: u128, to: u128) -> f64 {
    (to as f64 - from as f64) / 1e9
}

pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Prints median, minimum and maximum; returns the median.
pub fn line(what: &str, unit: &str, values: &[f64]) -> f64 {
    let middle = median(values);
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let times = values.len();
    println!("{what:<62} {middle:>8.3} {unit:<4} ({least:.3} – {most:.3}, {times} runs)");
    middle
}

pub fn ratio(what: &str, of: f64, to: f64) {
    println!("{what:<62} {:>8.2} times", of / to);
}

/// Pauses for up to a second, so that runs begin at any phase of the nodes' heartbeats.
pub fn pause() {
    let some = now_ns() / 1000 % 1_000_000;
    std::thread::sleep(Duration::from_micros(u64::try_from(some).unwrap_or(0)));
}

/// Returns the load average of one minute.
pub fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or_default().to_owned()
}

/// Process id, with queries to `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(pub u32);

impl Process {
    /// Returns all processes.
    pub fn all() -> impl Iterator<Item = Process> {
        let entries = fs::read_dir("/proc").expect("/proc").flatten();
        entries.filter_map(|entry| Some(Process(entry.file_name().to_str()?.parse().ok()?)))
    }

    fn file(self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.0))
    }

    /// Returns its command line.
    pub fn command_line(self) -> String {
        let bytes = fs::read(self.file("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', " ")
    }

    /// Returns true if it runs in a container of this application.
    pub fn is_in_application(self, id: &str) -> bool {
        let bytes = fs::read(self.file("environ")).unwrap_or_default();
        let mark = id.trim_start_matches("application");
        String::from_utf8_lossy(&bytes)
            .split('\0')
            .any(|variable| variable.starts_with("CONTAINER_ID=") && variable.contains(mark))
    }

    pub fn parent(self) -> Option<Process> {
        let stat = fs::read_to_string(self.file("stat")).ok()?;
        let after = stat.rsplit_once(") ")?.1;
        Some(Process(after.split_whitespace().nth(1)?.parse().ok()?))
    }

    /// Returns its resident memory in MiB.
    pub fn resident(self) -> f64 {
        let status = fs::read_to_string(self.file("status")).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
        kib.unwrap_or(0.0) / 1024.0
    }

    /// Sends SIGKILL.
    pub fn kill(self) {
        let pid = i32::try_from(self.0).ok().and_then(rustix::process::Pid::from_raw);
        let signal = rustix::process::Signal::KILL;
        rustix::process::kill_process(pid.expect("a number"), signal).expect("it is there");
    }
}
