//! Thousands of schedules of faults. One seed is one schedule: first hostile, when nothing forbidden may happen,
//! then calm, when the job must end.
//!
//! `SEEDS=n` runs so many (2,000 unless told), `SEED=n` runs that one and prints what happened. With the feature
//! `mutants`, `MUTANT=name` makes the core make that mistake, and the last test finds every one of them.

#[path = "simulation/mod.rs"]
mod simulation;

use simulation::world::World;
use std::{
    panic::{self, AssertUnwindSafe},
    sync::Once,
};
use ydl_core::{Outcome, job::Mutant};

/// Number of schedules in a default test run.
const SEEDS: u64 = 2_000;
/// Number of trace lines printed.
const TAIL: usize = 120;

/// A schedule that violated an invariant.
struct Violation {
    seed: u64,
    reason: String,
}

/// Many schedules in numbers.
#[derive(Default)]
struct Tally {
    happened: u64,
    succeeded: u64,
    failed: u64,
    killed: u64,
}

impl Tally {
    fn add(&mut self, world: &World) {
        self.happened += world.happened;
        match &world.checks.outcome {
            Some(Outcome::Succeeded) => self.succeeded += 1,
            Some(Outcome::Failed(_)) => self.failed += 1,
            Some(Outcome::Killed { .. }) => self.killed += 1,
            None => {}
        }
    }
}

/// A kind of schedules.
type Schedule = fn(u64, Mutant, bool) -> World;

/// Lives one schedule.
fn simulate(schedule: Schedule, seed: u64, mutant: Mutant) -> Result<World, Violation> {
    let lived = panic::catch_unwind(|| {
        let mut world = schedule(seed, mutant, false);
        world.live();
        world
    });
    match lived {
        Ok(world) => Ok(world),
        Err(payload) => {
            let reason = payload
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string));
            Err(Violation { seed, reason: reason.unwrap_or_else(|| "it panicked".into()) })
        }
    }
}

/// Trace of a schedule, line by line.
fn trace(schedule: Schedule, seed: u64, mutant: Mutant) -> Vec<String> {
    let Ok(mut world) = panic::catch_unwind(|| schedule(seed, mutant, true)) else {
        return vec!["it failed before anything happened".into()];
    };
    let _ = panic::catch_unwind(AssertUnwindSafe(|| world.live()));
    let mut lines = vec![format!("{:#?}", world.plan.faults)];
    lines.extend(world.trace.take().unwrap_or_default());
    lines
}

/// Reports a violation by its own message, not by a panic's.
fn quietly() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| panic::set_hook(Box::new(|_| {})));
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("`{name}` must be a number, not `{text}`")))
}

/// The mistake that the environment asks for.
fn chosen_mutant() -> Mutant {
    #[cfg(feature = "mutants")]
    if let Ok(name) = std::env::var("MUTANT") {
        let found = Mutant::ALL.iter().find(|it| format!("{it:?}") == name);
        return *found.unwrap_or_else(|| panic!("there is no mutant `{name}`: {:?}", Mutant::ALL));
    }
    Mutant::None
}

#[test]
fn every_fault_schedule_keeps_the_invariants_and_every_job_ends() {
    live_all(World::new);
}

#[test]
fn every_serving_schedule_keeps_its_replicas_and_ends_its_updates() {
    live_all(World::serving);
}

fn live_all(schedule: Schedule) {
    let mutant = chosen_mutant();
    let one = number("SEED");
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").unwrap_or(SEEDS),
    };
    quietly();
    let mut tally = Tally::default();
    for seed in seeds.clone() {
        match simulate(schedule, seed, mutant) {
            Ok(world) => {
                tally.add(&world);
                if one.is_some() {
                    println!("{}", trace(schedule, seed, mutant).join("\n"));
                }
            }
            Err(violation) => {
                let lines = trace(schedule, violation.seed, mutant);
                let from = lines.len().saturating_sub(TAIL);
                for line in &lines[if one.is_some() { 0 } else { from }..] {
                    println!("{line}");
                }
                println!("\nseed {}: {}", violation.seed, violation.reason);
                if mutant == Mutant::None {
                    println!("to see it again: make sim SEED={}", violation.seed);
                }
                std::panic::resume_unwind(Box::new(violation.reason));
            }
        }
    }
    println!(
        "{} schedules, {} happenings: {} jobs succeeded, {} failed, {} were killed, all as they must",
        seeds.count(),
        tally.happened,
        tally.succeeded,
        tally.failed,
        tally.killed
    );
}

/// The test of the tests: every deliberate mistake is found by the schedules of an ordinary run, or
/// by a quarter of the serving ones.
#[cfg(feature = "mutants")]
#[test]
fn every_mutant_is_caught() {
    quietly();
    let mut survivors = Vec::new();
    for mutant in Mutant::ALL {
        let either = |seed| {
            let violation = simulate(World::new, seed, *mutant).err();
            let serving = || simulate(World::serving, seed, *mutant).err();
            violation.or_else(|| if seed < SEEDS / 4 { serving() } else { None })
        };
        match (0..SEEDS).find_map(either) {
            Some(violation) => {
                println!("{mutant:?}: seed {}: {}", violation.seed, violation.reason)
            }
            None => survivors.push(mutant),
        }
    }
    if !survivors.is_empty() {
        println!("survived {SEEDS} schedules: {survivors:?}");
    }
    assert!(survivors.is_empty());
}
