//! Steps from a submit to the last task in user code, from the daemons' logs of one application.

use crate::{
    bench_cluster::BenchCluster,
    figures::{median, seconds},
};
use std::{fs, process::Command};

/// Steps of a start, in order: the event at the end of each, and the component that took the time.
const STEPS: [(&str, &str); 10] = [
    ("the ResourceManager has the submission", "client"),
    ("the master's container is granted", "RM"),
    ("its node is told to start it", "RM"),
    ("its files are there", "NM: localisation"),
    ("its shell is started", "NM: launching"),
    ("the master has registered", "shell, master"),
    ("the last task's container is granted", "master, RM"),
    ("its node is told to start it", "master"),
    ("its files are there", "NM: localisation"),
    ("its shell is started", "NM: launching"),
];

/// Seconds of each step; the last is from the shell to user code.
pub type Spans = [f64; STEPS.len() + 1];

/// Reads the steps of an application from the logs; `whole` is the seconds from `began` to the last task in user code.
pub fn of(bench: &BenchCluster, id: &str, began: u128, tasks: usize, whole: f64) -> Option<Spans> {
    let mark = id.trim_start_matches("application_");
    let rm = Log::read(bench, &["rm"]);
    let nodes = Log::read(bench, &["nm1", "nm2", "nm3"]);
    let container = |number: usize| format!("_{mark}_01_{number:06}");
    let (master, last) = (container(1), container(tasks + 1));
    let all: Vec<String> = (2..tasks + 2).map(container).collect();
    let latest = |words: &str| {
        let each = all.iter().map(|id| nodes.first(&[id, words]));
        each.collect::<Option<Vec<_>>>()?.into_iter().max()
    };
    let steps = [
        rm.first(&[id, "from NEW to NEW_SAVING"])?,
        rm.first(&[&master, "from NEW to ALLOCATED"])?,
        nodes.first(&[&master, "Start request for"])?,
        nodes.first(&[&master, "to SCHEDULED"])?,
        nodes.first(&[&master, "launchContainer: ["])?,
        rm.first(&[mark, "LAUNCHED to RUNNING"])?,
        rm.first(&[&last, "from NEW to ALLOCATED"])?,
        latest("Start request for")?,
        latest("to SCHEDULED")?,
        latest("launchContainer: [")?,
    ];
    let mut spans = Spans::default();
    let mut before = 0.0;
    let began_ms = began / 1_000_000 % DAY_MS;
    for (span, at_ms) in spans.iter_mut().zip(steps) {
        // Logs have whole milliseconds; midnight may pass.
        let since = (at_ms + DAY_MS - began_ms) % DAY_MS;
        let at = seconds(0, since * 1_000_000);
        *span = at - before;
        before = at;
    }
    spans[STEPS.len()] = whole - before;
    Some(spans)
}

/// Prints the medians of both for each step.
pub fn print(baseline: &[Spans], ydl_values: &[Spans]) {
    let middle = |all: &[Spans], at: usize| {
        let each: Vec<f64> = all.iter().map(|spans| spans[at]).collect();
        1e3 * median(&each)
    };
    let end = ("the last task is in user code", "shell; agent");
    println!("{:<42} {:<18} {:>9} {:>9}", "until", "component", "baseline, ms", "ydl, ms");
    for (at, (until, component)) in STEPS.into_iter().chain([end]).enumerate() {
        let (baseline, ydl_values) = (middle(baseline, at), middle(ydl_values, at));
        println!("{until:<42} {component:<18} {baseline:>9.0} {ydl_values:>9.0}");
    }
}

const DAY_MS: u128 = 24 * 60 * 60 * 1000;

/// Lines of logs such as `2026-11-16 00:32:06,756 INFO …`.
struct Log {
    text: String,
    /// Offset of the daemons' time zone to UTC.
    ahead_ms: i64,
}

impl Log {
    fn read(bench: &BenchCluster, daemons: &[&str]) -> Log {
        let logs = bench.cluster.directory().join("logs");
        let read = |name: &&str| fs::read_to_string(logs.join(format!("{name}.log")));
        let zone = Command::new("date").arg("+%z").output().expect("a clock");
        let zone = String::from_utf8_lossy(&zone.stdout).trim().to_owned();
        let number: i64 = zone.parse().unwrap_or(0);
        let minutes = number / 100 * 60 + number % 100;
        Log {
            text: daemons.iter().filter_map(|name| read(name).ok()).collect(),
            ahead_ms: minutes * 60_000,
        }
    }

    /// Returns the time of the first line with all these words, in ms since midnight.
    fn first(&self, words: &[&str]) -> Option<u128> {
        let has = |line: &&str| words.iter().all(|word| line.contains(word));
        let times = self.text.lines().filter(has).filter_map(time_of);
        let ms = times.min()? - self.ahead_ms;
        u128::try_from(ms.rem_euclid(DAY_MS as i64)).ok()
    }
}

fn time_of(line: &str) -> Option<i64> {
    let clock = line.get(11..23)?;
    let (hms, ms) = clock.split_once(',')?;
    let mut parts = hms.split(':').map(|part| part.parse::<i64>().ok());
    let (h, m, s) = (parts.next()??, parts.next()??, parts.next()??);
    Some(((h * 60 + m) * 60 + s) * 1000 + ms.parse::<i64>().ok()?)
}
