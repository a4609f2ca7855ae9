//! A tracking server of MLflow.

use super::{dashboard_environment, http_request};
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    net::TcpListener,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command},
    time::{Duration, Instant},
};

/// Timeout of a start, which creates the database first.
const START_TIMEOUT: Duration = Duration::from_secs(300);

/// A server server of MLflow. Dropping it kills the server and its workers.
#[derive(Debug)]
pub struct MlflowServer {
    child: Child,
    pub address: String,
    artifacts: PathBuf,
}

impl MlflowServer {
    /// Starts a server with its files in this directory, and waits until it answers.
    pub fn start(dir: &Path) -> MlflowServer {
        let end = Instant::now() + START_TIMEOUT;
        // Another process may take the port before the server does; then another is tried.
        loop {
            let free = TcpListener::bind("127.0.0.1:0").expect("a port");
            let at = free.local_addr().expect("an address");
            drop(free);
            let artifacts = dir.join("artifacts");
            let log = File::create(dir.join("mlflow.log")).expect("a log");
            let database = format!("sqlite:///{}", dir.join("mlflow.db").display());
            let python = dashboard_environment().join("bin/python");
            let mut command = Command::new(python);
            command
                .args(["-m", "mlflow", "server", "--serve-artifacts", "--workers", "1"])
                .args(["--backend-store-uri", &database, "--artifacts-destination"])
                .arg(&artifacts)
                .args(["--host", "127.0.0.1", "--port", &at.port().to_string()])
                .env("PATH", path_with(dashboard_environment()))
                .current_dir(dir)
                .stdout(log.try_clone().expect("the log"))
                .stderr(log)
                // Its workers are killed with it.
                .process_group(0);
            let child = command.spawn().expect("the server");
            let mut server = MlflowServer { child, address: at.to_string(), artifacts };
            while Instant::now() < end {
                if http_request(&server.address, "GET", "/health", "")
                    .is_ok_and(|(status, _)| status == 200)
                {
                    return server;
                }
                if server.child.try_wait().expect("a child").is_some() {
                    break;
                }
                std::thread::park_timeout(Duration::from_millis(50));
            }
            assert!(Instant::now() < end, "MLflow's server does not answer");
        }
    }

    fn call(&self, path: &str, body: &Value) -> Value {
        let path = format!("/api/2.0/mlflow/{path}");
        let (status, answer) =
            http_request(&self.address, "POST", &path, &body.to_string()).expect("an answer");
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str(&answer).expect("JSON")
    }

    /// Returns the runs of an experiment.
    pub fn runs(&self, experiment: &str) -> Vec<Value> {
        let path = format!("/api/2.0/mlflow/experiments/get-by-name?experiment_name={experiment}");
        let Ok((200, answer)) = http_request(&self.address, "GET", &path, "") else {
            return Vec::new();
        };
        let found: Value = serde_json::from_str(&answer).expect("JSON");
        let id = &found["experiment"]["experiment_id"];
        let runs = self.call("runs/search", &json!({ "experiment_ids": [id] }));
        runs["runs"].as_array().cloned().unwrap_or_default()
    }

    /// Returns the only run of an experiment.
    pub fn only_run(&self, experiment: &str) -> Value {
        let mut runs = self.runs(experiment);
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs.remove(0)
    }

    /// Returns all values of a metric of a run.
    pub fn history(&self, run: &str, key: &str) -> Vec<Value> {
        let key = key.replace('/', "%2F");
        let path = format!("/api/2.0/mlflow/metrics/get-history?run_id={run}&metric_key={key}");
        let (status, answer) = http_request(&self.address, "GET", &path, "").expect("an answer");
        assert_eq!(status, 200, "{answer}");
        let found: Value = serde_json::from_str(&answer).expect("JSON");
        found["metrics"].as_array().cloned().unwrap_or_default()
    }

    /// Returns the artifacts of a run: paths and texts.
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

impl Drop for MlflowServer {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        // It may have ended.
        let _ = Command::new("kill").args(["-9", "--", &group]).status();
        let _ = self.child.wait();
    }
}

/// Returns the value of a key in a list of tags, parameters or metrics.
pub fn value_of(list: &Value, key: &str) -> String {
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
