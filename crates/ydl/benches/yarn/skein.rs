//! skein, in a pinned environment, with its driver running.

use crate::scene::Scene;
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

/// How long it may take to end.
const FAREWELL_MAX: Duration = Duration::from_secs(10);

pub struct Skein {
    child: Child,
    words: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// What its driver took to start.
    pub driver_seconds: f64,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Python that has skein; made the first time.
fn python() -> PathBuf {
    let output = Command::new(root().join("scripts/python-env"))
        .arg(root().join("bench/yarn/requirements.txt"))
        .stderr(Stdio::inherit())
        .output()
        .expect("scripts/python-env can be started");
    assert!(output.status.success(), "skein's environment cannot be made");
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
    pub fn start(scene: &Scene) -> Skein {
        // It asks a program `yarn` for the class path.
        let java = scene.cluster.hadoop("none").expect("a command");
        let words: Vec<_> = java.get_args().collect();
        let at = words.iter().position(|word| *word == "-cp").expect("a class path");
        let class_path = words[at + 1].to_string_lossy();
        // Its master finds the cluster by a configuration on the class path of its containers.
        let configuration = scene.path("skein-conf");
        copy(&scene.cluster.configuration(), &configuration);
        let site = configuration.join("yarn-site.xml");
        let text = fs::read_to_string(&site).expect("a configuration");
        let name = "<name>yarn.application.classpath</name><value>";
        let with_it = format!("{name}{},", configuration.display());
        fs::write(site, text.replace(name, &with_it)).expect("a configuration");
        let bin = scene.path("bin");
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
            .env("HADOOP_USER_NAME", scene.cluster.own_user())
            .env("SKEIN_CONFIG", scene.path("skein"))
            .env("PYTHONWARNINGS", "ignore")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python can be started");
        let words = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut skein = Skein { child, words, answers, driver_seconds: 0.0 };
        skein.driver_seconds = skein.answer()["driver_seconds"].as_f64().expect("seconds");
        skein
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an answer");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("skein said `{line}`: {error}"))
    }

    fn ask(&mut self, command: &Value) -> Value {
        let mut words = self.words.as_ref().expect("open until the end");
        writeln!(words, "{command}").expect("skein listens");
        self.answer()
    }

    /// Submits; the id, and how long that took.
    pub fn submit(&mut self, tasks: usize, script: &str) -> (String, f64) {
        let said = self.ask(&json!({ "do": "submit", "tasks": tasks, "script": script }));
        let id = said["id"].as_str().expect("an id").to_owned();
        (id, said["seconds"].as_f64().expect("seconds"))
    }
}

impl Drop for Skein {
    fn drop(&mut self) {
        // The end of its input ends it, and its driver with it.
        drop(self.words.take());
        let end = Instant::now() + FAREWELL_MAX;
        while Instant::now() < end {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        // It is a child of ours and is there still.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
