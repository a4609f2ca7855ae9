//! Autoscaler: an integer value that turns samples of the load into sizes of a role.
//!
//! The master feeds it once a second. Samples stay in memory; only a decision becomes an event. A
//! new master starts with a new autoscaler, which scales down only after full windows of its own.

use crate::{
    id::TaskId,
    spec::{Autoscale, Range},
    time::{Span, Time},
};
use alloc::{collections::VecDeque, format, string::String, vec::Vec};

/// Sample of a role's load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests that the gateways hold because no replica is free.
    pub held: u64,
    /// Requests in flight at each serving replica.
    pub in_flight: Vec<(TaskId, u64)>,
    /// Replicas that are asked for.
    pub size: u32,
    /// True while an update runs.
    pub updating: bool,
}

/// Decision of the autoscaler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleDecision {
    /// New number of replicas.
    pub instances: u32,
    /// Reason for people.
    pub because: String,
    /// Serving replicas, the least busy first.
    pub idle: Vec<TaskId>,
}

/// Autoscaler of one role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Autoscaler {
    policy: Autoscale,
    limits: Range,
    started: Time,
    /// Requests at the time of each sample.
    samples: VecDeque<(Time, u64)>,
    /// Sizes that the load needed, for the time in which a replica is kept.
    needed: VecDeque<(Time, u32)>,
    /// Time of the last request.
    busy: Time,
    /// Time of the last change.
    changed: Option<Time>,
}

impl Autoscaler {
    /// Creates an autoscaler, at the start of a master.
    pub fn new(policy: Autoscale, limits: Range, now: Time) -> Autoscaler {
        Autoscaler {
            policy,
            limits,
            started: now,
            samples: VecDeque::new(),
            needed: VecDeque::new(),
            busy: now,
            changed: None,
        }
    }

    /// Takes a sample and returns a decision, if the size should change.
    pub fn sample(&mut self, now: Time, load: &Load) -> Option<ScaleDecision> {
        let counts = load.in_flight.iter().map(|(_, requests)| *requests);
        // Gateways report them, and may report anything.
        let in_flight = counts.fold(0, u64::saturating_add);
        let requests = in_flight.saturating_add(load.held);
        if requests > 0 {
            self.busy = now;
        }
        self.samples.push_back((now, requests));
        forget(&mut self.samples, now, self.policy.window);
        let panic = self.mean(now, self.policy.panic);
        let calm = self.mean(now, self.policy.window);
        // A sudden load is not averaged away, and a held request needs a replica.
        let sudden = self.replicas_for(panic) >= 2 * load.size.max(1);
        let mean = if sudden { panic } else { calm };
        let least = u32::from(load.held > 0);
        let need = self.replicas_for(mean).max(least);
        self.needed.push_back((now, need));
        forget(&mut self.needed, now, self.policy.down_after);
        let to = if need > load.size { self.up(now, load, need) } else { self.down(now, load) };
        let to = to.clamp(self.limits.min, self.limits.max);
        if to == load.size {
            return None;
        }
        self.changed = Some(now);
        let mut idle = load.in_flight.clone();
        idle.sort_by(|(a, x), (b, y)| x.cmp(y).then_with(|| a.cmp(b)));
        let average = format!("{}.{:02}", mean / 100, mean % 100);
        Some(ScaleDecision {
            instances: to,
            because: format!("{average} concurrent requests, {} held", load.held),
            idle: idle.into_iter().map(|(task, _)| task).collect(),
        })
    }

    /// Returns the size for a load that needs more. Replicas that start are waited for: each
    /// step at most doubles the size, and the next one follows when the load is known again.
    fn up(&self, now: Time, load: &Load, need: u32) -> u32 {
        let settled = self.changed.is_none_or(|at| at + self.policy.panic <= now);
        let starting = load.in_flight.len() < load.size as usize;
        let waits = !settled || (starting && load.size > 0 && self.changed.is_some());
        if waits && !self.is_overdue(now) { load.size } else { need.min(2 * load.size.max(1)) }
    }

    /// Returns true if replicas start for longer than a window: more are added all the same.
    fn is_overdue(&self, now: Time) -> bool {
        self.changed.is_some_and(|at| at + self.policy.window <= now)
    }

    /// Returns the size for a load that needs no more: the most that was needed for a while. No
    /// replica is given up while one is loading, or while an update counts on them.
    fn down(&self, now: Time, load: &Load) -> u32 {
        let loading = load.in_flight.len() < load.size as usize;
        let full = self.policy.window.max(self.policy.down_after);
        if loading || load.updating || self.started + full > now {
            return load.size;
        }
        let most = self.needed.iter().map(|(_, need)| *need).max().unwrap_or(load.size);
        let idle = self.busy.max(self.started) + self.policy.zero_after.max(full) <= now;
        most.max(u32::from(!idle)).min(load.size)
    }

    fn replicas_for(&self, hundredths: u64) -> u32 {
        let each = u64::from(self.policy.concurrency.max(1)) * 100;
        u32::try_from(hundredths.div_ceil(each)).unwrap_or(u32::MAX)
    }

    /// Returns the mean number of requests over a time, in hundredths.
    fn mean(&self, now: Time, over: Span) -> u64 {
        let recent = self.samples.iter().rev().take_while(|(at, _)| *at + over > now);
        let (count, sum) = recent.fold((0u64, 0u64), |(count, sum), (_, requests)| {
            (count + 1, sum.saturating_add(*requests))
        });
        sum.saturating_mul(100) / count.max(1)
    }
}

/// Forgets what is older than a time.
fn forget<T>(samples: &mut VecDeque<(Time, T)>, now: Time, after: Span) {
    while samples.front().is_some_and(|(at, _)| *at + after <= now) {
        samples.pop_front();
    }
}
