//! The Horovod examples with the real Horovod, for PyTorch and TensorFlow.

use std::{fs, path::Path, process::Child};
use ydl_testkit::{
    CommandOutput, example_environment, finish,
    local::{
        Home, WAIT_TIMEOUT, assert_workers_agree, copy_example, example_arguments, kill,
        kill_then_stop, printed_value, program_with_variable, run_example, submit_and_kill,
        with_pauses,
    },
};

#[test]
fn the_pytorch_example_of_horovod_learns_its_digits() {
    let home = Home::new();
    let args = example_arguments(&home, "horovod", "python train.py --epochs 12");
    let ran = run_example(&home, &args);
    assert_workers_agree(&ran, 2, 0.92, "weights");
}

#[test]
fn the_tensorflow_example_of_horovod_learns_its_digits() {
    let home = Home::new();
    let files = ["tensorflow.yaml", "train_tensorflow.py"];
    let run = "python train_tensorflow.py --epochs 12";
    let args = copy_example(&home, "horovod", files, run);
    let ran = run_example(&home, &args);
    assert_workers_agree(&ran, 2, 0.92, "weights");
}

#[test]
fn processes_of_one_task_are_separate_ranks() {
    let home = Home::new();
    let mut args = example_arguments(&home, "horovod", "python train.py --epochs 2");
    for set in ["roles.worker.instances=1", "roles.worker.processes=2"] {
        args.extend(["--set", set].map(String::from));
    }
    let ran = run_example(&home, &args);
    assert!(printed_value(&ran, 0, "[0] rank").starts_with("0 of 2"), "{ran:#?}");
    assert!(printed_value(&ran, 0, "[1] rank").starts_with("1 of 2"), "{ran:#?}");
    assert_eq!(printed_value(&ran, 0, "[0] weights"), printed_value(&ran, 0, "[1] weights"));
}

#[test]
fn a_killed_worker_starts_a_new_round_from_the_checkpoint() {
    let home = Home::new();
    let args =
        example_arguments(&home, "horovod", &with_pauses("python train.py --epochs 12", 0.06));
    let ran = kill_then_stop(&home, args, ["epoch 3 ", "epoch 6 "], "HOROVOD_RANK=1");
    assert_workers_agree(&ran, 2, 0.92, "weights");
    let first = printed_value(&ran, 1, "rank 1 of 2, from epoch");
    let first: u32 = first.parse().expect("a number");
    assert!(first >= 6, "five epochs were done, and it began with {first}");
}

#[test]
fn without_restarts_a_killed_worker_fails_the_job_at_once() {
    let home = Home::new();
    let args = example_arguments(&home, "horovod", "python train.py --epochs 12 --pause 0.2");
    let (ran, took) = submit_and_kill(&home, args, 0, "epoch 1 ", "HOROVOD_RANK=1");
    // The exit code is that of the signal, or of the other worker's error.
    assert_ne!(ran.code, 0, "{ran:#?}");
    // The master does not wait for Horovod's own timeouts, or for a grace period.
    assert!(took < WAIT_TIMEOUT, "it took {took:?}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

/// Starts an elastic job of two or three workers that ends after `worlds` worlds. With `drop_first`, the first
/// notification of new workers has no effect.
fn elastic(home: &Home, worlds: u32, drop_first: bool) -> Child {
    let drop = u8::from(drop_first);
    let program = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../ydl-rendezvous/tests/real_frameworks/horovod/elastic.py");
    fs::copy(program, home.path().join("elastic.py")).expect("the program");
    home.start(&format!(
        "name: elastic
framework: horovod
environment: {}
files: [elastic.py]
env: {{OMP_NUM_THREADS: '1', WORLDS: '{worlds}', DROP_FIRST_NOTIFICATION: '{drop}', HOROVOD_GLOO_TIMEOUT_SECONDS: '20'}}
gang: {{settle: 1s}}
restart: {{limit: 3, backoff: {{initial: 10ms, max: 10ms}}}}
roles:
  worker: {{instances: {{min: 2, max: 3, start: 2}}, memory: 512 MiB, run: python elastic.py}}
",
        example_environment("horovod").display()
    ))
}

fn wait_for_world(home: &Home, worker: u32, attempt: u32, world: &str) {
    let log = |home: &Home| home.job().join(format!("logs/worker/{worker}/{attempt}/stdout.0"));
    home.wait_for_text(log, &format!("world of {world}\n"));
}

/// Asserts that all programs succeeded in one round.
fn ended_in_one_round(home: &Home, child: Child, changes: usize) -> CommandOutput {
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let history = home.history();
    let count = |what: &str| history.matches(what).count();
    assert_eq!(count("\"round-started\""), 1, "{history}");
    assert_eq!(count("\"members-changed\""), changes, "{history}");
    assert_eq!(count("\"attempt-started\""), 3, "{history}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
    ran
}

#[test]
fn workers_join_and_leave_while_the_others_keep_running() {
    let home = Home::new();
    let child = elastic(&home, 3, false);
    home.wait_for_job();
    for worker in 0..2 {
        wait_for_world(&home, worker, 1, &format!("2 as rank {worker}"));
    }
    assert_eq!(home.run(&["scale", "elastic", "worker=3"]).code, 0);
    for worker in 0..3 {
        wait_for_world(&home, worker, 1, &format!("3 as rank {worker}"));
    }
    assert_eq!(home.run(&["scale", "elastic", "worker=2"]).code, 0);
    let ran = ended_in_one_round(&home, child, 2);
    assert!(printed_value(&ran, 0, "worlds").starts_with("[2, 3, 2] "), "{ran:#?}");
    assert_eq!(printed_value(&ran, 0, "worlds"), printed_value(&ran, 1, "worlds"));
}

#[test]
fn a_newcomer_joins_although_its_first_notification_is_ignored() {
    let home = Home::new();
    let child = elastic(&home, 3, true);
    home.wait_for_job();
    home.wait_for("the first round", |home| {
        home.history().contains("\"round-started\"").then_some(())
    });
    assert_eq!(home.run(&["scale", "elastic", "worker=3"]).code, 0);
    for worker in 0..3 {
        wait_for_world(&home, worker, 1, &format!("3 as rank {worker}"));
    }
    assert_eq!(home.run(&["scale", "elastic", "worker=2"]).code, 0);
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(printed_value(&ran, 0, "worlds").starts_with("[2, 3, 2] "), "{ran:#?}");
}

#[test]
fn a_killed_worker_rejoins_the_running_round() {
    let home = Home::new();
    let child = elastic(&home, 2, false);
    home.wait_for_job();
    for worker in 0..2 {
        wait_for_world(&home, worker, 1, &format!("2 as rank {worker}"));
    }
    kill(program_with_variable(&home, "python elastic.py", "HOROVOD_RANK=0"), 9);
    // One worker is below the minimum. The restarted rank 0 becomes the last rank and gets the state of the other.
    wait_for_world(&home, 0, 2, "2 as rank 1");
    let ran = ended_in_one_round(&home, child, 1);
    assert_eq!(printed_value(&ran, 0, "worlds"), printed_value(&ran, 1, "worlds"));
}

#[test]
fn the_elastic_example_learns_its_digits() {
    let home = Home::new();
    let files = ["elastic.yaml", "train_elastic.py"];
    let run = "python train_elastic.py --epochs 12";
    let args = copy_example(&home, "horovod", files, run);
    let train =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/horovod-digits/train.py");
    fs::copy(train, home.path().join("train.py")).expect("the example's file");
    let ran = run_example(&home, &args);
    assert_workers_agree(&ran, 2, 0.92, "weights");
}
