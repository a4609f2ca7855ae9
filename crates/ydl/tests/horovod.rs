//! Horovod's example with the real Horovod, built for PyTorch and for TensorFlow, as a user would run it.

mod home;

use home::{Home, agree, example, kill_and_stop, kill_one, laid_out, runs_well, said};
use std::time::Duration;

#[test]
fn pytorch_learns_its_digits() {
    let home = Home::new();
    let words = example(&home, "horovod", "python train.py --epochs 12");
    let ran = runs_well(&home, &words);
    agree(&ran, 2, 0.92, "weights");
}

#[test]
fn tensorflow_learns_its_digits() {
    let home = Home::new();
    let files = ["tensorflow.yaml", "train_tensorflow.py"];
    let run = "python train_tensorflow.py --epochs 12";
    let words = laid_out(&home, "horovod", files, run);
    let ran = runs_well(&home, &words);
    agree(&ran, 2, 0.92, "weights");
}

#[test]
fn processes_of_one_task_are_ranks_of_their_own() {
    let home = Home::new();
    let mut words = example(&home, "horovod", "python train.py --epochs 2");
    for set in ["roles.worker.instances=1", "roles.worker.processes=2"] {
        words.extend(["--set", set].map(String::from));
    }
    let ran = runs_well(&home, &words);
    assert!(said(&ran, 0, "[0] rank").starts_with("0 of 2"), "{ran:#?}");
    assert!(said(&ran, 0, "[1] rank").starts_with("1 of 2"), "{ran:#?}");
    assert_eq!(said(&ran, 0, "[0] weights"), said(&ran, 0, "[1] weights"));
}

#[test]
fn a_killed_worker_starts_a_new_round_from_the_checkpoint() {
    let home = Home::new();
    let words = example(&home, "horovod", "python train.py --epochs 12 --pause 0.02");
    let ran = kill_and_stop(&home, words, ["epoch 3 ", "epoch 6 "], "HOROVOD_RANK=1");
    agree(&ran, 2, 0.92, "weights");
    let first = said(&ran, 1, "rank 1 of 2, from epoch");
    let first: u32 = first.parse().expect("a number");
    assert!(
        first >= 6,
        "five epochs were done, and it began with {first}"
    );
}

#[test]
fn without_restarts_a_killed_worker_fails_the_job_and_nobody_waits_for_it() {
    let home = Home::new();
    let words = example(&home, "horovod", "python train.py --epochs 12 --pause 0.2");
    let (ran, took) = kill_one(&home, words, 0, "epoch 1 ", "HOROVOD_RANK=1");
    // By its signal, or with what the other one made of it.
    assert_ne!(ran.code, 0, "{ran:#?}");
    // Seconds, where Horovod's own patience is minutes.
    assert!(took < Duration::from_secs(30), "it took {took:?}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}
