//! Output of the elastic example, on this machine or on a cluster.

use std::collections::BTreeMap;

/// Steps after which the loss is visibly smaller.
const MIN_STEPS: u32 = 30;

/// A training, according to the output of its programs.
#[derive(Debug, Default)]
pub struct Training {
    /// Rounds by number.
    rounds: BTreeMap<u32, Round>,
    /// Losses by step.
    losses: BTreeMap<u32, f64>,
    weights: Vec<String>,
    accuracies: Vec<f64>,
}

#[derive(Debug, Default)]
struct Round {
    world: u32,
    ranks: Vec<u32>,
    /// The step after which it resumed, and the number of later steps that were lost.
    after: u32,
    lost: u32,
}

impl Training {
    /// Parses the output of each program. An incomplete last line does not count.
    pub fn read(printed: &[String]) -> Training {
        let mut training = Training::default();
        let whole = printed.iter().filter_map(|text| text.rsplit_once('\n'));
        for line in whole.flat_map(|(whole, _)| whole.lines()) {
            let words: Vec<&str> = line.split([' ', ',']).collect();
            match words[..] {
                [
                    "rank",
                    rank,
                    "of",
                    world,
                    "in",
                    "round",
                    round,
                    "resumes",
                    "after",
                    "step",
                    after,
                    "",
                    lost,
                    "lost",
                ] => {
                    let round = training.rounds.entry(number(round)).or_default();
                    round.world = number(world);
                    round.ranks.push(number(rank));
                    (round.after, round.lost) = (number(after), number(lost));
                }
                ["step", step, "loss", loss] => {
                    let loss = loss.parse().expect("a loss");
                    training.losses.insert(number(step), loss);
                }
                ["weights", weights] => training.weights.push(weights.to_owned()),
                ["test", "accuracy", accuracy] => {
                    training.accuracies.push(accuracy.parse().expect("a number"));
                }
                _ => {}
            }
        }
        training
    }

    fn worlds(&self) -> Vec<u32> {
        self.rounds.values().map(|round| round.world).collect()
    }

    /// Returns true if rounds of these sizes followed each other, possibly with others in between, and the last one
    /// has the last size. A cluster may take or give containers one by one.
    fn has_had(&self, worlds: &[u32]) -> bool {
        let had = self.worlds();
        let mut left = worlds.iter().peekable();
        for world in &had {
            left.next_if(|it| *it == world);
        }
        left.next().is_none() && had.last() == worlds.last()
    }

    /// Returns true after rounds of these sizes, once the last has trained for [`MIN_STEPS`].
    pub fn has_reached(&self, worlds: &[u32]) -> bool {
        let Some(newest) = self.rounds.values().next_back() else {
            return false;
        };
        let learned = self.losses.keys().next_back().copied().unwrap_or(0);
        self.has_had(worlds) && learned >= newest.after + MIN_STEPS
    }

    /// Asserts that rounds of these sizes had every rank once, that each resumed where the one before stopped with at
    /// most `lost_most` steps lost, and that all programs ended with the same weights.
    pub fn assert_successful(&self, worlds: &[u32], lost_most: u32) {
        assert!(self.has_had(worlds), "{self:#?}");
        let mut after = 0;
        for round in self.rounds.values() {
            let mut ranks = round.ranks.clone();
            ranks.sort_unstable();
            assert!(ranks.iter().copied().eq(0..round.world), "{self:#?}");
            assert!(round.after >= after, "{self:#?}");
            assert!(round.lost <= lost_most, "{self:#?}");
            after = round.after;
        }
        let lost: u32 = self.rounds.values().map(|round| round.lost).sum();
        let steps = self.losses.len();
        let worlds = self.worlds();
        println!("rounds of {worlds:?}, {steps} steps, {lost} of them done twice");
        // The loss resumes where it was, well below the first step's. Rank 0 prints the loss of its own share, which may
        // be a hard one.
        let first = self.losses[&1];
        for round in self.rounds.values().filter(|round| round.after > 0) {
            let next = self.losses.range(round.after + 1..).take(10);
            let mean = next.map(|(_, loss)| loss).sum::<f64>() / 10.0;
            assert!(mean < 0.7 * first, "{mean} after {}: {self:#?}", round.after);
        }
        let last = *worlds.last().expect("a round") as usize;
        assert_eq!(self.weights.len(), last, "{self:#?}");
        assert!(self.weights.windows(2).all(|two| two[0] == two[1]));
        assert!(self.accuracies.iter().all(|it| *it > 0.9), "{self:#?}");
    }
}

fn number(word: &str) -> u32 {
    word.parse().expect("a number")
}
