//! The MXNet example with the real MXNet, as a user would run it.

use std::time::Duration;
use ydl_testkit::local::{
    Home, example_arguments, kill_then_stop, printed_value, submit_and_kill, submit_and_signal,
    with_pauses,
};

#[test]
fn the_example_learns_its_digits_and_ranks_are_indexes() {
    let home = Home::new();
    let words = example_arguments(&home, "mxnet", "python train.py --epochs 12");
    let output = home.ydl().args(&words).output().expect("ydl");
    let ran = ydl_testkit::CommandOutput::from(output);
    assert_eq!(ran.code, 0, "{ran:#?}");
    for worker in 0..2 {
        let prefix = format!("worker:{worker} | ");
        let lines: Vec<_> =
            ran.stdout.lines().filter_map(|line| line.strip_prefix(&prefix)).collect();
        assert!(lines.iter().any(|line| line.starts_with("epoch 12 accuracy")), "{ran:#?}");
        let last = lines.iter().rev().find_map(|line| line.strip_prefix("test accuracy "));
        let accuracy: f64 = last.expect("a test accuracy").parse().expect("a number");
        assert!(accuracy >= 0.95, "{accuracy}");
        let rank = format!("rank {worker} of 2");
        assert!(lines.iter().any(|line| line.contains(&rank)), "no `{rank}` in {lines:?}");
    }
    assert!(home.path().join("result/digits.params").exists(), "the model was not copied");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

/// The example with its other program or another way to share weights, and what each worker says last.
fn trains(run: &str, more: &str) -> [(f64, String); 2] {
    let home = Home::new();
    let mut words = example_arguments(&home, "mxnet", run);
    let from = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let from = from.join("../../examples/mxnet-digits/train_module.py");
    std::fs::copy(from, home.path().join("train_module.py")).expect("the example's file");
    let files = "files=[train.py, train_module.py]";
    words.extend(["--set", files].map(String::from));
    let ran = ydl_testkit::CommandOutput::from(home.ydl().args(&words).output().expect("ydl"));
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
    [0, 1].map(|worker| {
        let accuracy = printed_value(&ran, worker, "test accuracy");
        let rank = printed_value(&ran, worker, "rank");
        assert!(rank.starts_with(&format!("{worker} of 2")), "{rank}");
        let last = printed_value(&ran, worker, more).to_owned();
        (accuracy.parse().expect("a number"), last)
    })
}

#[test]
fn workers_of_dist_async_and_of_the_module_api_learn_as_well() {
    let run = "python train.py --epochs 8 --lr 0.05 --kv-store dist_async";
    // Workers do not synchronize, so one may finish before the other starts.
    let best = trains(run, "test accuracy").map(|(accuracy, _)| accuracy);
    assert!(best[0].max(best[1]) > 0.9, "{best:?}");
    let run = "python train_module.py --epochs 8 --kv-store dist_device_sync";
    let [first, second] = trains(run, "weights");
    assert!(first.0 > 0.92, "{first:?}");
    assert_eq!(first, second);
}

#[test]
fn a_worker_of_dist_async_is_replaced_alone_and_gets_its_rank_and_the_weights_back() {
    let home = Home::new();
    let run = "python train.py --epochs 8 --pause 0.02 --lr 0.05 --kv-store dist_async";
    let mut words = example_arguments(&home, "mxnet", run);
    let restart = "roles.worker.restart={scope: task, limit: 1, backoff: {initial: 10ms}}";
    words.extend(["--set", restart].map(String::from));
    let so = |said: &str| said.contains("epoch 3 ");
    let (ran, _) = submit_and_signal(&home, &words, 9, "worker/1", so, "DMLC_WORKER_ID=1");
    assert_eq!(ran.code, 0, "{ran:#?}");
    let facts = home.history();
    assert!(!facts.contains(r#""round-restarted""#), "{facts}");
    assert_eq!(facts.matches(r#""attempt-started""#).count(), 5, "{facts}");
    // It began anew, with what the servers had learned by then.
    let all: Vec<_> = ran.stdout.lines().collect();
    let again = all.iter().rposition(|line| line.starts_with("worker:1 | rank 1 of 2"));
    let first = "worker:1 | epoch 1 accuracy ";
    let mut after = all[again.expect("its rank")..].iter();
    let first = after.find_map(|line| line.strip_prefix(first));
    let first: f64 = first.expect("an epoch").parse().expect("a number");
    assert!(first > 0.75, "{ran:#?}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn workers_that_are_killed_and_stopped_start_new_rounds_that_end_well() {
    let home = Home::new();
    let words = example_arguments(&home, "mxnet", &with_pauses("python train.py --epochs 8", 0.06));
    let ran = kill_then_stop(&home, words, ["epoch 1 ", "epoch 3 "], "DMLC_WORKER_ID=1");
    let facts = home.history();
    assert!(facts.contains(r#""round-started":{"round":2,"tasks":4}"#), "{facts}");
    assert!(facts.contains(r#""ending":{"signalled":{"signal":9}}"#), "{facts}");
    assert!(ran.stdout.contains("test accuracy 0.9"), "{ran:#?}");
}

#[test]
fn without_restarts_a_killed_worker_fails_the_job_within_seconds() {
    let home = Home::new();
    let words = example_arguments(&home, "mxnet", "python train.py --epochs 8 --pause 0.1");
    let (ran, took) = submit_and_kill(&home, words, 0, "epoch 1 ", "DMLC_WORKER_ID=1");
    assert_eq!(ran.code, 137, "{ran:#?}");
    assert!(took < Duration::from_secs(120), "it took {took:?}");
    assert!(ran.stderr.contains("worker:1 was killed by SIGKILL on `"), "{ran:#?}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}
