//! A job on a real cluster beside skein and beside the least that YARN itself takes, all in the same run.
//!
//! `cargo bench -p ydl --bench yarn -- 3.5.0 3.4.2` takes these versions; a word such as `start`, `replace`, `first` or
//! `upload` leaves the other parts out.

mod figures;
mod floor;
mod scene;
mod skein;
mod spans;
mod upload;

use figures::{Process, line, load, now_ns, ratio, seconds};
use scene::{Scene, replacements};
use skein::Skein;
use spans::Spans;
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};
use testbed::{Scheduling, Version};

const YDL: &str = env!("CARGO_BIN_EXE_ydl");
/// Applications before anything is measured: the daemons' first ones are slow.
const WARM_UPS: usize = 3;
/// How many tasks, and how often each is measured.
const SIZES: [(usize, usize); 2] = [(4, 9), (40, 5)];
const REPLACEMENTS: usize = 7;
const FIRST_JOBS: usize = 5;
const UPLOADS: usize = 5;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == floor::VERB) {
        return floor::lead(&words[1..]);
    }
    let versions: Vec<Version> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let versions = match versions.is_empty() {
        true => vec![Version::NEWEST, "3.4.2".parse().expect("a version")],
        false => versions,
    };
    let parts = ["start", "replace", "first", "upload"];
    let named = parts.iter().any(|part| words.iter().any(|word| word == part));
    let wanted = |part: &str| !named || words.iter().any(|word| word == part);
    for version in versions {
        let scene = Scene::set(version, Scheduling::VersionDefault);
        println!("-- Hadoop {version}, 3 NodeManagers that beat once a second, load {}", load());
        let mut skein = Skein::start(&scene);
        println!("skein's driver was there after {:.1} s", skein.driver_seconds);
        for _ in 0..WARM_UPS {
            start(&scene, &mut skein, 4, 1);
        }
        if wanted("start") {
            for (tasks, runs) in SIZES {
                println!();
                start(&scene, &mut skein, tasks, runs).print(tasks);
            }
        }
        if wanted("replace") {
            println!();
            replace(&scene, &mut skein);
        }
        if wanted("first") {
            println!();
            first(&scene);
        }
        if wanted("upload") && version == Version::NEWEST {
            println!();
            drop(skein);
            upload::measure(&scene, Path::new(YDL), UPLOADS);
        }
        println!("load {}\n", load());
    }
}

/// What was measured of jobs that start, in seconds and MiB.
#[derive(Default)]
struct Starts {
    floor: Vec<f64>,
    ours: Vec<f64>,
    skeins: Vec<f64>,
    our_submit: Vec<f64>,
    skeins_submit: Vec<f64>,
    our_master: Vec<f64>,
    skeins_master: Vec<f64>,
    floor_spans: Vec<Spans>,
    our_spans: Vec<Spans>,
}

impl Starts {
    fn print(&self, tasks: usize) {
        let ours = line("submit returns: ydl (process)", "s", &self.our_submit);
        let skeins = line("submit returns: skein (call, driver running)", "s", &self.skeins_submit);
        ratio("as soon", skeins, ours);
        let in_user_code = |who: &str| format!("submit → all {tasks} tasks in user code: {who}");
        let floor = line(&in_user_code("the floor"), "s", &self.floor);
        let ours = line(&in_user_code("ydl"), "s", &self.ours);
        let skeins = line(&in_user_code("skein"), "s", &self.skeins);
        ratio("the floor's time", ours, floor);
        ratio("as soon as skein", skeins, ours);
        let ours = line("the master's resident memory: ydl", "MiB", &self.our_master);
        let skeins = line("the master's resident memory: skein", "MiB", &self.skeins_master);
        ratio("as little", skeins, ours);
        spans::print(&self.floor_spans, &self.our_spans);
    }
}

/// The memory of a job's master.
fn master(id: &str, words: &str) -> f64 {
    let mut all = Process::all();
    let master = all.find(|one| {
        let said = one.words();
        said.contains(words) && !said.starts_with("/bin/bash") && one.is_of(id)
    });
    master.map_or(f64::NAN, Process::resident)
}

/// A job file at the desk, with the script that all run.
fn write_job(scene: &Scene, tasks: usize, more: &str) {
    let script = serde_json::to_string(&scene.script()).expect("a string");
    let role = format!("{{instances: {tasks}, memory: 128 MiB, shell: {script}}}");
    let yaml = format!("name: bench\nroles: {{worker: {role}}}\n{more}");
    fs::write(scene.path("job.yaml"), yaml).expect("a job file");
}

