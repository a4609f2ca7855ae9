//! The frameworks' examples with the real frameworks, as a user would run them: their results by numbers, and a worker that
//! is killed in the middle.

mod home;

use home::{Home, Ran, example, kill_in_the_middle, said};

/// Everybody is who he is, is good enough, and says the same after that word.
fn agree(ran: &Ran, workers: u32, least: f64, word: &str) {
    for worker in 0..workers {
        let rank = said(ran, worker, "rank");
        assert!(
            rank.starts_with(&format!("{worker} of {workers}")),
            "{rank}"
        );
        let accuracy: f64 = said(ran, worker, "test accuracy")
            .parse()
            .expect("a number");
        assert!(accuracy >= least, "{accuracy}");
        assert_eq!(said(ran, worker, word), said(ran, 0, word), "{ran:#?}");
    }
}

fn runs_well(framework: &str, run: &str) -> Ran {
    let home = Home::new();
    let words = example(&home, framework, run);
    let ran = Ran::from(home.ydl().args(&words).output().expect("ydl"));
    assert_eq!(ran.code, 0, "{ran:#?}");
    let metrics = home.path().join("result/metrics.json");
    assert!(metrics.exists(), "the model was not copied");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
    ran
}

#[test]
fn pytorch_s_example_learns_its_digits() {
    let ran = runs_well("pytorch", "python train.py --epochs 12");
    agree(&ran, 2, 0.92, "weights");
}

#[test]
fn pytorch_goes_on_from_its_checkpoint_when_a_worker_is_killed() {
    let home = Home::new();
    let words = example(&home, "pytorch", "python train.py --epochs 12 --pause 0.02");
    let ran = kill_in_the_middle(&home, words, "epoch 3 ", "RANK=1");
    agree(&ran, 2, 0.92, "weights");
    let first = said(&ran, 1, "rank 1 of 2, from epoch");
    let first: u32 = first.parse().expect("a number");
    assert!(
        first >= 3,
        "two epochs were done, and it began with {first}"
    );
}

#[test]
fn xgboost_s_example_learns_its_digits() {
    let ran = runs_well("xgboost", "python train.py --rounds 10");
    agree(&ran, 3, 0.93, "gain");
}

#[test]
fn xgboost_begins_anew_when_a_worker_is_killed() {
    let home = Home::new();
    let words = example(&home, "xgboost", "python train.py --rounds 10 --pause 0.2");
    let ran = kill_in_the_middle(&home, words, "round 2 ", "DMLC_TASK_ID=1");
    agree(&ran, 3, 0.93, "gain");
}

#[test]
fn lightgbm_s_example_learns_its_digits() {
    let ran = runs_well("lightgbm", "python train.py --rounds 20");
    agree(&ran, 3, 0.93, "gain");
}

#[test]
fn lightgbm_begins_anew_when_a_worker_is_killed() {
    let home = Home::new();
    let words = example(&home, "lightgbm", "python train.py --rounds 20 --pause 0.1");
    let ran = kill_in_the_middle(&home, words, "round 2", "YDL_INDEX=1");
    agree(&ran, 3, 0.93, "gain");
}
