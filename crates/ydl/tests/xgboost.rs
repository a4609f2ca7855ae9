//! The XGBoost example with the real XGBoost, as a user would run it.

mod home;

use home::{Home, Ran, finish, kill, xgboost_environment};
use std::{fs, path::Path, process::Stdio};

/// The example as it is, in a home of its own, slowly or not.
fn example(home: &Home, run: &str) -> Vec<String> {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/xgboost-digits");
    for name in ["train.py", "job.yaml"] {
        fs::copy(from.join(name), home.path().join(name)).expect("the example's file");
    }
    let environment = format!("environment={}", xgboost_environment().display());
    let run = format!("roles.worker.run={run}");
    let words = ["submit", "job.yaml", "--set", &environment, "--set", &run];
    words.map(String::from).to_vec()
}

/// All three have grown the same trees, which are good ones.
fn learned(ran: &Ran) {
    let said = |worker: u32, word: &str| {
        let prefix = format!("worker:{worker} | {word} ");
        let mut lines = ran.out.lines().rev();
        let found = lines.find_map(|line| line.strip_prefix(&prefix));
        found.unwrap_or_else(|| panic!("no `{prefix}` in {ran:#?}"))
    };
    for worker in 0..3 {
        let accuracy: f64 = said(worker, "test accuracy").parse().expect("a number");
        assert!(accuracy >= 0.93, "{accuracy}");
        assert_eq!(said(worker, "gain"), said(0, "gain"), "{ran:#?}");
        assert_eq!(said(worker, "rank"), format!("{worker} of 3"));
    }
}

#[test]
fn the_example_learns_its_digits_and_all_have_the_same_trees() {
    let home = Home::new();
    let words = example(&home, "python train.py --rounds 10");
    let ran = Ran::from(home.ydl().args(&words).output().expect("ydl"));
    assert_eq!(ran.code, 0, "{ran:#?}");
    learned(&ran);
    let model = home.path().join("result/digits.json");
    assert!(model.exists(), "the model was not copied");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn a_killed_worker_starts_a_new_round_that_ends_well() {
    let home = Home::new();
    let mut words = example(&home, "python train.py --rounds 10 --pause 0.2");
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
    home.wait_for_text(log, "round 2 ");
    let is_second = |pid: u32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut variables = environ.split(|b| *b == 0);
        variables.any(|variable| variable == b"DMLC_TASK_ID=1")
    };
    let programs = home.find("train.py --rounds");
    let victim = programs.iter().find(|process| is_second(process.pid));
    kill(victim.expect("worker:1").pid, 9);
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    learned(&ran);
    let facts = home.facts();
    assert!(
        facts.contains(r#""round-started":{"round":2,"tasks":3}"#),
        "{facts}"
    );
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}
