//! Jobs on a real cluster, compared with skein and with a minimal master (the baseline) in the same run.
//!
//! `cargo bench -p ydl --bench yarn -- 3.5.0 3.4.2` selects Hadoop versions; the arguments `start`, `replace`, `first` and
//! `upload` select parts.

mod baseline;
mod bench_cluster;
mod figures;
mod skein;
mod spans;
mod upload;

use bench_cluster::{BenchCluster, replacements};
use figures::{Process, line, load, now_ns, ratio, seconds};
use skein::Skein;
use spans::Spans;
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};
use testbed::{Scheduling, Version};

const YDL: &str = env!("CARGO_BIN_EXE_ydl");
/// Warm-up applications: the daemons' first ones are slow.
const WARM_UPS: usize = 3;
/// Numbers of tasks, and runs of each.
const SIZES: [(usize, usize); 2] = [(4, 9), (40, 5)];
const REPLACEMENTS: usize = 7;
const FIRST_JOBS: usize = 5;
const UPLOADS: usize = 5;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|argument| argument == baseline::SUBCOMMAND) {
        return baseline::run_master(&arguments[1..]);
    }
    let versions: Vec<Version> =
        arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    let versions = match versions.is_empty() {
        true => vec![Version::NEWEST, "3.4.2".parse().expect("a version")],
        false => versions,
    };
    let parts = ["start", "replace", "first", "upload"];
    let named = parts.iter().any(|part| arguments.iter().any(|argument| argument == part));
    let wanted = |part: &str| !named || arguments.iter().any(|argument| argument == part);
    for version in versions {
        let bench = BenchCluster::start(version, Scheduling::VersionDefault);
        println!("-- Hadoop {version}, 3 NodeManagers with heartbeats of 1 s, load {}", load());
        let mut skein = Skein::start(&bench);
        println!("skein's driver started in {:.1} s", skein.driver_seconds);
        for _ in 0..WARM_UPS {
            start(&bench, &mut skein, 4, 1);
        }
        if wanted("start") {
            for (tasks, runs) in SIZES {
                println!();
                start(&bench, &mut skein, tasks, runs).print(tasks);
            }
        }
        if wanted("replace") {
            println!();
            replace(&bench, &mut skein);
        }
        if wanted("first") {
            println!();
            first(&bench);
        }
        if wanted("upload") && version == Version::NEWEST {
            println!();
            drop(skein);
            upload::measure(&bench, Path::new(YDL), UPLOADS);
        }
        println!("load {}\n", load());
    }
}

/// Results of starting jobs, in seconds and MiB.
#[derive(Default)]
struct Starts {
    baseline: Vec<f64>,
    ydl_values: Vec<f64>,
    skein_values: Vec<f64>,
    ydl_submit: Vec<f64>,
    skein_submit: Vec<f64>,
    ydl_master: Vec<f64>,
    skein_master: Vec<f64>,
    baseline_spans: Vec<Spans>,
    ydl_spans: Vec<Spans>,
}

impl Starts {
    fn print(&self, tasks: usize) {
        let ydl_values = line("submit returns: ydl (process)", "s", &self.ydl_submit);
        let skein_values =
            line("submit returns: skein (call, driver running)", "s", &self.skein_submit);
        ratio("speedup", skein_values, ydl_values);
        let in_user_code =
            |system: &str| format!("submit → all {tasks} tasks in user code: {system}");
        let baseline = line(&in_user_code("the baseline"), "s", &self.baseline);
        let ydl_values = line(&in_user_code("ydl"), "s", &self.ydl_values);
        let skein_values = line(&in_user_code("skein"), "s", &self.skein_values);
        ratio("relative to the baseline", ydl_values, baseline);
        ratio("speedup over skein", skein_values, ydl_values);
        let ydl_values = line("the master's resident memory: ydl", "MiB", &self.ydl_master);
        let skein_values = line("the master's resident memory: skein", "MiB", &self.skein_master);
        ratio("memory of skein's master relative to ydl's", skein_values, ydl_values);
        spans::print(&self.baseline_spans, &self.ydl_spans);
    }
}

/// Returns the resident memory of a job's master.
fn master_memory(id: &str, name: &str) -> f64 {
    let mut all = Process::all();
    let master = all.find(|process| {
        let command_line = process.command_line();
        command_line.contains(name)
            && !command_line.starts_with("/bin/bash")
            && process.is_in_application(id)
    });
    master.map_or(f64::NAN, Process::resident)
}

/// Writes a job file with the script that all tasks run.
fn write_job(bench: &BenchCluster, tasks: usize, more: &str) {
    let script = serde_json::to_string(&bench.script()).expect("a string");
    let role = format!("{{instances: {tasks}, memory: 128 MiB, shell: {script}}}");
    let yaml = format!("name: bench\nroles: {{worker: {role}}}\n{more}");
    fs::write(bench.path("job.yaml"), yaml).expect("a job file");
}

