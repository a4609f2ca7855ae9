//! Events of a followed job: its history, its snapshots and its end.

use super::{NOTICE_DELAY, REFRESH_INTERVAL};
use crate::client::{
    jobs::{JobHandle, JobStatus},
    master_client::MasterClient,
};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use ydl_net::client::CallError;
use ydl_proto::messages::{HistoryPage, JobSnapshot};

/// Long-poll timeout of one request.
const WAIT: Duration = Duration::from_secs(20);
/// Maximum time for which the master of a local job may be unreachable.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Same limit on a cluster, where detecting a lost node and starting a new master may take long.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Delay before a request to a local master is repeated.
const RETRY_DELAY: Duration = Duration::from_millis(20);
/// Same delay on a cluster.
const CLUSTER_RETRY_DELAY: Duration = Duration::from_millis(200);

/// Event of a followed job.
#[derive(Debug)]
pub(super) enum JobEvent {
    History(HistoryPage),
    View(Box<JobSnapshot>),
    Ended(JobStatus),
    NotResponding(CallError),
    Unreachable(CallError),
}

/// Sends the job's history, and finally its end.
pub(super) async fn watch_history(
    job: Arc<JobHandle>,
    master: Arc<MasterClient>,
    sender: mpsc::Sender<JobEvent>,
) {
    let mut after = 0;
    let mut last_response = Instant::now();
    let mut reported = false;
    loop {
        let requested_at = Instant::now();
        let error = match master.history(after, WAIT).await {
            Ok(Some(history)) => {
                (after, last_response, reported) = (history.next, Instant::now(), false);
                if sender.send(JobEvent::History(history)).await.is_err() {
                    return;
                }
                continue;
            }
            // The long poll timed out without new events.
            Ok(None) if requested_at.elapsed() > WAIT / 2 => {
                last_response = Instant::now();
                continue;
            }
            Ok(None) => None,
            Err(error) => Some(error),
        };
        // The master is exiting, has exited, does not respond, or has moved.
        if let Some(remote) = &job.remote {
            remote.request_poll();
        }
        if let JobStatus::Running(address) = job.status() {
            master.set_address(&address.address);
        }
        let timeout = match job.remote {
            Some(_) => CLUSTER_TIMEOUT,
            None => TIMEOUT,
        };
        let last = match (job.status(), error) {
            (JobStatus::Running(_) | JobStatus::Starting, Some(error))
                if last_response.elapsed() > timeout =>
            {
                Some(JobEvent::Unreachable(error))
            }
            (JobStatus::Running(_) | JobStatus::Starting, Some(error))
                if last_response.elapsed() > NOTICE_DELAY && !reported =>
            {
                reported = true;
                if sender.send(JobEvent::NotResponding(error)).await.is_err() {
                    return;
                }
                None
            }
            (JobStatus::Running(_) | JobStatus::Starting, _) => None,
            (status, _) => Some(JobEvent::Ended(status)),
        };
        if let Some(last) = last {
            // The receiver may be gone.
            let _ = sender.send(last).await;
            return;
        }
        sleep(if job.remote.is_some() { CLUSTER_RETRY_DELAY } else { RETRY_DELAY }).await;
    }
}

/// Sends the job's snapshot whenever it changes, and once a second, after a delay.
pub(super) async fn watch_views(
    master: Arc<MasterClient>,
    sender: mpsc::Sender<JobEvent>,
    delay: Duration,
) {
    sleep(delay).await;
    let mut seen = 0;
    loop {
        match master.view(seen, REFRESH_INTERVAL).await {
            Ok(Some(view)) => {
                seen = view.number;
                if sender.send(JobEvent::View(Box::new(view))).await.is_err() {
                    return;
                }
            }
            // No new event, but resource usage changes: request the current view.
            Ok(None) => seen = 0,
            Err(_) => {
                if sender.is_closed() {
                    return;
                }
                sleep(REFRESH_INTERVAL).await;
            }
        }
    }
}
