//! JAX's example with the real JAX, as a user would run it: its result by numbers, and a worker that is killed in the middle.

use ydl_testkit::{
    CommandOutput,
    local::{Home, example_arguments, kill_then_stop, printed_value, run_example, with_pauses},
};

/// Checks that each worker has its rank, sees all processes, and has learned the same accurate network.
fn learned(ran: &CommandOutput) {
    for worker in 0..2 {
        let rank = printed_value(ran, worker, "rank");
        assert!(rank.starts_with(&format!("{worker} of 2")), "{rank}");
        assert_eq!(printed_value(ran, worker, "present"), "[0, 1]", "{ran:#?}");
        let accuracy: f64 = printed_value(ran, worker, "test accuracy").parse().expect("a number");
        assert!(accuracy >= 0.92, "{accuracy}");
        for word in ["epoch 12 loss", "weights"] {
            assert_eq!(printed_value(ran, worker, word), printed_value(ran, 0, word), "{ran:#?}");
        }
    }
    let loss: f64 = printed_value(ran, 0, "epoch 12 loss").parse().expect("a number");
    assert!(loss < 0.4, "{loss}");
}

#[test]
fn the_example_learns_its_digits() {
    let home = Home::new();
    let words = example_arguments(&home, "jax", "python train.py --epochs 12");
    learned(&run_example(&home, &words));
}

/// All go on from the checkpoint, in a new round with a new coordinator. JAX itself would have the others wait for a minute and
/// a half.
fn goes_on_without(victim: &str) {
    let home = Home::new();
    let words = example_arguments(&home, "jax", &with_pauses("python train.py --epochs 12", 0.06));
    let ran = kill_then_stop(&home, words, ["epoch 3 ", "epoch 6 "], victim);
    learned(&ran);
    let first = printed_value(&ran, 1, "rank 1 of 2, from epoch");
    let first: u32 = first.parse().expect("a number");
    assert!(first >= 6, "five epochs were done, and it began with {first}");
}

#[test]
fn a_killed_worker_starts_a_new_round() {
    goes_on_without("JAX_PROCESS_ID=1");
}

#[test]
fn a_killed_coordinator_starts_a_new_round() {
    goes_on_without("JAX_PROCESS_ID=0");
}
