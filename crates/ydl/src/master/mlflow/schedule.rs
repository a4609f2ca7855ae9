//! Schedule of updates to a tracking server: periodically while the job runs, and at its end.

use super::{
    artifacts::{self, Artifacts},
    tracker::{RETRY_DELAY, Tracker, late},
};
use crate::master::inbox::{DurableFlag, Envelope, MasterRequest, MasterResponse};
use std::time::Duration;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout, timeout_at},
};
use ydl_core::Outcome;
use ydl_proto::{files::JobDir, messages::JobSnapshot};

/// Poll interval for metrics, and the number of polls between resource usage samples.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
const USAGE_EVERY: u32 = 5;
/// Timeout of a poll.
const VIEW_MAX: Duration = Duration::from_secs(10);
/// Time limit of the final update if the server was unavailable before.
const FINAL_TIMEOUT: Duration = Duration::from_secs(5);

impl Tracker {
    /// Starts to report the job's progress.
    pub(in crate::master) fn follow(self, requests: mpsc::Sender<Envelope>) -> TrackerHandle {
        let (end, ended) = oneshot::channel();
        let schedule = tokio::spawn(self.run_schedule(requests, ended));
        TrackerHandle { schedule, end }
    }

    async fn run_schedule(
        mut self,
        requests: mpsc::Sender<Envelope>,
        mut ended: oneshot::Receiver<()>,
    ) -> Tracker {
        let mut observe = interval(POLL_INTERVAL);
        observe.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut polls = 0_u32;
        loop {
            tokio::select! {
                _ = &mut ended => return self,
                _ = observe.tick() => {}
            }
            let viewed = tokio::select! {
                _ = &mut ended => return self,
                viewed = view(&requests) => viewed,
            };
            if let Some(viewed) = viewed {
                self.observe(&viewed, polls.is_multiple_of(USAGE_EVERY));
                polls = polls.wrapping_add(1);
            }
            if Instant::now() < self.not_before {
                continue;
            }
            let pushed = tokio::select! {
                _ = &mut ended => return self,
                pushed = self.push() => pushed,
            };
            match pushed {
                Ok(()) => self.went_well(),
                Err(failure) => self.failed(&failure),
            }
        }
    }
}

/// Handle of a running tracker.
#[derive(Debug)]
pub(in crate::master) struct TrackerHandle {
    schedule: JoinHandle<Tracker>,
    end: oneshot::Sender<()>,
}

impl TrackerHandle {
    /// Reports the end of the job. `last` is its last view, `logs` the end of its output. Takes at most
    /// `patience`.
    pub(in crate::master) async fn end(
        self,
        outcome: &Outcome,
        last: Option<&JobSnapshot>,
        logs: Artifacts,
        dir: &JobDir,
        patience: Duration,
    ) {
        let deadline = Instant::now() + patience;
        // Sent or dropped, it has the same meaning.
        let _ = self.end.send(());
        let Ok(Ok(mut tracker)) = timeout_at(deadline, self.schedule).await else {
            return;
        };
        if let Some(last) = last {
            tracker.observe(last, false);
        }
        // The last item is sent first.
        let mut left = logs;
        left.extend(artifacts::job_files(&tracker.spec, dir));
        // Do not wait long for a server that was unavailable before.
        let was_away = tracker.away;
        let patience = if was_away { FINAL_TIMEOUT } else { patience };
        let sent = async {
            let Err(failure) = tracker.finish(outcome, &mut left).await else {
                return;
            };
            tracker.failed(&failure);
            if was_away {
                return;
            }
            // It may be a short outage, which is worth one retry.
            sleep_until(tracker.not_before.min(Instant::now() + RETRY_DELAY.0)).await;
            if let Err(failure) = tracker.finish(outcome, &mut left).await {
                tracker.warn_once(&failure);
            }
        };
        let end = deadline.min(Instant::now() + patience);
        if timeout_at(end, sent).await.is_err() {
            tracker.warn_once(&late(patience));
        }
    }
}

/// Reads the view of the job, including metrics of attempts that have just ended.
async fn view(requests: &mpsc::Sender<Envelope>) -> Option<JobSnapshot> {
    let (respond_to, response) = oneshot::channel();
    let envelope =
        Envelope { request: MasterRequest::Snapshot, respond_to, durable: DurableFlag::default() };
    let asking = async {
        requests.send(envelope).await.ok()?;
        response.await.ok()
    };
    match timeout(VIEW_MAX, asking).await {
        Ok(Some(MasterResponse::Http(reply))) => serde_json::from_slice(&reply.body).ok(),
        _ => None,
    }
}
