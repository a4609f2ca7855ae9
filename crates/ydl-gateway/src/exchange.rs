//! One request and its response: progress, time limits, and what is recorded at the end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use hyper::body::Incoming;

use crate::access_log::{AccessLog, LogLine};
use crate::dispatcher::Lease;
use crate::metrics::Metrics;
use crate::pool::{Pool, ReplicaConnection};
use crate::route_table::Timeouts;

/// Status of a request whose client left before the response, as nginx records it.
pub(crate) const CLIENT_GONE: u16 = 499;

/// Progress of one exchange. Shared by the bodies of both directions and the sweeper.
#[derive(Debug)]
pub(crate) struct Flow {
    epoch: Instant,
    /// Time of the last progress, in milliseconds since `epoch`.
    progress_ms: AtomicU64,
    /// True while the replica waits for more of the request's body.
    awaits_client: AtomicBool,
    idle: Duration,
    slot: Mutex<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    /// Present until the response has ended or is given up.
    upstream: Option<Upstream>,
    is_expired: bool,
    waker: Option<Waker>,
}

/// Response being received, and what it occupies.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub incoming: Incoming,
    pub connection: ReplicaConnection,
    pub pool: Arc<Pool>,
    pub lease: Lease,
}

impl Flow {
    pub(crate) fn new(idle: Duration) -> Arc<Flow> {
        Arc::new(Flow {
            epoch: Instant::now(),
            progress_ms: AtomicU64::new(0),
            awaits_client: AtomicBool::new(false),
            idle,
            slot: Mutex::default(),
        })
    }

    pub(crate) fn on_progress(&self) {
        let elapsed = u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.progress_ms.store(elapsed, Ordering::Relaxed);
    }

    pub(crate) fn set_awaits_client(&self, awaits: bool) {
        self.awaits_client.store(awaits, Ordering::Relaxed);
    }

    pub(crate) fn awaits_client(&self) -> bool {
        self.awaits_client.load(Ordering::Relaxed)
    }

    fn last_progress(&self) -> Instant {
        self.epoch + Duration::from_millis(self.progress_ms.load(Ordering::Relaxed))
    }

    /// Returns when waiting for the head of the response ends. The time that the client takes for its body does not count.
    pub(crate) fn head_deadline(&self, timeouts: &Timeouts) -> Instant {
        let limit = match self.awaits_client() {
            true => timeouts.idle,
            false => timeouts.head,
        };
        self.last_progress() + limit
    }

    /// Returns when an exchange without progress is given up.
    pub(crate) fn idle_deadline(&self) -> Instant {
        self.last_progress() + self.idle
    }

    pub(crate) fn start_response(&self, upstream: Upstream) {
        self.on_progress();
        self.slot.lock().unwrap_or_else(PoisonError::into_inner).upstream = Some(upstream);
    }

    /// Calls `poll` with the response, unless it has ended or was given up. `poll` takes it away at its end.
    pub(crate) fn with_upstream<T>(
        &self,
        waker: Option<&Waker>,
        poll: impl FnOnce(&mut Option<Upstream>, bool) -> T,
    ) -> T {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        let is_expired = slot.is_expired;
        if let Some(waker) = waker
            && !slot.waker.as_ref().is_some_and(|known| known.will_wake(waker))
        {
            slot.waker = Some(waker.clone());
        }
        poll(&mut slot.upstream, is_expired)
    }

    /// Gives up the response if it makes no progress, also if its client does not read it.
    fn expire(&self, now: Instant) {
        if now < self.idle_deadline() {
            return;
        }
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        let (upstream, waker) = (slot.upstream.take(), slot.waker.take());
        slot.is_expired |= upstream.is_some();
        drop(slot);
        // Frees the replica without the lock.
        drop(upstream);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// All exchanges with a response in progress.
#[derive(Debug, Default)]
pub(crate) struct Flows(Mutex<Vec<Weak<Flow>>>);

impl Flows {
    pub(crate) fn add(&self, flow: &Arc<Flow>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(flow));
    }

    /// Gives up responses without progress, and forgets those that have ended.
    pub(crate) fn sweep(&self, now: Instant) {
        let mut running = Vec::new();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|flow| {
            let flow = flow.upgrade();
            let is_running = flow.is_some();
            running.extend(flow);
            is_running
        });
        for flow in running {
            flow.expire(now);
        }
    }
}

/// Record of one request. Dropping it writes metrics and the access log, however the request ended.
#[derive(Debug)]
pub(crate) struct Record {
    pub metrics: Arc<Metrics>,
    pub log: Option<Arc<AccessLog>>,
    pub started: Instant,
    pub line: LogLine,
    pub revision: Option<u64>,
    pub bytes_in: Arc<AtomicU64>,
}

impl Drop for Record {
    fn drop(&mut self) {
        let duration = self.started.elapsed();
        self.metrics.on_request(self.revision, self.line.status, duration);
        if let Some(log) = &self.log {
            self.line.bytes_in = self.bytes_in.load(Ordering::Relaxed);
            self.line.duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
            log.write(std::mem::take(&mut self.line));
        }
    }
}
