//! The JAX example with the real JAX: its result, and killed workers.

use ydl_testkit::{
    CommandOutput,
    local::{Home, example_arguments, kill_then_stop, printed_value, run_example, with_pauses},
};

/// Checks that each worker has its rank, sees all processes, and has learned the same accurate network.
fn assert_learned(ran: &CommandOutput) {
    for worker in 0..2 {
        let rank = printed_value(ran, worker, "rank");
        assert!(rank.starts_with(&format!("{worker} of 2")), "{rank}");
        assert_eq!(printed_value(ran, worker, "present"), "[0, 1]", "{ran:#?}");
        let accuracy: f64 = printed_value(ran, worker, "test accuracy").parse().expect("a number");
        assert!(accuracy >= 0.92, "{accuracy}");
        for label in ["epoch 12 loss", "weights"] {
            assert_eq!(printed_value(ran, worker, label), printed_value(ran, 0, label), "{ran:#?}");
        }
    }
    let loss: f64 = printed_value(ran, 0, "epoch 12 loss").parse().expect("a number");
    assert!(loss < 0.4, "{loss}");
}

#[test]
fn the_example_learns_its_digits() {
    let home = Home::new();
    let args = example_arguments(&home, "jax", "python train.py --epochs 12");
    assert_learned(&run_example(&home, &args));
}

/// Asserts that all workers resume from the checkpoint in a new round with a new coordinator. Without the restart, the
/// others would wait for JAX's own timeout of a minute and a half.
fn assert_new_round_after_kill(victim: &str) {
    let home = Home::new();
    let args = example_arguments(&home, "jax", &with_pauses("python train.py --epochs 12", 0.06));
    let ran = kill_then_stop(&home, args, ["epoch 3 ", "epoch 6 "], victim);
    assert_learned(&ran);
    let first = printed_value(&ran, 1, "rank 1 of 2, from epoch");
    let first: u32 = first.parse().expect("a number");
    assert!(first >= 6, "five epochs were done, and it began with {first}");
}

#[test]
fn a_killed_worker_starts_a_new_round() {
    assert_new_round_after_kill("JAX_PROCESS_ID=1");
}

#[test]
fn a_killed_coordinator_starts_a_new_round() {
    assert_new_round_after_kill("JAX_PROCESS_ID=0");
}
