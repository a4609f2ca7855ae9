//! Examples of the frameworks, run on this machine as a user would.

use super::{Home, kill, program_with_variable};
use crate::{CommandOutput, example_environment, finish, repository};
use std::{
    fs,
    path::PathBuf,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

/// Copies a framework's example to this home. Returns the arguments that submit it with the worker
/// command `run`.
pub fn example_arguments(home: &Home, framework: &str, run: &str) -> Vec<String> {
    copy_example(home, framework, ["job.yaml", "train.py"], run)
}

/// Like [`example_arguments`], for an example with these names of job file and program.
pub fn copy_example(home: &Home, framework: &str, files: [&str; 2], run: &str) -> Vec<String> {
    for name in files {
        let from = repository().join(format!("examples/{framework}-digits/{name}"));
        fs::copy(from, home.path().join(name)).expect("the example's file");
    }
    let environment = format!("environment={}", example_environment(framework).display());
    let run = format!("roles.worker.run={run}");
    // A job that hangs fails.
    let timeout = "timeouts.run=10m";
    let arguments = ["submit", files[0], "--set", &environment, "--set", &run, "--set", timeout];
    arguments.map(String::from).to_vec()
}

/// Submits an example, and asserts that it succeeds, downloads its result and leaves no process.
pub fn run_example(home: &Home, arguments: &[String]) -> CommandOutput {
    let output = CommandOutput::from(home.ydl().args(arguments).output().expect("ydl"));
    assert_eq!(output.code, 0, "{output:#?}");
    let metrics = home.path().join("result/metrics.json");
    assert!(metrics.exists(), "the model was not copied");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
    output
}

/// Asserts that each worker printed its rank, an accuracy of at least `least`, and the same value
/// after `label`.
pub fn assert_workers_agree(output: &CommandOutput, workers: u32, least: f64, label: &str) {
    for worker in 0..workers {
        let rank = printed_value(output, worker, "rank");
        assert!(rank.starts_with(&format!("{worker} of {workers}")), "{rank}");
        let accuracy = printed_value(output, worker, "test accuracy");
        let accuracy: f64 = accuracy.parse().expect("a number");
        assert!(accuracy >= least, "{accuracy}");
        let values = [worker, 0].map(|worker| printed_value(output, worker, label));
        assert_eq!(values[0], values[1], "{output:#?}");
    }
}

/// Returns the rest of the last line of a worker that begins with `label`.
pub fn printed_value<'a>(output: &'a CommandOutput, worker: u32, label: &str) -> &'a str {
    let prefix = format!("worker:{worker} | {label} ");
    let mut lines = output.stdout.lines().rev();
    let found = lines.find_map(|line| line.strip_prefix(&prefix));
    found.unwrap_or_else(|| panic!("no `{prefix}` in {output:#?}"))
}

/// Returns a worker command that pauses between steps in the first two rounds, so that a test can kill
/// it in the middle, on a busy machine as well.
pub fn with_pauses(run: &str, pause: f64) -> String {
    format!("sh -c 'exec {run} $([ $YDL_ROUND -gt 2 ] || echo --pause {pause})'")
}

/// Submits an example whose third round succeeds. In the first round, kills the program that has this
/// variable once worker 1 has printed the first line; in the second round, stops it once worker 1 has
/// printed the second line.
pub fn kill_then_stop(
    home: &Home,
    arguments: Vec<String>,
    lines: [&str; 2],
    variable: &str,
) -> CommandOutput {
    let arguments = with_restarts(arguments, 2);
    let heartbeat = ["--set", "timeouts.heartbeat=10s"].map(String::from);
    let child = start(home, &[&arguments[..], &heartbeat].concat());
    for (attempt, line, signal) in [(1, lines[0], 9), (2, lines[1], 19)] {
        home.wait_for_text(stdout_of(&format!("worker/1/{attempt}")), line);
        kill(program_with_variable(home, "python train.py", variable), signal);
    }
    let output = finish(child);
    assert_eq!(output.code, 0, "{output:#?}");
    let history = home.history();
    assert!(history.contains(r#""round-started":{"round":3,"#), "{history}");
    // TensorFlow misses a peer after ten seconds, too, and may report it first.
    let reasons = ["was stopped (SIGSTOP) for ", "heartbeat timeout"];
    assert!(reasons.iter().any(|reason| history.contains(reason)), "{history}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
    output
}

/// Submits with this restart limit, and kills the program that has this variable once worker 1 has
/// printed `line`. Returns the output, and the time from the kill to the end.
pub fn submit_and_kill(
    home: &Home,
    arguments: Vec<String>,
    limit: u32,
    line: &str,
    variable: &str,
) -> (CommandOutput, Duration) {
    let arguments = with_restarts(arguments, limit);
    submit_and_signal(home, &arguments, 9, "worker/1", |text| text.contains(line), variable)
}

fn with_restarts(mut arguments: Vec<String>, limit: u32) -> Vec<String> {
    let restart =
        format!("restart={{scope: job, limit: {limit}, backoff: {{initial: 10ms, max: 10ms}}}}");
    arguments.extend(["--set", &restart].map(String::from));
    arguments
}

/// Submits, sends a signal to the program that has this variable once the stdout of `task` satisfies
/// `ready`, and waits for the end. Returns the output, and the time from the signal to the end.
pub fn submit_and_signal(
    home: &Home,
    arguments: &[String],
    signal: i32,
    task: &str,
    ready: impl Fn(&str) -> bool,
    variable: &str,
) -> (CommandOutput, Duration) {
    let child = start(home, arguments);
    let log = stdout_of(&format!("{task}/1"));
    home.wait_for(&format!("output of {task}"), |home| {
        let text = fs::read_to_string(log(home));
        text.is_ok_and(|text| ready(&text)).then_some(())
    });
    let began = Instant::now();
    kill(program_with_variable(home, "python train.py", variable), signal);
    (finish(child), began.elapsed())
}

fn start(home: &Home, arguments: &[String]) -> Child {
    let mut command = home.ydl();
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("ydl");
    home.wait_for_job();
    child
}

/// Returns a function that finds the stdout file of an attempt such as `worker/1/2`.
fn stdout_of(attempt: &str) -> impl Fn(&Home) -> PathBuf + use<> {
    let attempt = attempt.to_owned();
    move |home| home.job().join(format!("logs/{attempt}/stdout.0"))
}
