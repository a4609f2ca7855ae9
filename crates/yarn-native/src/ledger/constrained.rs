//! Asks with placement constraints. The ResourceManager takes them as scheduling requests.
//!
//! The scheduler replaces an earlier request with the same key, like a row of an ask. The placement
//! processor treats each request on its own: it is placed, or rejected and may be sent again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::want::{ConstrainedWant, Key, ReplyCount};
use crate::scheduler::{Rejection, SchedulingRequest};
use crate::types::ExecutionType;

/// Delay before a rejected request is sent again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Effect of a scheduling request on earlier ones with the same key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchedulingRequestMode {
    /// The request replaces earlier ones, as in the scheduler.
    #[default]
    Replace,
    /// The request is added to earlier ones, as in the placement processor.
    Add,
}

/// Constrained wants, and the ResourceManager's view of them.
#[derive(Clone, Debug, Default)]
pub(super) struct ConstrainedAsks {
    pub mode: SchedulingRequestMode,
    wants: BTreeMap<Key, ConstrainedWant>,
    /// Number that the ResourceManager still has to grant, by key.
    requested: BTreeMap<Key, u32>,
    /// Earliest time to send a rejected request again.
    retry_at: BTreeMap<Key, Instant>,
    /// Grants that the next `set_wants` may not account for.
    recent: Vec<(ReplyCount, Key)>,
    /// Last want of every key: cancelling a request requires all its fields.
    known: BTreeMap<Key, ConstrainedWant>,
}

impl ConstrainedAsks {
    /// Replaces all wants; containers granted after `seen` are deducted.
    pub(crate) fn set_wants(&mut self, wants: BTreeMap<Key, ConstrainedWant>, seen: ReplyCount) {
        self.wants = wants;
        for (key, want) in &self.wants {
            self.known.insert(*key, want.clone());
        }
        self.recent.retain(|(count, _)| *count > seen);
        for (_, key) in &self.recent {
            if let Some(want) = self.wants.get_mut(key) {
                want.count = want.count.saturating_sub(1);
            }
        }
    }

    /// Returns the number of containers wanted and not granted.
    pub(crate) fn outstanding(&self) -> u64 {
        self.wants.values().map(|want| u64::from(want.count)).sum()
    }

    /// Returns the requests that bring the ResourceManager's view in line with the wants.
    pub(crate) fn differences(&self, now: Option<Instant>) -> Vec<SchedulingRequest> {
        let keys = self.wants.keys().chain(self.requested.keys());
        let keys: BTreeSet<Key> = keys.copied().collect();
        let difference = |key: &Key| {
            let wanted = self.wants.get(key).map_or(0, |want| want.count);
            let requested = self.requested.get(key).copied().unwrap_or(0);
            match self.mode {
                SchedulingRequestMode::Replace => (wanted != requested).then_some(wanted),
                // What was requested too much is released when it is granted.
                SchedulingRequestMode::Add => {
                    let missing = wanted.saturating_sub(requested);
                    (missing > 0 && !self.is_delayed(key, now)).then_some(missing)
                }
            }
        };
        keys.iter().filter_map(|key| self.request(key, difference(key)?)).collect()
    }

    fn is_delayed(&self, key: &Key, now: Option<Instant>) -> bool {
        let retry_at = self.retry_at.get(key);
        retry_at.zip(now).is_some_and(|(retry_at, now)| *retry_at > now)
    }

    fn request(&self, key: &Key, count: u32) -> Option<SchedulingRequest> {
        let want = self.known.get(key)?;
        Some(SchedulingRequest {
            priority: key.priority,
            request_id: key.allocation,
            tags: BTreeSet::from([want.tag.clone()]),
            resource: want.resource.clone(),
            count,
            constraint: Some(want.constraint.clone()),
            execution: ExecutionType::Guaranteed,
        })
    }

    /// Applies delivered requests to the view.
    pub(crate) fn on_delivered(&mut self, requests: &[SchedulingRequest]) {
        for request in requests {
            let key = Key { priority: request.priority, allocation: request.request_id };
            let requested = self.requested.entry(key).or_default();
            *requested = match self.mode {
                SchedulingRequestMode::Replace => request.count,
                SchedulingRequestMode::Add => *requested + request.count,
            };
        }
    }

    /// Resets the view after a restart of the ResourceManager.
    pub(crate) fn on_resync(&mut self) {
        self.requested.clear();
    }

    /// Returns true if containers were ever wanted under this key.
    pub(crate) fn contains(&self, key: Key) -> bool {
        self.known.contains_key(&key)
    }

    /// Processes a granted container and returns true if it was wanted.
    pub(crate) fn on_grant(&mut self, key: Key, reply_count: ReplyCount) -> bool {
        self.count_down(key, 1);
        let want = self.wants.get_mut(&key).filter(|want| want.count > 0);
        let Some(want) = want else {
            return false;
        };
        want.count -= 1;
        self.recent.push((reply_count, key));
        true
    }

    /// Processes a rejection: the request is sent again after a delay.
    pub(crate) fn on_rejected(&mut self, rejection: &Rejection, now: Option<Instant>) {
        let key = Key { priority: rejection.priority, allocation: rejection.request_id };
        if self.requested.contains_key(&key)
            && let Some(now) = now
        {
            self.retry_at.insert(key, now + RETRY_DELAY);
        }
        self.count_down(key, rejection.count.max(1));
    }

