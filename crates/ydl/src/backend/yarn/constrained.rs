//! Asks with placement constraints, which use scheduling requests instead of the ledger.
//!
//! If the scheduler places them, a request replaces its predecessor like an ask does. If the placement
//! processor does, each request is separate: it is placed, or rejected and may be repeated.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::Instant;
use yarn_native::{
    ledger::{Key, ReplyCount},
    scheduler::{Constraint, Rejection, SchedulingRequest},
    types::{ExecutionType, Resource},
};

/// Delay before a rejected request is repeated.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Containers wanted under one key, in a job with constraints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConstrainedAsk {
    pub(super) count: u32,
    pub(super) resource: Resource,
    /// Tag of the containers in constraints.
    pub(super) tag: String,
    pub(super) constraint: Constraint,
}

#[derive(Debug)]
pub(super) struct ConstrainedAsks {
    /// True if a request adds to earlier ones instead of replacing them.
    additive: bool,
    asks: BTreeMap<Key, ConstrainedAsk>,
    /// Number of containers per key that the ResourceManager still has to grant, as far as known.
    pending: BTreeMap<Key, u32>,
    /// Counts of the request without a response.
    in_flight: Option<BTreeMap<Key, u32>>,
    /// Keys not to request again before this time.
    rejected: BTreeMap<Key, Instant>,
    /// Grants that the caller of `set` may not have seen.
    recent_grants: Vec<(ReplyCount, Key)>,
    /// Every ask so far. Withdrawing a request needs its full description.
    ever_asked: BTreeMap<Key, ConstrainedAsk>,
}

impl ConstrainedAsks {
    pub(super) fn new(additive: bool) -> ConstrainedAsks {
        ConstrainedAsks {
            additive,
            asks: BTreeMap::new(),
            pending: BTreeMap::new(),
            in_flight: None,
            rejected: BTreeMap::new(),
            recent_grants: Vec::new(),
            ever_asked: BTreeMap::new(),
        }
    }

    /// Replaces all wanted containers. Deducts containers granted after `seen`.
    pub(super) fn set(&mut self, asks: BTreeMap<Key, ConstrainedAsk>, seen: ReplyCount) {
        self.asks = asks;
        for (key, ask) in &self.asks {
            self.ever_asked.insert(*key, ask.clone());
        }
        self.recent_grants.retain(|(reply, _)| *reply > seen);
        for (_, key) in &self.recent_grants {
            if let Some(ask) = self.asks.get_mut(key) {
                ask.count = ask.count.saturating_sub(1);
            }
        }
    }

    /// Number of containers that are wanted and not granted.
    pub(super) fn outstanding(&self) -> u32 {
        self.asks.values().map(|ask| ask.count).sum()
    }

    pub(super) fn has_changes(&self, now: Instant) -> bool {
        !self.differences(now).is_empty()
    }

    fn differences(&self, now: Instant) -> BTreeMap<Key, u32> {
        let keys: BTreeSet<Key> = self.asks.keys().chain(self.pending.keys()).copied().collect();
        let mut differences = BTreeMap::new();
        for key in keys {
            let wanted = self.asks.get(&key).map_or(0, |ask| ask.count);
            let pending = self.pending.get(&key).copied().unwrap_or(0);
            let held_back = self.rejected.get(&key).is_some_and(|until| *until > now);
            match self.additive {
                // Surplus containers are released when they are granted.
                true if wanted > pending && !held_back => differences.insert(key, wanted - pending),
                false if wanted != pending => differences.insert(key, wanted),
                _ => None,
            };
        }
        differences
    }

    /// Returns the requests for a new heartbeat.
    pub(super) fn request(&mut self, now: Instant) -> Vec<SchedulingRequest> {
        let differences = self.differences(now);
        let asks = differences.iter().filter_map(|(key, count)| {
            let ask = self.ever_asked.get(key)?;
            Some(SchedulingRequest {
                priority: key.priority,
                request_id: key.allocation,
                tags: BTreeSet::from([ask.tag.clone()]),
                resource: ask.resource.clone(),
                count: *count,
                constraint: Some(ask.constraint.clone()),
                execution: ExecutionType::Guaranteed,
            })
        });
        let asks = asks.collect();
        self.in_flight = Some(differences);
        asks
    }

