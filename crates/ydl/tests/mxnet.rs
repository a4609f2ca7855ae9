//! The MXNet example with the real MXNet, as a user would run it.

mod home;

use home::{Home, environment, finish, kill};
use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

/// The example as it is, in a home of its own, with these keys on top.
fn example(home: &Home) -> Vec<String> {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/mxnet-digits");
    for name in ["train.py", "job.yaml"] {
        fs::copy(from.join(name), home.path().join(name)).expect("the example's file");
    }
    let environment = environment().display();
    [
        "submit",
        "job.yaml",
        "--set",
        &format!("environment={environment}"),
    ]
    .map(String::from)
    .to_vec()
}

#[test]
fn the_example_learns_its_digits_and_ranks_are_indexes() {
    let home = Home::new();
    let words = example(&home);
    let output = home.ydl().args(&words).output().expect("ydl");
    let ran = home::Ran::from(output);
    assert_eq!(ran.code, 0, "{ran:#?}");
    for worker in 0..2 {
        let prefix = format!("worker:{worker} | ");
        let lines: Vec<_> = ran
            .out
            .lines()
            .filter_map(|line| line.strip_prefix(&prefix))
            .collect();
        assert!(
            lines
                .iter()
                .any(|line| line.starts_with("epoch 12 accuracy")),
            "{ran:#?}"
        );
        let last = lines
            .iter()
            .rev()
            .find_map(|line| line.strip_prefix("test accuracy "));
        let accuracy: f64 = last.expect("a test accuracy").parse().expect("a number");
        assert!(accuracy >= 0.95, "{accuracy}");
        let rank = format!("rank {worker} of 2");
        assert!(
            lines.iter().any(|line| line.contains(&rank)),
            "no `{rank}` in {lines:?}"
        );
    }
    assert!(
        home.path().join("result/digits.params").exists(),
        "the model was not copied"
    );
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

/// Starts the example slowly and kills the process of one worker in mid-training.
fn kill_a_worker(home: &Home, limit: u32) -> (home::Ran, Duration) {
    let mut words = example(home);
    let run = "roles.worker.run=python train.py --epochs 8 --pause 0.02";
    let restart =
        format!("restart={{scope: job, limit: {limit}, backoff: {{first: 10ms, most: 10ms}}}}");
    words.extend(["--set", run, "--set", &restart].map(String::from));
    let mut command = home.ydl();
    command
        .args(&words)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let child = command.spawn().expect("ydl");
    let log = |home: &Home| home.job().join("logs/worker/1/1/stdout.0");
    home.wait_for_job();
    home.wait_for_text(log, "epoch 1 ");
    let is_worker = |pid: u32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ
            .split(|b| *b == 0)
            .any(|variable| variable == b"DMLC_WORKER_ID=1")
    };
    let programs = home.find("train.py --epochs");
    let victim = programs
        .iter()
        .find(|process| is_worker(process.pid))
        .expect("worker:1");
    let began = Instant::now();
    kill(victim.pid, 9);
    (finish(child), began.elapsed())
}

#[test]
fn a_killed_worker_starts_a_new_round_that_ends_well() {
    let home = Home::new();
    let (ran, _) = kill_a_worker(&home, 1);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let facts = home.facts();
    assert!(
        facts.contains(r#""round-started":{"round":2,"tasks":4}"#),
        "{facts}"
    );
    assert!(
        facts.contains(r#""ending":{"signalled":{"signal":9}}"#),
        "{facts}"
    );
    assert!(ran.out.contains("test accuracy 0.9"), "{ran:#?}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn without_restarts_a_killed_worker_fails_the_job_within_seconds() {
    let home = Home::new();
    let (ran, took) = kill_a_worker(&home, 0);
    assert_eq!(ran.code, 137, "{ran:#?}");
    assert!(took < Duration::from_secs(5), "it took {took:?}");
    assert!(
        ran.err.contains("worker:1 was killed by SIGKILL on `"),
        "{ran:#?}"
    );
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}
