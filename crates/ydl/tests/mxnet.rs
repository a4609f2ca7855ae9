//! The MXNet example with the real MXNet, as a user would run it.

mod home;

use home::{Home, example, kill_and_stop, kill_one};
use std::time::Duration;

#[test]
fn the_example_learns_its_digits_and_ranks_are_indexes() {
    let home = Home::new();
    let words = example(&home, "mxnet", "python train.py --epochs 12");
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

/// In mid-training there is time to kill somebody.
const SLOWLY: &str = "python train.py --epochs 8 --pause 0.02";

#[test]
fn workers_that_are_killed_and_stopped_start_new_rounds_that_end_well() {
    let home = Home::new();
    let words = example(&home, "mxnet", SLOWLY);
    let ran = kill_and_stop(&home, words, ["epoch 1 ", "epoch 3 "], "DMLC_WORKER_ID=1");
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
}

#[test]
fn without_restarts_a_killed_worker_fails_the_job_within_seconds() {
    let home = Home::new();
    let words = example(&home, "mxnet", SLOWLY);
    let (ran, took) = kill_one(&home, words, 0, "epoch 1 ", "DMLC_WORKER_ID=1");
    assert_eq!(ran.code, 137, "{ran:#?}");
    assert!(took < Duration::from_secs(20), "it took {took:?}");
    assert!(
        ran.err.contains("worker:1 was killed by SIGKILL on `"),
        "{ran:#?}"
    );
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}
