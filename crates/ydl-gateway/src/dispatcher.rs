//! Hands out replicas to requests; holds requests while all replicas are busy.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::oneshot;
use tokio::time::timeout_at;

use crate::balancer::{Balancer, Picked};
use crate::health::Verdict;
use crate::metrics::Metrics;
use crate::random::Random;
use crate::route_table::{QueueLimits, RouteTable};
use crate::wait_queue::{QueueFull, WaitQueue};

/// Replicas and the requests that wait for them.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    state: Mutex<DispatchState>,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct DispatchState {
    balancer: Balancer,
    queue: WaitQueue<oneshot::Sender<Lease>>,
}

/// Right to send one request to a replica. Dropping it ends the request, in all cases.
#[derive(Debug)]
pub(crate) struct Lease {
    dispatcher: Arc<Dispatcher>,
    pub picked: Picked,
    verdict: Verdict,
}

/// Reason of not getting a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoReplica {
    Full(QueueFull),
    TimedOut,
}

impl Dispatcher {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Dispatcher {
        let state = DispatchState {
            balancer: Balancer::new(Random::from_system()),
            queue: WaitQueue::default(),
        };
        Dispatcher { state: Mutex::new(state), metrics }
    }

    fn lock(&self) -> MutexGuard<'_, DispatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn apply(self: &Arc<Self>, table: &RouteTable) {
        self.lock().balancer.apply(Instant::now(), table);
        self.serve_queue();
    }

    /// Waits for a replica, preferably none of `tried`. `bytes` is the memory that the request keeps meanwhile.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        bytes: usize,
        tried: &[Arc<str>],
        limits: &QueueLimits,
        arrived: Instant,
    ) -> Result<Lease, NoReplica> {
        let receiver = {
            let mut state = self.lock();
            if state.queue.len() == 0 {
                let now = Instant::now();
                let picked = state.balancer.pick(now, tried);
                let picked = match picked {
                    None if !tried.is_empty() => state.balancer.pick(now, &[]),
                    picked => picked,
                };
                if let Some(picked) = picked {
                    return Ok(self.lease(picked));
                }
            }
            let (sender, receiver) = oneshot::channel();
            state.queue.push(bytes, sender, limits).map_err(NoReplica::Full)?;
            receiver
        };
        let _leaves = LeavesQueue(self);
        let end = arrived + limits.wait;
        match timeout_at(end.into(), receiver).await {
            Ok(Ok(lease)) => Ok(lease),
            // The sender is only dropped with the dispatcher.
            Ok(Err(_)) | Err(_) => Err(NoReplica::TimedOut),
        }
    }

    fn lease(self: &Arc<Self>, picked: Picked) -> Lease {
        Lease { dispatcher: self.clone(), picked, verdict: Verdict::Unknown }
    }

    /// Gives free replicas to waiting requests. Called after each change, and regularly, because a replica also becomes
    /// available when its ejection ends.
    pub(crate) fn serve_queue(self: &Arc<Self>) {
        // Leases of requests that have left are dropped without the lock, which their end needs.
        let mut returned = Vec::new();
        let mut state = self.lock();
        while let Some(waiting) = state.queue.front() {
            if waiting.is_closed() {
                state.queue.pop();
                continue;
            }
            let Some(picked) = state.balancer.pick(Instant::now(), &[]) else { break };
            if let Some(waiting) = state.queue.pop() {
                returned.extend(waiting.send(self.lease(picked)).err());
            }
        }
        drop(state);
        drop(returned);
    }

    /// Returns the number of requests at replicas, and of those that wait.
    pub(crate) fn load(&self) -> (u64, usize) {
        let state = self.lock();
        (state.balancer.in_flight(), state.queue.len())
    }

    /// Counts replicas by state and revision.
    pub(crate) fn states(
        &self,
    ) -> std::collections::BTreeMap<(crate::balancer::MemberState, u64), u64> {
        self.lock().balancer.states()
    }
}

/// Removes a request from the queue when it stops waiting for any reason.
struct LeavesQueue<'a>(&'a Arc<Dispatcher>);

impl Drop for LeavesQueue<'_> {
    fn drop(&mut self) {
        self.0.lock().queue.prune(oneshot::Sender::is_closed);
    }
}

impl Lease {
    /// Sets the result that the replica is judged by.
    pub(crate) fn judge(&mut self, verdict: Verdict) {
        self.verdict = verdict;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let now = Instant::now();
        let ejected = self.dispatcher.lock().balancer.release(now, &self.picked, self.verdict);
        if ejected {
            self.dispatcher.metrics.on_ejection();
            tracing::warn!("ejected the replica `{}` after repeated failures", self.picked.id);
        }
        self.dispatcher.serve_queue();
    }
}

#[cfg(test)]
mod tests;
