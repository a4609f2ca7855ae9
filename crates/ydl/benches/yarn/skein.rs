//! skein, in a pinned environment, with its driver running.

use crate::bench_cluster::BenchCluster;
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

/// Timeout of its shutdown.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Skein {
    child: Child,
    stdin: Option<ChildStdin>,
    responses: BufReader<ChildStdout>,
    /// Start time of its driver.
    pub driver_seconds: f64,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the Python with skein; the environment is created at the first use.
fn python() -> PathBuf {
    let output = Command::new(root().join("scripts/python-env"))
        .arg(root().join("bench/yarn/requirements.txt"))
        .stderr(Stdio::inherit())
        .output()
        .expect("scripts/python-env can be started");
    assert!(output.status.success(), "cannot create skein's environment");
    let path = String::from_utf8(output.stdout).expect("a path");
    Path::new(path.trim()).join("bin/python")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory").flatten() {
        if entry.path().is_file() {
            fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
        }
    }
}

impl Skein {
    pub fn start(bench: &BenchCluster) -> Skein {
        // skein calls a program `yarn` for the class path.
        let java = bench.cluster.hadoop("none").expect("a command");
        let arguments: Vec<_> = java.get_args().collect();
        let at = arguments.iter().position(|argument| *argument == "-cp").expect("a class path");
        let class_path = arguments[at + 1].to_string_lossy();
        // Its master finds the cluster by a configuration on the class path of its containers.
        let configuration = bench.path("skein-conf");
        copy(&bench.cluster.configuration(), &configuration);
        let site = configuration.join("yarn-site.xml");
        let text = fs::read_to_string(&site).expect("a configuration");
        let name = "<name>yarn.application.classpath</name><value>";
        let extended = format!("{name}{},", configuration.display());
        fs::write(site, text.replace(name, &extended)).expect("a configuration");
        let bin = bench.path("bin");
        fs::create_dir_all(&bin).expect("a directory");
        let own = format!("{}:{class_path}", configuration.display());
        let script = format!("#!/bin/sh\necho '{own}'\n");
        fs::write(bin.join("yarn"), script).expect("a script");
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(bin.join("yarn"), executable).expect("a mode");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut child = Command::new(python())
            .arg(root().join("bench/yarn/with_skein.py"))
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("HADOOP_CONF_DIR", &configuration)
            .env("HADOOP_USER_NAME", bench.cluster.own_user())
            .env("SKEIN_CONFIG", bench.path("skein"))
            .env("PYTHONWARNINGS", "ignore")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python can be started");
        let stdin = child.stdin.take();
        let responses = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut skein = Skein { child, stdin, responses, driver_seconds: 0.0 };
        skein.driver_seconds = skein.response()["driver_seconds"].as_f64().expect("seconds");
        skein
    }

    fn response(&mut self) -> Value {
        let mut line = String::new();
        self.responses.read_line(&mut line).expect("a response");
        serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("skein's driver wrote `{line}`: {error}"))
    }

    fn request(&mut self, command: &Value) -> Value {
        let mut stdin = self.stdin.as_ref().expect("open until the end");
        writeln!(stdin, "{command}").expect("skein listens");
        self.response()
    }

    /// Submits an application; returns its id and the seconds of the call.
    pub fn submit(&mut self, tasks: usize, script: &str) -> (String, f64) {
        let response = self.request(&json!({ "do": "submit", "tasks": tasks, "script": script }));
        let id = response["id"].as_str().expect("an id").to_owned();
        (id, response["seconds"].as_f64().expect("seconds"))
    }
}

impl Drop for Skein {
    fn drop(&mut self) {
        // The end of its input ends it and its driver.
        drop(self.stdin.take());
        let end = Instant::now() + EXIT_TIMEOUT;
        while Instant::now() < end {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        // A child process that has not ended in time.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
