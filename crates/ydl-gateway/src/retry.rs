//! Decides if a request may be sent to another replica.

use std::time::Instant;

/// Classes of failures after which a request is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryWhen {
    Never,
    /// No byte of the request reached a program.
    Unsent,
    /// Also if the program may have executed it. Only for requests without side effects.
    Unanswered,
}

/// Retries of one request, and their share of all requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    pub when: RetryWhen,
    /// Maximum number of retries of one request.
    pub max: u32,
    /// Retries per hundred requests, beside ten per second.
    pub budget_percent: u32,
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy { when: RetryWhen::Unsent, max: 2, budget_percent: 20 }
    }
}

/// Extent to which a failed attempt may have reached the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reached {
    /// The program cannot have executed the request.
    Unsent,
    /// The program may have executed it; no byte of a response has arrived.
    Unanswered,
}

impl RetryPolicy {
    /// Returns true if another attempt is allowed after `retries` of them, apart from the budget. After the head of a
    /// response there is no retry at all, so no failure of a body is asked here.
    pub(crate) fn allows(&self, reached: Reached, retries: u32) -> bool {
        let class = match (self.when, reached) {
            (RetryWhen::Never, _) | (RetryWhen::Unsent, Reached::Unanswered) => false,
            (RetryWhen::Unsent | RetryWhen::Unanswered, _) => true,
        };
        class && retries < self.max
    }
}

/// Retries that do not depend on the number of requests.
const RETRIES_PER_SECOND: u64 = 10;
/// Maximum savings, in thousandths of a retry.
const SAVED_MAX: u64 = 100_000;

/// Limits retries to a share of the requests, so that they do not multiply the load of failing replicas.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    /// In thousandths of a retry.
    saved: u64,
    refilled: Instant,
}

impl RetryBudget {
    pub(crate) fn new(now: Instant) -> RetryBudget {
        RetryBudget { saved: RETRIES_PER_SECOND * 1000, refilled: now }
    }

    /// Counts a request.
    pub(crate) fn deposit(&mut self, percent: u32) {
        self.saved = (self.saved + u64::from(percent) * 10).min(SAVED_MAX);
    }

    /// Takes one retry, unless the budget is exhausted.
    pub(crate) fn withdraw(&mut self, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.refilled).as_millis();
        self.refilled = self.refilled.max(now);
        let earned =
            u64::try_from(elapsed).unwrap_or(SAVED_MAX).min(SAVED_MAX) * RETRIES_PER_SECOND;
        self.saved = (self.saved + earned).min(SAVED_MAX);
        if self.saved < 1000 {
            return false;
        }
        self.saved -= 1000;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_policy_allows_its_class_and_those_below() {
        let allowed = |when| {
            let policy = RetryPolicy { when, ..RetryPolicy::default() };
            [Reached::Unsent, Reached::Unanswered].map(|reached| policy.allows(reached, 0))
        };
        assert_eq!(allowed(RetryWhen::Never), [false, false]);
        assert_eq!(allowed(RetryWhen::Unsent), [true, false]);
        assert_eq!(allowed(RetryWhen::Unanswered), [true, true]);
    }

    #[test]
    fn a_request_is_repeated_at_most_max_times() {
        let policy = RetryPolicy { max: 2, ..RetryPolicy::default() };
        assert!(policy.allows(Reached::Unsent, 1));
        assert!(!policy.allows(Reached::Unsent, 2));
    }

    #[test]
    fn the_budget_is_a_share_of_requests_beside_ten_per_second() {
        let start = Instant::now();
        let mut budget = RetryBudget::new(start);
        let taken =
            |budget: &mut RetryBudget, now| (0..1000).take_while(|_| budget.withdraw(now)).count();
        assert_eq!(taken(&mut budget, start), 10);
        (0..100).for_each(|_| budget.deposit(20));
        assert_eq!(taken(&mut budget, start), 20);
        assert_eq!(taken(&mut budget, start + Duration::from_secs(1)), 10);
        assert_eq!(taken(&mut budget, start + Duration::from_secs(3600)), 100);
        // A clock that goes back earns nothing.
        assert_eq!(taken(&mut budget, start), 0);
    }
}
