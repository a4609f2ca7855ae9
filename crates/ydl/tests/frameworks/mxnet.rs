//! The MXNet example with the real MXNet.

use ydl_testkit::local::{
    Home, WAIT_TIMEOUT, example_arguments, kill_then_stop, printed_value, submit_and_kill,
    submit_and_signal, with_pauses,
};

#[test]
fn the_mxnet_example_learns_its_digits_and_ranks_are_indexes() {
    let home = Home::new();
    let args = example_arguments(&home, "mxnet", "python train.py --epochs 12");
    let output = home.ydl().args(&args).output().expect("ydl");
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

/// Runs the example with another program or kvstore. Returns the accuracy of each worker, and the text after `more`.
fn trains(run: &str, more: &str) -> [(f64, String); 2] {
    let home = Home::new();
    let mut args = example_arguments(&home, "mxnet", run);
    let from = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let from = from.join("../../examples/mxnet-digits/train_module.py");
    std::fs::copy(from, home.path().join("train_module.py")).expect("the example's file");
    let files = "files=[train.py, train_module.py]";
    args.extend(["--set", files].map(String::from));
    let ran = ydl_testkit::CommandOutput::from(home.ydl().args(&args).output().expect("ydl"));
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
fn dist_async_and_the_module_api_train() {
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
fn a_killed_worker_of_dist_async_is_replaced_with_its_rank_and_weights() {
    let home = Home::new();
    let run = "python train.py --epochs 8 --pause 0.02 --lr 0.05 --kv-store dist_async";
    let mut args = example_arguments(&home, "mxnet", run);
    let restart = "roles.worker.restart={scope: task, limit: 1, backoff: {initial: 10ms}}";
    args.extend(["--set", restart].map(String::from));
    let reached = |output: &str| output.contains("epoch 3 ");
    let (ran, _) = submit_and_signal(&home, &args, 9, "worker/1", reached, "DMLC_WORKER_ID=1");
    assert_eq!(ran.code, 0, "{ran:#?}");
    let history = home.history();
    assert!(!history.contains(r#""round-restarted""#), "{history}");
    assert_eq!(history.matches(r#""attempt-started""#).count(), 5, "{history}");
    // The replacement starts with the weights of the servers.
    let all: Vec<_> = ran.stdout.lines().collect();
    let again = all.iter().rposition(|line| line.starts_with("worker:1 | rank 1 of 2"));
    let first = "worker:1 | epoch 1 accuracy ";
    let mut after = all[again.expect("a rank")..].iter();
    let first = after.find_map(|line| line.strip_prefix(first));
    let first: f64 = first.expect("an epoch").parse().expect("a number");
    assert!(first > 0.75, "{ran:#?}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn killed_and_stopped_workers_start_new_rounds_that_succeed() {
    let home = Home::new();
    let args = example_arguments(&home, "mxnet", &with_pauses("python train.py --epochs 8", 0.06));
    let ran = kill_then_stop(&home, args, ["epoch 1 ", "epoch 3 "], "DMLC_WORKER_ID=1");
    let history = home.history();
    assert!(history.contains(r#""round-started":{"round":2,"tasks":4}"#), "{history}");
    assert!(history.contains(r#""ending":{"signalled":{"signal":9}}"#), "{history}");
    assert!(ran.stdout.contains("test accuracy 0.9"), "{ran:#?}");
}

#[test]
fn without_restarts_a_killed_mxnet_worker_fails_the_job_at_once() {
    let home = Home::new();
    let args = example_arguments(&home, "mxnet", "python train.py --epochs 8 --pause 0.1");
    let (ran, took) = submit_and_kill(&home, args, 0, "epoch 1 ", "DMLC_WORKER_ID=1");
    assert_eq!(ran.code, 137, "{ran:#?}");
    assert!(took < WAIT_TIMEOUT, "it took {took:?}");
    assert!(ran.stderr.contains("worker:1 was killed by SIGKILL on `"), "{ran:#?}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}
