//! Cost of an environment on a node: bytes that a submit sends, and time from the start of a container to user code.

use crate::{
    Bench, YDL,
    figures::{line, load, ratio},
};
use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use testbed::{Cluster, Options, Version};

/// Runs with an empty node, and runs of each job on a warm node after each.
const COLD_RUNS: usize = 3;
const WARM_RUNS: usize = 2;
const TIMEOUT: Duration = Duration::from_secs(120);
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Prints the time of its first line, and the time after MXNet's import.
const PROGRAM: &str = "import time; first = time.time_ns()
import mxnet
print('first', first, 'imported', time.time_ns(), flush=True)
";

/// One way to bring an environment to the node, and its times.
struct Method {
    name: &'static str,
    yaml: String,
    cold: Vec<f64>,
    warm: Vec<f64>,
    imported: Vec<f64>,
}

pub fn measure(bench: &Bench) {
    let options = Options {
        nodes: 1,
        node_memory_mib: 8192,
        node_vcores: 16,
        heartbeat: Duration::from_secs(1),
        // A restarted node has an empty cache.
        nm_recovery: false,
        ..Options::new(Version::NEWEST)
    };
    let cluster = Cluster::start(options).unwrap_or_else(|failure| panic!("{failure}"));
    let site = Site { bench, cluster };
    println!("-- one node of Hadoop {}, load {}", Version::NEWEST, load());
    site.prepare();
    site.uploaded_bytes();
    let mut methods = site.methods();
    for round in 0..bench.runs(COLD_RUNS) {
        site.restart_node();
        // A restarted node first removes its old cache, which delays the first job, so the order rotates.
        let count = methods.len();
        for at in 0..count {
            let method = &mut methods[(at + round) % count];
            let (first, _) = site.run(&method.yaml);
            method.cold.push(first);
        }
        for _ in 0..bench.runs(WARM_RUNS) {
            for method in &mut methods {
                let (first, imported) = site.run(&method.yaml);
                method.warm.push(first);
                method.imported.push(imported);
            }
        }
    }
    println!();
    let mut medians = Vec::new();
    for method in &methods {
        let print = |what: &str, values| line(&format!("{what}: {}", method.name), "s", values);
        let cold = print("container start → user code, cold node", &method.cold);
        let warm = print("container start → user code, warm node", &method.warm);
        print("user code → MXNet imported, warm node", &method.imported);
        medians.push((method.name, cold, warm));
    }
    let (_, cold, warm) = medians[0];
    for (name, other_cold, other_warm) in &medians[1..] {
        ratio(&format!("speedup over {name}, cold"), *other_cold, cold);
        ratio(&format!("speedup over {name}, warm"), *other_warm, warm);
    }
    println!("load {}\n", load());
}

struct Site<'a> {
    bench: &'a Bench,
    cluster: Cluster,
}

