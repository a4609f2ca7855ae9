//! Misuse of jobs through the command line.

use std::{fs, fs::File, path::PathBuf};
use ydl_testkit::{
    CommandOutput, assert_rejected,
    local::{Home, kill},
};

const SLEEPER: &str =
    "name: t\nroles: {worker: {instances: 2, memory: 256 MiB, shell: echo up; sleep 1000}}\n";

fn first_log(home: &Home) -> PathBuf {
    home.job().join("logs/worker/0/1/stdout.0")
}

#[test]
fn a_master_runs_its_job_although_its_log_is_on_a_full_disk() {
    let home = Home::new();
    home.submit("roles: {worker: {run: \"true\"}}");
    let again = home.path().join("again");
    fs::create_dir(&again).expect("a directory");
    fs::copy(home.job().join("job.json"), again.join("job.json")).expect("a copy");
    let full = File::options().write(true).open("/dev/full").expect("metadata");
    let mut master = home.ydl();
    master.arg("master").arg(&again).stderr(full);
    let ran = CommandOutput::from(master.output().expect("a master"));
    assert_eq!(ran.code, 0, "{ran:#?}");
    let result = fs::read_to_string(again.join("result.json")).expect("a result");
    assert!(result.contains(r#""outcome": "succeeded""#), "{result}");
}

/// Starts a job whose master is stopped by SIGSTOP. Returns its id.
fn unanswered(home: &Home) -> String {
    let id = home.detach(SLEEPER);
    home.wait_for_text(first_log, "up");
    kill(home.find(" master ")[0].pid, 19);
    id
}

#[test]
fn status_reads_files_if_the_master_does_not_respond() {
    let home = Home::new();
    let id = unanswered(&home);
    let ran = home.run(&["status", "--json", &id]);
    assert_eq!(ran.code, 122, "{ran:#?}");
    assert!(ran.stdout.contains(r#""state":"no-answer""#), "{ran:#?}");
    assert!(ran.stdout.contains("job-started"), "{ran:#?}");
}

#[test]
fn kill_ends_a_master_that_does_not_respond() {
    let home = Home::new();
    let id = unanswered(&home);
    let ran = home.run(&["kill", "--now", &id]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(ran.stderr.contains("does not respond"), "{ran:#?}");
    home.wait_until_empty();
}

#[test]
fn removing_its_directory_ends_a_job() {
    let home = Home::new();
    home.detach(SLEEPER);
    home.wait_for_text(first_log, "up");
    let job = home.job();
    // Files that are still being written may make the removal fail.
    home.wait_for("the removal", |_| {
        let _ = fs::remove_dir_all(&job);
        (!job.exists()).then_some(())
    });
    // A starting agent may create its directories again.
    fs::create_dir_all(job.join("containers")).expect("a directory");
    home.wait_until_empty();
}

#[test]
fn logs_of_an_unknown_task_are_rejected() {
    let home = Home::new();
    home.submit("roles: {worker: {instances: 2, run: \"true\"}}");
    let ran = home.run(&["logs", "worker:2"]);
    assert_rejected(&ran, "has no task `worker:2`", "it has `worker:0` to `worker:1`");
    let ran = home.run(&["logs", "worker:1"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
}

#[test]
fn a_size_that_does_not_fit_is_rejected_with_a_matching_hint() {
    let home = Home::new();
    let submit = |args: &[&str]| home.run(&[&["submit"], args, &["--", "true"]].concat());
    let least = submit(&["--memory", "16MiB"]);
    assert_rejected(&least, "the minimum is 32 MiB", "request more");
    let most = submit(&["--vcores", "9", "--resources", "vcores=8"]);
    assert_rejected(&most, "9 vcores, but only 8 are available", "raise `--resources`");
    let fpga = submit(&["--set", "roles.worker.resources.fpga=1"]);
    assert_rejected(&fpga, "1 `fpga`, which this machine", "leave it out");
    let output = submit(&["--output", "model"]);
    assert_rejected(&output, "missing `=`", "write `--output FROM=TO`");
}
