//! A job on this machine; its tasks are the clients.

use super::{client::Kind, steps::Coordinator};
use std::{
    fs,
    process::{Child, Command, Stdio},
};
use tempfile::TempDir;

/// Running job. Dropping it waits for its end, after the last step.
pub struct JobClients(Child, #[expect(dead_code, reason = "removed with it")] TempDir);

impl Drop for JobClients {
    fn drop(&mut self) {
        let ended = self.0.wait().expect("the job's end");
        assert!(ended.success(), "{ended}");
    }
}

pub fn start(kind: Kind, count: usize, coordinator: &Coordinator) -> JobClients {
    let home = tempfile::tempdir().expect("a directory");
    let program = std::env::current_exe().expect("this program");
    let run = format!(
        "memory: 32 MiB, run: '{} client {} {}'",
        program.display(),
        kind.name(),
        coordinator.address()
    );
    let (framework, roles) = match kind {
        Kind::C10d => ("pytorch", format!("worker: {{instances: {count}, {run}}}")),
        Kind::Rabit | Kind::Xgboost => {
            ("xgboost", format!("worker: {{instances: {count}, {run}}}"))
        }
        Kind::Pslite => {
            let workers = count - 1;
            let server = "server: {instances: 1, memory: 32 MiB}";
            ("mxnet", format!("worker: {{instances: {workers}, {run}}}, {server}"))
        }
    };
    let job = home.path().join("job.yaml");
    let text = format!("name: bench\nframework: {framework}\nroles: {{{roles}}}\n");
    fs::write(&job, text).expect("a job file");
    let child = Command::new(env!("CARGO_BIN_EXE_ydl"))
        .env("XDG_STATE_HOME", home.path().join("state"))
        .args(["submit", "--resources", "memory=16GiB,vcores=512"])
        .arg(&job)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("ydl");
    JobClients(child, home)
}
