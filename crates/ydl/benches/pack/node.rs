//! What an environment costs on a node: bytes that a submit sends, and the time from a container's start to user code.

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

/// How often the node is emptied, and how often each job runs with what it has then.
const EMPTIED: usize = 3;
const WARM_RUNS: usize = 2;
const PATIENCE: Duration = Duration::from_secs(120);
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// The first line says when it ran, the last when MXNet was there.
const PROGRAM: &str = "import time; first = time.time_ns()
import mxnet
print('first', first, 'imported', time.time_ns(), flush=True)
";

/// How an environment comes to the node.
struct Way {
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
        // A node that was restarted has nothing of before.
        nm_recovery: false,
        ..Options::new(Version::NEWEST)
    };
    let cluster = Cluster::start(options).unwrap_or_else(|failure| panic!("{failure}"));
    let site = Site { bench, cluster };
    println!("-- one node of Hadoop {}, load {}", Version::NEWEST, load());
    site.lay_out();
    site.bytes();
    let mut ways = site.ways();
    for round in 0..bench.runs(EMPTIED) {
        site.empty();
        // A node that has just started removes what it had before: who comes first waits for that, so all take turns.
        let count = ways.len();
        for at in 0..count {
            let way = &mut ways[(at + round) % count];
            let (first, _) = site.run(&way.yaml);
            way.cold.push(first);
        }
        for _ in 0..bench.runs(WARM_RUNS) {
            for way in &mut ways {
                let (first, imported) = site.run(&way.yaml);
                way.warm.push(first);
                way.imported.push(imported);
            }
        }
    }
    println!();
    let mut middles = Vec::new();
    for way in &ways {
        let say = |what: &str, values| line(&format!("{what}: {}", way.name), "s", values);
        let cold = say("container start → user code, cold node", &way.cold);
        let warm = say("container start → user code, warm node", &way.warm);
        say("user code → MXNet imported, warm node", &way.imported);
        middles.push((way.name, cold, warm));
    }
    let (_, cold, warm) = middles[0];
    for (name, their_cold, their_warm) in &middles[1..] {
        ratio(&format!("as soon as {name}, cold"), *their_cold, cold);
        ratio(&format!("as soon as {name}, warm"), *their_warm, warm);
    }
    println!("load {}\n", load());
}

struct Site<'a> {
    bench: &'a Bench,
    cluster: Cluster,
}

impl Site<'_> {
    /// The environment with a package of the user's, archives of the others, and a program.
    fn lay_out(&self) {
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

    fn ways(&self) -> Vec<Way> {
        let way = |name, environment: &str, files: &str, run: &str| Way {
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
            // With its interpreter, which the others leave to the node.
            way("ydl", "./venv", "program.py", "python program.py"),
            way("venv-pack's archive", "venv.tar.gz", "program.py", "python program.py"),
            way("a pex", "system", "program.py, job.pex", &by_pex),
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

    /// Where a pex unpacks itself: on a node, what it has done before.
    fn pex_root(&self) -> PathBuf {
        self.bench.path("node-pex")
    }

    /// Bytes that submits add to what is in HDFS: the first, the same again, and after one line of the user's has changed.
    fn bytes(&self) {
        let yaml = &self.ways()[0].yaml;
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
        let said = self.cluster.fs(&["-du", "-s", "/user/*/.ydl/content"]);
        let said = said.unwrap_or_default();
        let first = said.split_whitespace().next();
        first.and_then(|word| word.parse().ok()).unwrap_or(0)
    }

    /// A node that has nothing, but whose machine has run something before.
    fn empty(&self) {
        self.cluster.stop("nm1").expect("it ends");
        self.cluster.start_daemon("nm1").expect("it starts");
        self.bench.forget("node-pex");
        let end = Instant::now() + PATIENCE;
        let ready = || {
            let said = self.cluster.rest("/ws/v1/cluster/metrics");
            said.is_ok_and(|said| said.contains("\"activeNodes\":1"))
        };
        while !ready() {
            assert!(Instant::now() < end, "the node did not come back");
            std::thread::park_timeout(Duration::from_millis(100));
        }
        let plain = "roles: {worker: {memory: 128 MiB, run: date}}\n";
        crate::timed(&mut self.ydl(plain));
    }

    /// Seconds from the start of the task's container to user code, and from there until MXNet was imported.
    fn run(&self, yaml: &str) -> (f64, f64) {
        let output = self.ydl(yaml).output().expect("ydl can be started");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{told}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let after = |word: &str| {
            let mut words = said.split_whitespace().skip_while(|one| *one != word);
            let found = words.nth(1).and_then(|number| number.parse::<i64>().ok());
            found.unwrap_or_else(|| panic!("no `{word}` in {said}"))
        };
        let (first, imported) = (after("first"), after("imported"));
        let mut ids = told.split(|c: char| !c.is_alphanumeric() && c != '_');
        let id = ids.rfind(|word| word.starts_with("application_"));
        let id = id.expect("an id").trim_start_matches("application");
        let started = self.started(&format!("{id}_01_000002"));
        let since = (first / 1_000_000 - started).rem_euclid(DAY_MS);
        (since as f64 / 1e3, (imported - first) as f64 / 1e9)
    }

    /// When the node was told to start that container, in milliseconds since a midnight.
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
