//! Notifies the training processes of new workers.
//!
//! Rank 0 is notified and notifies the others at their next commit. It acknowledges a notification even if it ignores
//! it, because it has only just registered its address, or drops it, because it is starting in a world. So the
//! notification is repeated until a process requests its rank. Rank 0 recognizes a repeated one by its timestamp.

use std::time::Duration;

use ydl_core::TaskId;

use super::{GlooDriver, PlannedWorld};
use crate::{
    Effects, RetryTimer,
    gloo::{limits::WorldEvent, notification::HostChange},
};

/// Maximum number of immediate retries after a failure. Later ones wait for another event.
const MAX_IMMEDIATE_RETRIES: u32 = 5;

/// Delay before the first repetition. Doubles with each one.
const INITIAL_DELAY: Duration = Duration::from_secs(1);

/// Maximum number of repetitions, which takes more than an hour.
const MAX_RETRIES: u32 = 12;

impl GlooDriver {
    /// Notifies rank 0 of new workers, once it has registered its address. Not needed after a member left: the others
    /// detect that themselves.
    pub(super) fn notify(&mut self, effects: &mut Effects) {
        let Some(plan) = self.plans.front() else {
            return;
        };
        if plan.notified || !self.needs_notification(plan) {
            return;
        }
        let stays = |task: &TaskId| plan.world.has(task);
        let change = match self.world().tasks().keys().all(stays) {
            true => HostChange::Added,
            false => HostChange::Mixed,
        };
        // Timestamps only have to increase.
        let time = i32::try_from(plan.number).unwrap_or(i32::MAX);
        if let Some(plan) = self.plans.front_mut() {
            plan.notified = true;
        }
        self.store.handle(WorldEvent::HostsChanged(change, time), effects);
    }

    /// Returns true if rank 0 has an address and the notification has not taken effect yet.
    fn needs_notification(&self, plan: &PlannedWorld) -> bool {
        let first = self.world().members().first();
        let reachable = first.is_some_and(|first| self.store.endpoint(&first.slot).is_some());
        let effective = !self.departed.is_empty() || self.store.rank_requests().next().is_some();
        reachable && !effective && self.has_new_workers(plan)
    }

    /// Handles a failed notification: rank 0 refused the connection, or closed it without a reply.
    pub(super) fn notification_failed(&mut self, effects: &mut Effects) {
        if let Some(plan) = self.plans.front_mut() {
            plan.notified = false;
            plan.failures += 1;
            if plan.failures <= MAX_IMMEDIATE_RETRIES {
                self.advance(effects);
            }
        }
    }

    /// Returns the retry timer of a notification that has not taken effect.
    pub(super) fn pending_retry(&self) -> Option<RetryTimer> {
        let plan = self.plans.front()?;
        let was_sent = plan.notified || plan.failures > 0;
        let pending =
            self.can_start(plan) && self.is_present(&plan.world) && self.needs_notification(plan);
        if !was_sent || !pending || plan.retries == MAX_RETRIES {
            return None;
        }
        Some(RetryTimer {
            id: self.store.sent_notifications()?,
            delay: INITIAL_DELAY * 2_u32.pow(plan.retries),
        })
    }

    pub(super) fn notify_again(&mut self, effects: &mut Effects) {
        if self.pending_retry().is_none() {
            return;
        }
        if let Some(plan) = self.plans.front_mut() {
            plan.notified = false;
            plan.retries += 1;
        }
        self.advance(effects);
    }
}
