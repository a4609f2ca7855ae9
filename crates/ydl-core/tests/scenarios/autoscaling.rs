//! The autoscaler in a closed loop: replicas start some seconds after a decision, and requests that
//! find no free one are held.

use std::fmt::Write;

use expect_test::{Expect, expect};
use ydl_core::{
    RoleName, Span, TaskId, Time,
    serve::{Autoscaler, Load},
    spec::{Autoscale, Range},
};

/// Seconds until a replica serves.
const STARTS_IN: u64 = 20;
/// Requests that a replica handles at once.
const CONCURRENCY: u64 = 8;

struct Loop {
    autoscaler: Autoscaler,
    now: u64,
    size: u32,
    /// Times at which replicas serve, by index.
    replicas: Vec<u64>,
    output: String,
}

impl Loop {
    fn new(limits: Range, size: u32) -> Loop {
        let policy = Autoscale::default();
        Loop {
            autoscaler: Autoscaler::new(policy, limits, Time(0)),
            now: 0,
            size,
            replicas: vec![0; size as usize],
            output: String::new(),
        }
    }

    /// So many concurrent requests for so many seconds.
    fn run(&mut self, seconds: u64, requests: impl Fn(u64) -> u64) -> &mut Loop {
        for _ in 0..seconds {
            self.now += 1;
            let ready: Vec<u32> =
                (0..self.size).filter(|at| self.replicas[*at as usize] <= self.now).collect();
            let requests = requests(self.now);
            let taken = requests.min(ready.len() as u64 * CONCURRENCY);
            let share = |at: usize| {
                let all = ready.len() as u64;
                taken / all + u64::from((at as u64) < taken % all)
            };
            let task = |index: u32| TaskId { role: RoleName::from("server"), index };
            let load = Load {
                held: requests - taken,
                in_flight: ready
                    .iter()
                    .enumerate()
                    .map(|(at, it)| (task(*it), share(at)))
                    .collect(),
                size: self.size,
                updating: false,
            };
            if let Some(decision) = self.autoscaler.sample(Time(self.now * 1_000), &load) {
                let (at, to) = (Span::seconds(self.now), decision.instances);
                let _ = writeln!(self.output, "[{at}] {} to {to}: {}", self.size, decision.because);
                self.replicas.resize(to as usize, self.now + STARTS_IN);
                self.size = to;
            }
        }
        self
    }

    fn check(&self, expected: Expect) {
        expected.assert_eq(self.output.trim_end());
    }
}

fn limits(min: u32, max: u32) -> Range {
    Range { min, max }
}

#[test]
fn a_steady_load_gets_its_replicas_and_keeps_them() {
    Loop::new(limits(1, 20), 1).run(3_600, |_| 22).check(expect![[r#"
        [1s] 1 to 2: 22.00 concurrent requests, 14 held
        [21s] 2 to 4: 22.00 concurrent requests, 6 held
        [41s] 4 to 6: 22.00 concurrent requests, 0 held"#]]);
}

#[test]
fn a_sudden_load_is_answered_in_steps() {
    Loop::new(limits(1, 54), 2).run(600, |_| 7).run(600, |_| 160).check(expect![[r#"
        [10m 1s] 2 to 4: 32.50 concurrent requests, 144 held
        [10m 21s] 4 to 8: 160.00 concurrent requests, 128 held
        [10m 41s] 8 to 16: 160.00 concurrent requests, 96 held
        [11m 1s] 16 to 32: 160.00 concurrent requests, 32 held
        [11m 21s] 32 to 40: 160.00 concurrent requests, 0 held"#]]);
}

#[test]
fn a_load_that_swings_does_not_swing_the_size() {
    let swing = |now: u64| if (now / 30).is_multiple_of(2) { 4 } else { 20 };
    Loop::new(limits(1, 20), 4)
        .run(7_200, swing)
        .check(expect!["[5m 59s] 4 to 3: 12.00 concurrent requests, 0 held"]);
}

#[test]
fn replicas_that_are_not_needed_are_stopped_late() {
    let mut service = Loop::new(limits(0, 20), 5);
    service.run(900, |_| 20).run(1_200, |_| 3).run(1_200, |_| 0).run(60, |_| 1);
    service.check(expect![[r#"
        [20m 14s] 5 to 4: 3.00 concurrent requests, 0 held
        [20m 28s] 4 to 3: 3.00 concurrent requests, 0 held
        [20m 42s] 3 to 2: 3.00 concurrent requests, 0 held
        [20m 56s] 2 to 1: 3.00 concurrent requests, 0 held
        [45m] 1 to 0: 0.00 concurrent requests, 0 held
        [55m 1s] 0 to 1: 0.01 concurrent requests, 1 held"#]]);
}

#[test]
fn a_new_master_scales_up_at_once_and_down_after_a_full_window() {
    Loop::new(limits(1, 20), 5).run(299, |_| 0).check(expect![[r#""#]]);
    Loop::new(limits(1, 20), 5)
        .run(301, |_| 0)
        .check(expect!["[5m] 5 to 1: 0.00 concurrent requests, 0 held"]);
    Loop::new(limits(1, 20), 1)
        .run(1, |_| 8)
        .check(expect!["[1s] 1 to 2: 8.00 concurrent requests, 0 held"]);
}

#[test]
fn no_replica_is_given_up_while_one_loads_or_an_update_runs() {
    let mut autoscaler = Autoscaler::new(Autoscale::default(), limits(1, 20), Time(0));
    let task = |index| TaskId { role: RoleName::from("server"), index };
    let busy = |all: &[u64]| (0..).map(task).zip(all.iter().copied()).collect::<Vec<_>>();
    let mut decide = |from: u64, in_flight: &[u64], updating| {
        let load = Load { held: 0, in_flight: busy(in_flight), size: 3, updating };
        let mut seconds = from..from + 1_000;
        seconds.find_map(|now| autoscaler.sample(Time(now * 1_000), &load))
    };
    assert_eq!(decide(0, &[1, 0], false), None);
    assert_eq!(decide(1_000, &[2, 0, 1], true), None);
    let decision = decide(2_000, &[2, 0, 1], false).expect("one is enough");
    assert_eq!(decision.instances, 1);
    assert_eq!(decision.idle, [task(1), task(2), task(0)]);
}