/// Submits the job file; returns the times before and after, and the id.
fn submit(bench: &BenchCluster, binary: &Path) -> (u128, u128, String) {
    let mut command = bench.ydl(binary);
    command.args(["submit", "--detach", "job.yaml"]);
    let began = now_ns();
    let output = command.output().expect("ydl");
    let ended = now_ns();
    assert!(output.status.success(), "{output:?}");
    let id = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (began, ended, id)
}

fn start(bench: &BenchCluster, skein: &mut Skein, tasks: usize, runs: usize) -> Starts {
    let mut starts = Starts::default();
    for _ in 0..runs {
        let script = bench.script();
        let began = now_ns();
        let id = baseline::submit(bench, tasks, &script);
        let took = bench.wait_for_tasks(tasks, began);
        starts.baseline.push(took);
        let spans = spans::of(bench, &id, began, tasks, took);
        starts.baseline_spans.extend(spans);
        bench.end(&id);

        write_job(bench, tasks, "");
        let (began, ended, id) = submit(bench, Path::new(YDL));
        starts.ydl_submit.push(seconds(began, ended));
        let took = bench.wait_for_tasks(tasks, began);
        starts.ydl_values.push(took);
        let spans = spans::of(bench, &id, began, tasks, took);
        starts.ydl_spans.extend(spans);
        starts.ydl_master.push(master_memory(&id, "ydl master"));
        bench.end(&id);

        let script = bench.script();
        let began = now_ns();
        let (id, took) = skein.submit(tasks, &script);
        starts.skein_submit.push(took);
        starts.skein_values.push(bench.wait_for_tasks(tasks, began));
        starts.skein_master.push(master_memory(&id, "skein.ApplicationMaster"));
        bench.end(&id);
    }
    starts
}

/// Measures the time from the kill of a process to its replacement in user code.
fn replace(bench: &BenchCluster, skein: &mut Skein) {
    let itself = |pid| pid;
    let script = bench.script();
    let id = baseline::submit(bench, 2, &script);
    bench.wait_for_tasks(2, now_ns());
    let baseline = replacements(bench, REPLACEMENTS, itself);
    bench.end(&id);

    let more = "restart: {limit: 100, backoff: {initial: 1ms, max: 1ms}}\nnode_exclusion: {failures: 1000}\n";
    write_job(bench, 2, more);
    let (_, _, id) = submit(bench, Path::new(YDL));
    bench.wait_for_tasks(2, now_ns());
    let programs = replacements(bench, REPLACEMENTS, itself);
    let containers = replacements(bench, REPLACEMENTS, agent_of);
    bench.end(&id);

    let script = bench.script();
    let (id, _) = skein.submit(2, &script);
    bench.wait_for_tasks(2, now_ns());
    let skein_values = replacements(bench, REPLACEMENTS, itself);
    bench.end(&id);

    let baseline =
        line("container killed → replacement in user code: the baseline", "s", &baseline);
    let ydl_values = line("container killed → replacement in user code: ydl", "s", &containers);
    let skein_values =
        line("container killed → replacement in user code: skein", "s", &skein_values);
    println!("{:<62} {:>8.3} s", "difference to the baseline: ydl", ydl_values - baseline);
    println!("{:<62} {:>8.3} s", "difference to the baseline: skein", skein_values - baseline);
    line("program killed → its replacement in user code: ydl", "s", &programs);
}

/// Returns the agent of a program.
fn agent_of(pid: u32) -> u32 {
    let mut at = Some(Process(pid));
    while let Some(process) = at {
        if process.command_line().starts_with("./ydl agent") {
            return process.0;
        }
        at = process.parent();
    }
    panic!("{pid} has no agent")
}

/// Measures jobs of a new binary: nothing is staged, and no node has it cached.
fn first(bench: &BenchCluster) {
    let (mut submits, mut all) = (Vec::new(), Vec::new());
    for _ in 0..FIRST_JOBS {
        let binary = new_binary(bench);
        bench
            .cluster
            .fs(&["-rm", "-r", "-f", "-skipTrash", "/user/*/.ydl"])
            .expect("nothing staged");
        // Clears the client's caches of earlier jobs.
        let _ = fs::remove_dir_all(bench.path("state"));
        write_job(bench, 4, "");
        let (began, ended, id) = submit(bench, &binary);
        submits.push(seconds(began, ended));
        all.push(bench.wait_for_tasks(4, began));
        bench.end(&id);
    }
    line("first job of a day: submit returns", "s", &submits);
    line("first job of a day: all 4 tasks in user code", "s", &all);
}

/// Returns a copy of this binary with other trailing bytes: same behaviour, another hash.
fn new_binary(bench: &BenchCluster) -> PathBuf {
    let path = bench.path("new-ydl");
    fs::copy(YDL, &path).expect("a copy");
    let mut file = fs::OpenOptions::new().append(true).open(&path).expect("the copy");
    file.write_all(&now_ns().to_be_bytes()).expect("its end");
    path
}
