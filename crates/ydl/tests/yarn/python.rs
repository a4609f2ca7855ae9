//! The Python package on a real cluster.

use crate::common_cluster;
use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
};
use ydl_testkit::{
    CommandOutput, requirements_environment,
    yarn::{ClusterJob, Workspace},
};

/// Returns a command that runs a Python module in this workspace.
fn python(workspace: &Workspace, args: &[&str]) -> Command {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let environment = requirements_environment("python/requirements.txt");
    let mut command = Command::new(environment.join("bin/python"));
    for (name, value) in workspace.ydl().get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
        .args(["-B", "-m"])
        .args(args)
        .current_dir(package)
        .env("YDL_BINARY", ydl_testkit::ydl())
        .env_remove("PYTHONPATH");
    command
}

#[test]
fn exceptions_of_functions_are_raised_in_the_submitter() {
    let cluster = &*common_cluster();
    let workspace = Workspace::new(cluster);
    let mut python = python(&workspace, &["unittest", "tests.on_yarn"]);
    let ran = CommandOutput::from(python.stdin(Stdio::null()).output().expect("Python"));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

#[test]
fn functions_use_the_master_across_failovers() {
    let cluster = &*common_cluster();
    let workspace = Workspace::new(cluster);
    let mut python = python(&workspace, &["tests.on_yarn", "across-master-restart"]);
    python.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = python.spawn().expect("Python");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut line = || lines.next().and_then(Result::ok).unwrap_or_default();
    let id = line();
    assert!(id.starts_with("application_"), "{id}");
    let job = ClusterJob::of(workspace, id);
    assert_eq!(line(), "begun");
    job.kill_master(1);
    job.wait_led_by(2);
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(b"moved\n").expect("a connection");
    assert_eq!(line(), "ended");
    assert!(child.wait().expect("an exit").success());
    assert_eq!(job.master_attempts().len(), 2);
}
