//! The PyTorch example with the real PyTorch, as a user would run it.

mod home;

use home::{Home, Ran, finish, kill, torch_environment};
use std::{fs, path::Path, process::Stdio};

/// The example as it is, in a home of its own, slowly or not.
fn example(home: &Home, run: &str) -> Vec<String> {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/pytorch-digits");
    for name in ["train.py", "job.yaml"] {
        fs::copy(from.join(name), home.path().join(name)).expect("the example's file");
    }
    let environment = format!("environment={}", torch_environment().display());
    let run = format!("roles.worker.run={run}");
    let words = ["submit", "job.yaml", "--set", &environment, "--set", &run];
    words.map(String::from).to_vec()
}

/// What a worker has printed.
fn lines(ran: &Ran, worker: u32) -> Vec<&str> {
    let prefix = format!("worker:{worker} | ");
    let own = ran
        .out
        .lines()
        .filter_map(|line| line.strip_prefix(&prefix));
    own.collect()
}

/// What follows that word at the beginning of a line of a worker's.
fn said<'a>(ran: &'a Ran, worker: u32, word: &str) -> &'a str {
    let found = lines(ran, worker).into_iter().rev();
    let mut found = found.filter_map(|line| line.strip_prefix(word));
    found
        .next()
        .unwrap_or_else(|| panic!("no `{word}` in {ran:#?}"))
}

fn learned(ran: &Ran) {
    let weights = said(ran, 0, "weights ");
    for worker in 0..2 {
        let accuracy: f64 = said(ran, worker, "test accuracy ")
            .parse()
            .expect("a number");
        assert!(accuracy >= 0.92, "{accuracy}");
        assert_eq!(said(ran, worker, "weights "), weights, "{ran:#?}");
    }
}

#[test]
fn the_example_learns_its_digits_and_all_have_the_same_weights() {
    let home = Home::new();
    let words = example(&home, "python train.py --epochs 12");
    let ran = Ran::from(home.ydl().args(&words).output().expect("ydl"));
    assert_eq!(ran.code, 0, "{ran:#?}");
    learned(&ran);
    for worker in 0..2 {
        let rank = format!("rank {worker} of 2, from epoch 1");
        assert!(lines(&ran, worker).contains(&&*rank), "{ran:#?}");
    }
    assert!(
        home.path().join("result/digits.pt").exists(),
        "the model was not copied"
    );
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn a_killed_worker_starts_a_new_round_that_goes_on_from_the_checkpoint() {
    let home = Home::new();
    let mut words = example(&home, "python train.py --epochs 12 --pause 0.02");
    let restart = "restart={scope: job, limit: 1, backoff: {first: 10ms, most: 10ms}}";
    words.extend(["--set", restart].map(String::from));
    let mut command = home.ydl();
    command
        .args(&words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().expect("ydl");
    home.wait_for_job();
    let log = |home: &Home| home.job().join("logs/worker/1/1/stdout.0");
    home.wait_for_text(log, "epoch 3 ");
    let is_second = |pid: u32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ
            .split(|b| *b == 0)
            .any(|variable| variable == b"RANK=1")
    };
    let programs = home.find("train.py --epochs");
    let victim = programs.iter().find(|process| is_second(process.pid));
    kill(victim.expect("worker:1").pid, 9);
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    learned(&ran);
    let first: u32 = said(&ran, 1, "rank 1 of 2, from epoch ")
        .parse()
        .expect("a number");
    assert!(
        first >= 3,
        "two epochs were done, and it began with {first}"
    );
    let facts = home.facts();
    assert!(
        facts.contains(r#""round-started":{"round":2,"tasks":2}"#),
        "{facts}"
    );
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}