    fn count_down(&mut self, key: Key, count: u32) {
        if let Some(requested) = self.requested.get_mut(&key) {
            *requested = requested.saturating_sub(count);
        }
        self.requested.retain(|_, requested| *requested > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Grant, Ledger, LedgerReply};
    use crate::scheduler::{Constraint, RejectionReason};
    use crate::types::Resource;

    const KEY: Key = Key { priority: 1, allocation: 7 };

    fn wants(count: u32) -> BTreeMap<Key, ConstrainedWant> {
        let want = ConstrainedWant {
            count,
            resource: Resource::new(64, 1),
            tag: "worker".to_owned(),
            constraint: Constraint::Label(Vec::new()),
        };
        BTreeMap::from([(KEY, want)])
    }

    fn ledger(mode: SchedulingRequestMode) -> Ledger<u64> {
        let mut ledger = Ledger::new();
        ledger.set_scheduling_request_mode(mode);
        ledger.set_now(Instant::now());
        ledger
    }

    fn grant(container: u64) -> Grant<u64> {
        Grant {
            container,
            key: KEY,
            host: "a".to_owned(),
            resource: Resource::new(64, 1),
            opportunistic: false,
        }
    }

    /// Makes one exchange with these grants. Returns the requested counts and the number of wanted
    /// grants.
    fn exchange(ledger: &mut Ledger<u64>, granted: Vec<Grant<u64>>) -> (Vec<u32>, usize) {
        let request = ledger.request();
        let reply = LedgerReply {
            response_id: request.response_id + 1,
            granted,
            completed: vec![],
            rejected: vec![],
        };
        let outcome = ledger.on_reply(reply).expect("the expected reply");
        let counts = request.scheduling_requests.iter().map(|request| request.count);
        (counts.collect(), outcome.wanted.len())
    }

    fn sent(ledger: &mut Ledger<u64>) -> Vec<u32> {
        exchange(ledger, vec![]).0
    }

    #[test]
    fn a_count_is_sent_once_and_replaced_when_it_changes() {
        let mut ledger = ledger(SchedulingRequestMode::Replace);
        ledger.set_constrained_wants(wants(3), ReplyCount(0));
        assert!(ledger.has_changes());
        assert_eq!(sent(&mut ledger), [3]);
        let before = ledger.reply_count();
        let (counts, wanted) = exchange(&mut ledger, vec![grant(1)]);
        assert!(counts.is_empty(), "the count is known");
        assert_eq!(wanted, 1);
        assert!(sent(&mut ledger).is_empty(), "both sides have deducted the grant");
        // The caller wants three and has not seen the grant.
        ledger.set_constrained_wants(wants(3), before);
        assert_eq!(ledger.outstanding(), 2);
        assert!(sent(&mut ledger).is_empty());
        ledger.set_constrained_wants(BTreeMap::new(), ledger.reply_count());
        assert_eq!(sent(&mut ledger), [0], "the request is cancelled");
        let (_, wanted) = exchange(&mut ledger, vec![grant(2)]);
        assert_eq!(wanted, 0, "the container is surplus");
        assert_eq!(ledger.request().releases, [2]);
    }

    #[test]
    fn rejected_and_forgotten_requests_are_sent_again() {
        let mut ledger = ledger(SchedulingRequestMode::Replace);
        ledger.set_constrained_wants(wants(2), ReplyCount(0));
        ledger.request();
        ledger.on_rejected();
        assert_eq!(sent(&mut ledger), [2]);
        ledger.on_resync();
        assert_eq!(sent(&mut ledger), [2]);
    }

    #[test]
    fn in_add_mode_only_increments_are_sent() {
        let mut ledger = ledger(SchedulingRequestMode::Add);
        ledger.set_constrained_wants(wants(3), ReplyCount(0));
        assert_eq!(sent(&mut ledger), [3]);
        ledger.set_constrained_wants(wants(5), ReplyCount(0));
        assert_eq!(sent(&mut ledger), [2]);
        ledger.set_constrained_wants(wants(1), ReplyCount(0));
        assert!(sent(&mut ledger).is_empty(), "requests cannot be cancelled");
    }

    #[test]
    fn a_rejected_scheduling_request_is_retried_after_a_delay() {
        let mut ledger = ledger(SchedulingRequestMode::Add);
        let start = Instant::now();
        ledger.set_now(start);
        ledger.set_constrained_wants(wants(3), ReplyCount(0));
        let rejection = Rejection {
            reason: RejectionReason::CouldNotPlace,
            request_id: KEY.allocation,
            priority: KEY.priority,
            tags: BTreeSet::new(),
            count: 2,
        };
        let request = ledger.request();
        assert_eq!(request.scheduling_requests[0].count, 3);
        let reply = LedgerReply {
            response_id: request.response_id + 1,
            granted: vec![],
            completed: vec![],
            rejected: vec![rejection],
        };
        ledger.on_reply(reply).expect("the expected reply");
        assert!(sent(&mut ledger).is_empty(), "delayed");
        ledger.set_now(start + RETRY_DELAY);
        assert_eq!(sent(&mut ledger), [2]);
    }
}
