//! Asks with constraints, which the ledger does not keep: the scheduler takes them in another form.
//!
//! Where the scheduler itself places them a request replaces the one before, as a line of an ask does. Where a step
//! before it does, each is a request of its own, which is placed, or rejected and may be made again.

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

/// Pause before what was rejected is asked for again.
const AGAIN: Duration = Duration::from_secs(1);

/// Containers that are wanted under one key, in a job that has constraints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lot {
    pub(super) count: u32,
    pub(super) resource: Resource,
    /// What they are called in constraints.
    pub(super) tag: String,
    pub(super) constraint: Constraint,
}

#[derive(Debug)]
pub(super) struct Constrained {
    /// Whether a request adds to those before instead of replacing them.
    adds: bool,
    lots: BTreeMap<Key, Lot>,
    /// How many the ResourceManager has still to grant of each, as far as we know.
    told: BTreeMap<Key, u32>,
    /// The numbers of the request without an answer.
    saying: Option<BTreeMap<Key, u32>>,
    /// Not to be asked for before.
    rejected: BTreeMap<Key, Instant>,
    /// Grants that whoever sets the wants may not know of yet.
    recent: Vec<(ReplyCount, Key)>,
    /// What was ever asked for: a number that has to be taken back needs to be said in full.
    known: BTreeMap<Key, Lot>,
}

impl Constrained {
    pub(super) fn new(adds: bool) -> Constrained {
        Constrained {
            adds,
            lots: BTreeMap::new(),
            told: BTreeMap::new(),
            saying: None,
            rejected: BTreeMap::new(),
            recent: Vec::new(),
            known: BTreeMap::new(),
        }
    }

    /// Sets everything that is still wanted; containers granted after `seen` are deducted.
    pub(super) fn set(&mut self, lots: BTreeMap<Key, Lot>, seen: ReplyCount) {
        self.lots = lots;
        for (key, lot) in &self.lots {
            self.known.insert(*key, lot.clone());
        }
        self.recent.retain(|(beat, _)| *beat > seen);
        for (_, key) in &self.recent {
            if let Some(lot) = self.lots.get_mut(key) {
                lot.count = lot.count.saturating_sub(1);
            }
        }
    }

    /// How many are wanted and not granted.
    pub(super) fn outstanding(&self) -> u32 {
        self.lots.values().map(|lot| lot.count).sum()
    }

    pub(super) fn has_news(&self, now: Instant) -> bool {
        !self.differences(now).is_empty()
    }

    fn differences(&self, now: Instant) -> BTreeMap<Key, u32> {
        let keys: BTreeSet<Key> = self.lots.keys().chain(self.told.keys()).copied().collect();
        let mut differences = BTreeMap::new();
        for key in keys {
            let wanted = self.lots.get(&key).map_or(0, |lot| lot.count);
            let told = self.told.get(&key).copied().unwrap_or(0);
            let held_back = self.rejected.get(&key).is_some_and(|until| *until > now);
            match self.adds {
                // What was asked for too much is given back when it comes.
                true if wanted > told && !held_back => differences.insert(key, wanted - told),
                false if wanted != told => differences.insert(key, wanted),
                _ => None,
            };
        }
        differences
    }

    /// What to say in a beat in which something fresh is said.
    pub(super) fn request(&mut self, now: Instant) -> Vec<SchedulingRequest> {
        let differences = self.differences(now);
        let asks = differences.iter().filter_map(|(key, count)| {
            let lot = self.known.get(key)?;
            Some(SchedulingRequest {
                priority: key.priority,
                request_id: key.allocation,
                tags: BTreeSet::from([lot.tag.clone()]),
                resource: lot.resource.clone(),
                count: *count,
                constraint: Some(lot.constraint.clone()),
                execution: ExecutionType::Guaranteed,
            })
        });
        let asks = asks.collect();
        self.saying = Some(differences);
        asks
    }

