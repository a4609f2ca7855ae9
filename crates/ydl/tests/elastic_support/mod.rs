//! What the elastic example says of itself, whichever machine or cluster it runs on.

use std::collections::BTreeMap;

/// So many steps teach enough to be seen in the loss.
const LEARNED: u32 = 30;

/// A training, as its programs have told it.
#[derive(Debug, Default)]
pub struct Training {
    /// By its number.
    rounds: BTreeMap<u32, Round>,
    /// Every step with its loss, in the order of their numbers.
    losses: BTreeMap<u32, f64>,
    weights: Vec<String>,
    accuracies: Vec<f64>,
}

#[derive(Debug, Default)]
struct Round {
    world: u32,
    ranks: Vec<u32>,
    /// The step that it went on after, and how many later ones were lost.
    after: u32,
    lost: u32,
}

impl Training {
    /// From what each program has printed. A line that is still being written does not count.
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

    /// Whether it has had rounds of these sizes, one after the other, others in between: a cluster may take or give one
    /// by one.
    fn has_had(&self, worlds: &[u32]) -> bool {
        let had = self.worlds();
        let mut left = worlds.iter().peekable();
        for world in &had {
            left.next_if(|it| *it == world);
        }
        left.next().is_none() && had.last() == worlds.last()
    }

    /// The same, and whether it learned something in the last.
    pub fn has_reached(&self, worlds: &[u32]) -> bool {
        let Some(newest) = self.rounds.values().next_back() else {
            return false;
        };
        let learned = self.losses.keys().next_back().copied().unwrap_or(0);
        self.has_had(worlds) && learned >= newest.after + LEARNED
    }

    /// Rounds of these sizes had every rank once, each went on where the one before was stopped with at most so many steps
    /// lost, and in the end all have learned the same.
    pub fn went_well(&self, worlds: &[u32], lost_most: u32) {
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
        // The loss goes on from where it was: what the first step cost is never seen again. Rank 0 tells that of its own
        // share, which may be a hard one.
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
