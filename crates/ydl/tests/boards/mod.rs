//! What tests of boards share: their environment, a browser, and `ydl port-forward`.
#![allow(dead_code)] // Each test binary uses its own part of this.

use serde_json::{Value, json};
use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

/// How long a server may take to start: it makes its database first.
const START_MAX: Duration = Duration::from_secs(300);
/// How long one answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(90);

/// The environment with MLflow and TensorBoard in it.
pub fn environment() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let made = Command::new(root.join("scripts/python-env"))
            .arg("crates/ydl/tests/boards/requirements.txt")
            .current_dir(root)
            .output()
            .expect("a script of the project can be started");
        let why = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{why}");
        PathBuf::from(String::from_utf8(made.stdout).expect("a path").trim())
    })
}

/// A program of these tests.
pub fn program(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/boards");
    here.join(name)
}

/// `ydl port-forward`, and where it listens. It ends with the test.
pub struct Opened {
    pub child: Child,
    pub at: String,
    /// As it was printed.
    pub line: String,
}

impl Opened {
    pub fn start(mut ydl: Command, words: &[&str]) -> Opened {
        ydl.arg("port-forward").args(words);
        let mut child = ydl.stdout(Stdio::piped()).spawn().expect("ydl");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let line = lines.next().expect("a line").expect("text");
        let at = line.strip_prefix("http://").unwrap_or(&line);
        let at = at.trim_end_matches('/').to_owned();
        Opened { child, at, line }
    }

    /// The body of the answer to a `GET`.
    pub fn read(&self, path: &str) -> io::Result<String> {
        let (status, body) = request(&self.at, "GET", path, "")?;
        match status {
            200 => Ok(body),
            other => Err(io::Error::other(format!("status {other}: {body}"))),
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One request over one connection.
pub fn request(at: &str, method: &str, path: &str, body: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut all = Vec::new();
    stream.read_to_end(&mut all)?;
    let text = String::from_utf8_lossy(&all);
    let (head, body) = text.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    let status = status.ok_or(io::ErrorKind::InvalidData)?;
    Ok((status, body.to_owned()))
}

/// MLflow's own server, for one test.
pub struct Tracking {
    child: Child,
    pub at: String,
    artifacts: PathBuf,
}

impl Tracking {
    /// Starts it with its files in that directory and waits until it answers.
    pub fn start(dir: &Path) -> Tracking {
        let end = Instant::now() + START_MAX;
        // A port that somebody else takes in the meantime is given up.
        loop {
            let free = TcpListener::bind("127.0.0.1:0").expect("a port");
            let at = free.local_addr().expect("an address");
            drop(free);
            let artifacts = dir.join("artifacts");
            let log = File::create(dir.join("mlflow.log")).expect("a log");
            let database = format!("sqlite:///{}", dir.join("mlflow.db").display());
            let python = environment().join("bin/python");
            let mut command = Command::new(python);
            command
                .args(["-m", "mlflow", "server", "--serve-artifacts", "--workers", "1"])
                .args(["--backend-store-uri", &database, "--artifacts-destination"])
                .arg(&artifacts)
                .args(["--host", "127.0.0.1", "--port", &at.port().to_string()])
                .env("PATH", path_with(environment()))
                .current_dir(dir)
                .stdout(log.try_clone().expect("the log"))
                .stderr(log)
                // All of it ends with the test: it starts workers.
                .process_group(0);
            let child = command.spawn().expect("the server");
            let mut tracking = Tracking { child, at: at.to_string(), artifacts };
            while Instant::now() < end {
                if request(&tracking.at, "GET", "/health", "")
                    .is_ok_and(|(status, _)| status == 200)
                {
                    return tracking;
                }
                if tracking.child.try_wait().expect("a child").is_some() {
                    break;
                }
                std::thread::park_timeout(Duration::from_millis(50));
            }
            assert!(Instant::now() < end, "MLflow's server does not answer");
        }
    }

    fn ask(&self, path: &str, body: &Value) -> Value {
        let path = format!("/api/2.0/mlflow/{path}");
        let (status, answer) =
            request(&self.at, "POST", &path, &body.to_string()).expect("an answer");
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str(&answer).expect("JSON")
    }

    /// The runs of an experiment.
    pub fn runs(&self, experiment: &str) -> Vec<Value> {
        let path = format!("/api/2.0/mlflow/experiments/get-by-name?experiment_name={experiment}");
        let Ok((200, answer)) = request(&self.at, "GET", &path, "") else {
            return Vec::new();
        };
        let found: Value = serde_json::from_str(&answer).expect("JSON");
        let id = &found["experiment"]["experiment_id"];
        let runs = self.ask("runs/search", &json!({ "experiment_ids": [id] }));
        runs["runs"].as_array().cloned().unwrap_or_default()
    }

    /// The only run of an experiment.
    pub fn only_run(&self, experiment: &str) -> Value {
        let mut runs = self.runs(experiment);
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs.remove(0)
    }

    /// Every value that a metric of a run ever had.
    pub fn history(&self, run: &str, key: &str) -> Vec<Value> {
        let key = key.replace('/', "%2F");
        let path = format!("/api/2.0/mlflow/metrics/get-history?run_id={run}&metric_key={key}");
        let (status, answer) = request(&self.at, "GET", &path, "").expect("an answer");
        assert_eq!(status, 200, "{answer}");
        let found: Value = serde_json::from_str(&answer).expect("JSON");
        found["metrics"].as_array().cloned().unwrap_or_default()
    }

    /// The artifacts of a run, by their paths.
    pub fn artifacts(&self, run: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut dirs = vec![self.artifacts.clone()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    dirs.push(path);
                } else if path.to_string_lossy().contains(run) {
                    let text = fs::read(&path).expect("an artifact");
                    let text = String::from_utf8_lossy(&text).into_owned();
                    found.push((path.to_string_lossy().into_owned(), text));
                }
            }
        }
        found
    }
}

impl Drop for Tracking {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        // It may have ended already.
        let _ = Command::new("kill").args(["-9", "--", &group]).status();
        let _ = self.child.wait();
    }
}

/// The value of a key in a list of MLflow's.
pub fn of(list: &Value, key: &str) -> String {
    let mut all = list.as_array().into_iter().flatten();
    let found = all.find(|it| it["key"] == key);
    let value = found.map(|it| &it["value"]);
    let text = value.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    text.unwrap_or_else(|| panic!("no `{key}` in {list}"))
}

fn path_with(environment: &Path) -> String {
    let bin = environment.join("bin");
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default())
}