/// Submits the job file at the desk; when that began, when it was over, and the id.
fn submit(scene: &Scene, binary: &Path) -> (u128, u128, String) {
    let mut command = scene.ydl(binary);
    command.args(["submit", "--detach", "job.yaml"]);
    let began = now_ns();
    let output = command.output().expect("ydl");
    let over = now_ns();
    assert!(output.status.success(), "{output:?}");
    let id = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (began, over, id)
}

fn start(scene: &Scene, skein: &mut Skein, tasks: usize, runs: usize) -> Starts {
    let mut starts = Starts::default();
    for _ in 0..runs {
        let script = scene.script();
        let began = now_ns();
        let id = floor::submit(scene, tasks, &script);
        let took = scene.wait_arrivals(tasks, began);
        starts.floor.push(took);
        let spans = spans::of(scene, &id, began, tasks, took);
        starts.floor_spans.extend(spans);
        scene.end(&id);

        write_job(scene, tasks, "");
        let (began, over, id) = submit(scene, Path::new(YDL));
        starts.our_submit.push(seconds(began, over));
        let took = scene.wait_arrivals(tasks, began);
        starts.ours.push(took);
        let spans = spans::of(scene, &id, began, tasks, took);
        starts.our_spans.extend(spans);
        starts.our_master.push(master(&id, "ydl master"));
        scene.end(&id);

        let script = scene.script();
        let began = now_ns();
        let (id, took) = skein.submit(tasks, &script);
        starts.skeins_submit.push(took);
        starts.skeins.push(scene.wait_arrivals(tasks, began));
        starts.skeins_master.push(master(&id, "skein.ApplicationMaster"));
        scene.end(&id);
    }
    starts
}

/// From a death to the replacement in user code.
fn replace(scene: &Scene, skein: &mut Skein) {
    let itself = |pid| pid;
    let script = scene.script();
    let id = floor::submit(scene, 2, &script);
    scene.wait_arrivals(2, now_ns());
    let floor = replacements(scene, REPLACEMENTS, itself);
    scene.end(&id);

    let more = "restart: {limit: 100, backoff: {initial: 1ms, max: 1ms}}\nnode_exclusion: {failures: 1000}\n";
    write_job(scene, 2, more);
    let (_, _, id) = submit(scene, Path::new(YDL));
    scene.wait_arrivals(2, now_ns());
    let programs = replacements(scene, REPLACEMENTS, itself);
    let containers = replacements(scene, REPLACEMENTS, agent_of);
    scene.end(&id);

    let script = scene.script();
    let (id, _) = skein.submit(2, &script);
    scene.wait_arrivals(2, now_ns());
    let skeins = replacements(scene, REPLACEMENTS, itself);
    scene.end(&id);

    let floor = line("container killed → replacement in user code: the floor", "s", &floor);
    let ours = line("container killed → replacement in user code: ydl", "s", &containers);
    let skeins = line("container killed → replacement in user code: skein", "s", &skeins);
    println!("{:<62} {:>8.3} s", "beyond the floor: ydl", ours - floor);
    println!("{:<62} {:>8.3} s", "beyond the floor: skein", skeins - floor);
    line("program killed → its replacement in user code: ydl", "s", &programs);
}

/// The agent above a program.
fn agent_of(pid: u32) -> u32 {
    let mut at = Some(Process(pid));
    while let Some(process) = at {
        if process.words().starts_with("./ydl agent") {
            return process.0;
        }
        at = process.parent();
    }
    panic!("{pid} has no agent")
}

/// Jobs of a binary that nobody has seen: nothing is staged, and the nodes have nothing of it.
fn first(scene: &Scene) {
    let (mut submits, mut all) = (Vec::new(), Vec::new());
    for _ in 0..FIRST_JOBS {
        let binary = new_binary(scene);
        scene
            .cluster
            .fs(&["-rm", "-r", "-f", "-skipTrash", "/user/*/.ydl"])
            .expect("nothing staged");
        // What would be remembered here of an earlier job.
        let _ = fs::remove_dir_all(scene.path("state"));
        write_job(scene, 4, "");
        let (began, over, id) = submit(scene, &binary);
        submits.push(seconds(began, over));
        all.push(scene.wait_arrivals(4, began));
        scene.end(&id);
    }
    line("first job of a day: submit returns", "s", &submits);
    line("first job of a day: all 4 tasks in user code", "s", &all);
}

/// This binary with another end, which changes nothing but its hash.
fn new_binary(scene: &Scene) -> PathBuf {
    let path = scene.path("ydl-of-today");
    fs::copy(YDL, &path).expect("a copy");
    let mut file = fs::OpenOptions::new().append(true).open(&path).expect("the copy");
    file.write_all(&now_ns().to_be_bytes()).expect("its end");
    path
}