impl Site<'_> {
    /// Creates the environment with a package of the user, archives of the other tools, and a program.
    fn prepare(&self) {
        let venv = self.bench.path("venv");
        let copied = Command::new("cp").arg("-al").arg(&self.bench.environment).arg(&venv).status();
        assert!(copied.expect("cp is there").success());
        let lib = fs::read_dir(venv.join("lib")).expect("a list").flatten().next();
        let site = lib.expect("a version").path().join("site-packages");
        let own = self.bench.path("own");
        fs::create_dir_all(own.join("mine")).expect("a directory");
        fs::write(own.join("mine/__init__.py"), "word = 0\n").expect("a file");
        fs::write(site.join("mine.pth"), format!("{}\n", own.display())).expect("a file");
        fs::write(self.bench.path("program.py"), PROGRAM).expect("a file");
        for (name, mut command) in
            [("venv.tar.gz", self.bench.venv_pack()), ("job.pex", self.bench.pex("first-pex"))]
        {
            if !self.bench.path(name).is_file() {
                crate::timed(&mut command);
            }
        }
    }

    fn methods(&self) -> Vec<Method> {
        let method = |name, environment: &str, files: &str, run: &str| Method {
            name,
            yaml: format!(
                "environment: {environment}\nfiles: [{files}]\n\
                 roles: {{worker: {{memory: 512 MiB, run: {run}}}}}\n"
            ),
            cold: Vec::new(),
            warm: Vec::new(),
            imported: Vec::new(),
        };
        let python = self.bench.environment.join("bin/python").canonicalize();
        let python = python.expect("an interpreter");
        let by_pex = format!("{} job.pex program.py", python.display());
        vec![
            // With the interpreter, which the others take from the node.
            method("ydl", "./venv", "program.py", "python program.py"),
            method("venv-pack's archive", "venv.tar.gz", "program.py", "python program.py"),
            method("a pex", "system", "program.py, job.pex", &by_pex),
        ]
    }

    fn ydl(&self, yaml: &str) -> Command {
        fs::write(self.bench.path("job.yaml"), yaml).expect("a job file");
        let mut command = Command::new(YDL);
        for name in ["YARN_CONF_DIR", "HADOOP_HOME", "HADOOP_PROXY_USER"] {
            command.env_remove(name);
        }
        command
            .current_dir(self.bench.path(""))
            .env("XDG_STATE_HOME", self.bench.path("state"))
            .env("XDG_CACHE_HOME", self.bench.path("cache"))
            .env("HADOOP_CONF_DIR", self.cluster.configuration())
            .env("HADOOP_USER_NAME", self.cluster.own_user())
            .args(["submit", "--set", &format!("env.PEX_ROOT={}", self.pex_root().display())])
            .arg("job.yaml")
            .stdin(Stdio::null());
        command
    }

    /// Directory in which a pex unpacks itself, as a cache on the node.
    fn pex_root(&self) -> PathBuf {
        self.bench.path("node-pex")
    }

    /// Prints the bytes that submits add to HDFS: the first, the same again, and after one changed line of the user's code.
    fn uploaded_bytes(&self) {
        let yaml = &self.methods()[0].yaml;
        let mut before = self.stored();
        for what in ["the first submit", "the same again", "one line changed"] {
            if what == "one line changed" {
                let own = self.bench.path("own/mine/__init__.py");
                fs::write(own, "word = 1\n").expect("a file");
            }
            self.run(yaml);
            let after = self.stored();
            println!("{:<62} {:>12} bytes", format!("{what} sends"), after - before);
            before = after;
        }
    }

    fn stored(&self) -> u64 {
        let output = self.cluster.fs(&["-du", "-s", "/user/*/.ydl/content"]);
        let output = output.unwrap_or_default();
        let first = output.split_whitespace().next();
        first.and_then(|word| word.parse().ok()).unwrap_or(0)
    }

    /// Restarts the node with an empty cache, and runs a job to warm up the daemons.
    fn restart_node(&self) {
        self.cluster.stop("nm1").expect("it ends");
        self.cluster.start_daemon("nm1").expect("it starts");
        self.bench.remove("node-pex");
        let end = Instant::now() + TIMEOUT;
        let ready = || {
            let metrics = self.cluster.rest("/ws/v1/cluster/metrics");
            metrics.is_ok_and(|metrics| metrics.contains("\"activeNodes\":1"))
        };
        while !ready() {
            assert!(Instant::now() < end, "the node did not register again");
            std::thread::park_timeout(Duration::from_millis(100));
        }
        let plain = "roles: {worker: {memory: 128 MiB, run: date}}\n";
        crate::timed(&mut self.ydl(plain));
    }

    /// Returns the seconds from the start of the task's container to user code, and from there to the end of MXNet's import.
    fn run(&self, yaml: &str) -> (f64, f64) {
        let output = self.ydl(yaml).output().expect("ydl can be started");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let after = |word: &str| {
            let mut words = stdout.split_whitespace().skip_while(|part| *part != word);
            let found = words.nth(1).and_then(|number| number.parse::<i64>().ok());
            found.unwrap_or_else(|| panic!("no `{word}` in {stdout}"))
        };
        let (first, imported) = (after("first"), after("imported"));
        let mut ids = stderr.split(|c: char| !c.is_alphanumeric() && c != '_');
        let id = ids.rfind(|word| word.starts_with("application_"));
        let id = id.expect("an id").trim_start_matches("application");
        let started = self.started(&format!("{id}_01_000002"));
        let since = (first / 1_000_000 - started).rem_euclid(DAY_MS);
        (since as f64 / 1e3, (imported - first) as f64 / 1e9)
    }

    /// Returns the time of the node's log entry about that container's start, in milliseconds since midnight.
    fn started(&self, container: &str) -> i64 {
        let log = self.cluster.directory().join("logs/nm1.log");
        let log = fs::read_to_string(log).expect("the node's log");
        let line =
            log.lines().find(|line| line.contains("Start request for") && line.contains(container));
        let line = line.unwrap_or_else(|| panic!("{container} was not started"));
        let clock = line.get(11..23).expect("a time");
        let (hms, ms) = clock.split_once(',').expect("milliseconds");
        let parts = hms.split(':').map(|part| part.parse::<i64>().expect("a number"));
        let seconds = parts.fold(0, |sum, part| sum * 60 + part);
        let zone = Command::new("date").arg("+%z").output().expect("a clock");
        let zone = String::from_utf8_lossy(&zone.stdout).trim().to_owned();
        let zone: i64 = zone.parse().unwrap_or(0);
        let ahead = (zone / 100 * 60 + zone % 100) * 60_000;
        seconds * 1000 + ms.parse::<i64>().expect("a number") - ahead
    }
}
