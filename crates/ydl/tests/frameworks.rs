//! The frameworks' examples with the real frameworks, as a user would run them: their results by numbers, and a worker that
//! is killed in the middle.

mod home;

use home::{Home, Ran, agree, example, kill_and_stop, runs_well, said};

fn trains(framework: &str, run: &str) -> Ran {
    let home = Home::new();
    let words = example(&home, framework, run);
    runs_well(&home, &words)
}

#[test]
fn pytorch_s_example_learns_its_digits() {
    let ran = trains("pytorch", "python train.py --epochs 12");
    agree(&ran, 2, 0.92, "weights");
}

#[test]
fn pytorch_goes_on_from_its_checkpoint_when_a_worker_is_killed() {
    let home = Home::new();
    let words = example(&home, "pytorch", "python train.py --epochs 12 --pause 0.02");
    let ran = kill_and_stop(&home, words, ["epoch 3 ", "epoch 6 "], "RANK=1");
    agree(&ran, 2, 0.92, "weights");
    let first = said(&ran, 1, "rank 1 of 2, from epoch");
    let first: u32 = first.parse().expect("a number");
    assert!(
        first >= 6,
        "five epochs were done, and it began with {first}"
    );
}

#[test]
fn pytorch_s_processes_of_one_task_are_ranks_of_their_own() {
    let home = Home::new();
    let mut words = example(&home, "pytorch", "python train.py --epochs 12");
    let roles = ["roles.worker.instances=1", "roles.worker.processes=2"];
    words.extend(
        roles
            .iter()
            .flat_map(|set| ["--set".into(), set.to_string()]),
    );
    let ran = Ran::from(home.ydl().args(&words).output().expect("ydl"));
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(said(&ran, 0, "[0] rank").starts_with("0 of 2"), "{ran:#?}");
    assert!(said(&ran, 0, "[1] rank").starts_with("1 of 2"), "{ran:#?}");
    assert_eq!(said(&ran, 0, "[0] weights"), said(&ran, 0, "[1] weights"));
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn xgboost_s_example_learns_its_digits() {
    let ran = trains("xgboost", "python train.py --rounds 10");
    agree(&ran, 3, 0.93, "gain");
}

#[test]
fn xgboost_begins_anew_when_a_worker_is_killed() {
    let home = Home::new();
    let words = example(&home, "xgboost", "python train.py --rounds 10 --pause 0.2");
    let ran = kill_and_stop(&home, words, ["round 2 "; 2], "DMLC_TASK_ID=1");
    agree(&ran, 3, 0.93, "gain");
}

#[test]
fn lightgbm_s_example_learns_its_digits() {
    let ran = trains("lightgbm", "python train.py --rounds 20");
    agree(&ran, 3, 0.93, "gain");
}

#[test]
fn lightgbm_begins_anew_when_a_worker_is_killed() {
    let home = Home::new();
    let words = example(&home, "lightgbm", "python train.py --rounds 20 --pause 0.1");
    let ran = kill_and_stop(&home, words, ["round 2"; 2], "YDL_INDEX=1");
    agree(&ran, 3, 0.93, "gain");
}