    /// What was said has been heard.
    pub(super) fn on_answer(&mut self) {
        for (key, count) in self.saying.take().into_iter().flatten() {
            let told = self.told.entry(key).or_default();
            *told = if self.adds { *told + count } else { count };
        }
    }

    /// What was said has been refused, and nothing of it done.
    pub(super) fn on_refused(&mut self) {
        self.saying = None;
    }

    /// The ResourceManager has forgotten everything.
    pub(super) fn on_resync(&mut self) {
        self.saying = None;
        self.told.clear();
    }

    pub(super) fn is_mine(&self, key: Key) -> bool {
        self.known.contains_key(&key)
    }

    /// A container was granted; whether anybody wants it.
    pub(super) fn on_grant(&mut self, key: Key, beat: ReplyCount) -> bool {
        if let Some(told) = self.told.get_mut(&key) {
            *told = told.saturating_sub(1);
        }
        self.told.retain(|_, told| *told > 0);
        let lot = self.lots.get_mut(&key).filter(|lot| lot.count > 0);
        let Some(lot) = lot else {
            return false;
        };
        lot.count -= 1;
        self.recent.push((beat, key));
        true
    }

    pub(super) fn on_rejected(&mut self, rejection: &Rejection, now: Instant) {
        let key = Key { priority: rejection.priority, allocation: rejection.request_id };
        if let Some(told) = self.told.get_mut(&key) {
            *told = told.saturating_sub(rejection.count.max(1));
            self.rejected.insert(key, now + AGAIN);
        }
        self.told.retain(|_, told| *told > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key { priority: 1, allocation: 7 };

    fn lots(count: u32) -> BTreeMap<Key, Lot> {
        let lot = Lot {
            count,
            resource: Resource::new(64, 1),
            tag: "worker".to_owned(),
            constraint: Constraint::Label(Vec::new()),
        };
        BTreeMap::from([(KEY, lot)])
    }

    /// The numbers of what is said in a beat that is heard.
    fn said(asks: &mut Constrained, now: Instant) -> Vec<u32> {
        let said = asks.request(now);
        asks.on_answer();
        said.into_iter().map(|ask| ask.count).collect()
    }

    #[test]
    fn a_number_is_said_once_and_replaced_when_it_changes() {
        let now = Instant::now();
        let mut asks = Constrained::new(false);
        asks.set(lots(3), ReplyCount(0));
        assert!(asks.has_news(now));
        assert_eq!(said(&mut asks, now), [3]);
        assert!(said(&mut asks, now).is_empty(), "it is known");
        assert!(asks.on_grant(KEY, ReplyCount(1)));
        assert!(said(&mut asks, now).is_empty(), "both have counted it");
        // Whoever wants three has not heard of the grant.
        asks.set(lots(3), ReplyCount(0));
        assert_eq!(asks.outstanding(), 2);
        assert!(said(&mut asks, now).is_empty());
        asks.set(BTreeMap::new(), ReplyCount(1));
        assert_eq!(said(&mut asks, now), [0], "it is taken back");
        assert!(!asks.on_grant(KEY, ReplyCount(2)), "nobody wants it any more");
    }

    #[test]
    fn what_was_not_heard_or_is_forgotten_is_said_again() {
        let now = Instant::now();
        let mut asks = Constrained::new(false);
        asks.set(lots(2), ReplyCount(0));
        asks.request(now);
        asks.on_refused();
        assert_eq!(said(&mut asks, now), [2]);
        asks.on_resync();
        assert_eq!(said(&mut asks, now), [2]);
    }

    #[test]
    fn a_step_before_the_scheduler_is_told_what_is_wanted_more() {
        let now = Instant::now();
        let mut asks = Constrained::new(true);
        asks.set(lots(3), ReplyCount(0));
        assert_eq!(said(&mut asks, now), [3]);
        asks.set(lots(5), ReplyCount(0));
        assert_eq!(said(&mut asks, now), [2]);
        asks.set(lots(1), ReplyCount(0));
        assert!(said(&mut asks, now).is_empty(), "nothing can be taken back");
    }
}
