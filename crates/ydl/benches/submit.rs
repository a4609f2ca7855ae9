//! Time from `ydl submit` to user code, and memory of a job's processes.
//!
//! The clock starts before `ydl`. Each of four tasks prints the time; the last one counts. The baseline is the same four
//! programs, started by a shell in the same run.

use std::{
    fs,
    process::{Command, Stdio},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

const RUNS: usize = 30;
const YDL: &str = env!("CARGO_BIN_EXE_ydl");

fn now_ns() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_nanos()
}

/// Returns the latest printed time as milliseconds since `began`.
fn last_ms(out: &[u8], began: u128) -> f64 {
    let text = String::from_utf8_lossy(out);
    let words = text.split_whitespace().filter_map(|word| word.parse::<u128>().ok());
    let times: Vec<_> = words.filter(|ns| *ns > began).collect();
    assert_eq!(times.len(), 4, "four tasks print their start: {text}");
    times.into_iter().max().map_or(0.0, |last| (last - began) as f64 / 1e6)
}

fn line(what: &str, mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    let middle = times[times.len() / 2];
    let (least, most) = (times[0], times[times.len() - 1]);
    println!("{what:<52} {middle:>7.1} ms   ({least:.1} – {most:.1}, {} runs)", times.len());
    middle
}

fn status_kib(pid: u32, what: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(what));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

/// Returns the processes of a subcommand of this `ydl`.
fn find(subcommand: &str) -> Vec<u32> {
    let each = fs::read_dir("/proc").expect("/proc").flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let words = fs::read(entry.path().join("cmdline")).ok()?;
        let mut words = words.split(|b| *b == 0);
        (words.next()? == YDL.as_bytes() && words.next()? == subcommand.as_bytes()).then_some(pid)
    });
    each.collect()
}

fn main() {
    let home = tempfile::tempdir().expect("a directory");
    let job = home.path().join("job.yaml");
    let ydl = || {
        let mut command = Command::new(YDL);
        command.env("XDG_STATE_HOME", home.path().join("state")).arg("submit").stdin(Stdio::null());
        command
    };
    fs::write(
        &job,
        "name: bench\nroles: {worker: {instances: 4, memory: 64 MiB, run: date +%s%N}}\n",
    )
    .expect("a job file");
    let (mut user_code, mut whole, mut baseline) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let began = now_ns();
        let start = Instant::now();
        let output = ydl().arg(&job).output().expect("ydl");
        whole.push(start.elapsed().as_secs_f64() * 1e3);
        assert!(output.status.success(), "{output:?}");
        user_code.push(last_ms(&output.stdout, began));

        let began = now_ns();
        let shell = "date +%s%N & date +%s%N & date +%s%N & date +%s%N & wait";
        let output = Command::new("sh").args(["-c", shell]).output().expect("sh");
        baseline.push(last_ms(&output.stdout, began));
    }
    let ydl_ms = line("ydl submit → all 4 tasks of a `none` job in user code", user_code);
    line("ydl submit → the job and ydl have ended", whole);
    let shell_ms = line("the same four programs started by a shell", baseline);
    println!("{:<52} {:>7.1} ×", "ratio", ydl_ms / shell_ms);

    fs::write(
        &job,
        "name: bench\nroles: {worker: {instances: 4, memory: 64 MiB, run: sleep 600}}\n",
    )
    .expect("a job file");
    let mut child =
        ydl().arg(&job).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("ydl");
    let end = Instant::now() + Duration::from_secs(20);
    while find("shim").len() < 4 && Instant::now() < end {
        std::thread::park_timeout(Duration::from_millis(10));
    }
    // By then every agent has measured and reported at least once.
    std::thread::park_timeout(Duration::from_secs(5));
    for (name, pids) in ["master", "agent", "shim"].map(|name| (name, find(name))) {
        let largest = |what| pids.iter().map(|pid| status_kib(*pid, what)).max().unwrap_or(0);
        let (rss, file) = (largest("VmRSS:"), largest("RssFile:"));
        println!(
            "resident memory of `ydl {name}`{:>22.1} MiB  (of which {:.1} MiB are shared pages of the binary)",
            rss as f64 / 1024.0,
            file as f64 / 1024.0
        );
    }
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(interrupt.is_ok_and(|status| status.success()), "ydl can be interrupted");
    child.wait().expect("ydl's end");
    let size = fs::metadata(YDL).map_or(0, |metadata| metadata.len());
    println!("size of the binary {:>44.1} MiB", size as f64 / 1048576.0);
}