    /// The ResourceManager accepted the request.
    pub(super) fn on_response(&mut self) {
        for (key, count) in self.in_flight.take().into_iter().flatten() {
            let pending = self.pending.entry(key).or_default();
            *pending = if self.additive { *pending + count } else { count };
        }
    }

    /// The ResourceManager rejected the request as a whole.
    pub(super) fn on_request_failed(&mut self) {
        self.in_flight = None;
    }

    /// The ResourceManager lost its state.
    pub(super) fn on_resync(&mut self) {
        self.in_flight = None;
        self.pending.clear();
    }

    pub(super) fn owns(&self, key: Key) -> bool {
        self.ever_asked.contains_key(&key)
    }

    /// Records a grant. Returns true if the container is wanted.
    pub(super) fn on_grant(&mut self, key: Key, reply: ReplyCount) -> bool {
        if let Some(pending) = self.pending.get_mut(&key) {
            *pending = pending.saturating_sub(1);
        }
        self.pending.retain(|_, pending| *pending > 0);
        let ask = self.asks.get_mut(&key).filter(|ask| ask.count > 0);
        let Some(ask) = ask else {
            return false;
        };
        ask.count -= 1;
        self.recent_grants.push((reply, key));
        true
    }

    pub(super) fn on_rejected(&mut self, rejection: &Rejection, now: Instant) {
        let key = Key { priority: rejection.priority, allocation: rejection.request_id };
        if let Some(pending) = self.pending.get_mut(&key) {
            *pending = pending.saturating_sub(rejection.count.max(1));
            self.rejected.insert(key, now + RETRY_DELAY);
        }
        self.pending.retain(|_, pending| *pending > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key { priority: 1, allocation: 7 };

    fn wanted(count: u32) -> BTreeMap<Key, ConstrainedAsk> {
        let ask = ConstrainedAsk {
            count,
            resource: Resource::new(64, 1),
            tag: "worker".to_owned(),
            constraint: Constraint::Label(Vec::new()),
        };
        BTreeMap::from([(KEY, ask)])
    }

    /// Returns the counts of the requests of a successful heartbeat.
    fn requested(asks: &mut ConstrainedAsks, now: Instant) -> Vec<u32> {
        let requested = asks.request(now);
        asks.on_response();
        requested.into_iter().map(|ask| ask.count).collect()
    }

    #[test]
    fn a_count_is_sent_once_and_replaced_when_it_changes() {
        let now = Instant::now();
        let mut asks = ConstrainedAsks::new(false);
        asks.set(wanted(3), ReplyCount(0));
        assert!(asks.has_changes(now));
        assert_eq!(requested(&mut asks, now), [3]);
        assert!(requested(&mut asks, now).is_empty(), "already sent");
        assert!(asks.on_grant(KEY, ReplyCount(1)));
        assert!(requested(&mut asks, now).is_empty(), "both sides counted the grant");
        // A caller that wants three has not seen the grant.
        asks.set(wanted(3), ReplyCount(0));
        assert_eq!(asks.outstanding(), 2);
        assert!(requested(&mut asks, now).is_empty());
        asks.set(BTreeMap::new(), ReplyCount(1));
        assert_eq!(requested(&mut asks, now), [0], "the request is withdrawn");
        assert!(!asks.on_grant(KEY, ReplyCount(2)), "no longer wanted");
    }

    #[test]
    fn failed_or_forgotten_requests_are_sent_again() {
        let now = Instant::now();
        let mut asks = ConstrainedAsks::new(false);
        asks.set(wanted(2), ReplyCount(0));
        asks.request(now);
        asks.on_request_failed();
        assert_eq!(requested(&mut asks, now), [2]);
        asks.on_resync();
        assert_eq!(requested(&mut asks, now), [2]);
    }

    #[test]
    fn the_placement_processor_is_sent_only_increases() {
        let now = Instant::now();
        let mut asks = ConstrainedAsks::new(true);
        asks.set(wanted(3), ReplyCount(0));
        assert_eq!(requested(&mut asks, now), [3]);
        asks.set(wanted(5), ReplyCount(0));
        assert_eq!(requested(&mut asks, now), [2]);
        asks.set(wanted(1), ReplyCount(0));
        assert!(requested(&mut asks, now).is_empty(), "a request cannot be withdrawn");
    }
}
