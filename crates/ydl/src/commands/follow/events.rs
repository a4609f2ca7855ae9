//! Events of a followed job: its history, its snapshots and its end.

use super::{LOOK, NOTICE_DELAY};
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
/// Maximum time for which a running master may be unreachable, and for an ending one to exit.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The same on a cluster, which may need long to see that a node is lost and to start a master elsewhere.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// The pause before a question is asked again.
const RETRY_DELAY: Duration = Duration::from_millis(20);
/// The same for a master that may have to be started on another node first.
const CLUSTER_RETRY_DELAY: Duration = Duration::from_millis(200);

/// Event of a followed job.
#[derive(Debug)]
pub(super) enum JobEvent {
    History(HistoryPage),
    View(Box<JobSnapshot>),
    Ended(JobStatus),
    NoAnswer(CallError),
    OutOfReach(CallError),
}

/// Tells the facts, and at last how the job ended.
pub(super) async fn watch_facts(
    job: Arc<JobHandle>,
    master: Arc<MasterClient>,
    tell: mpsc::Sender<JobEvent>,
) {
    let mut after = 0;
    let mut heard = Instant::now();
    let mut said = false;
    loop {
        let asked = Instant::now();
        let error = match master.facts(after, WAIT).await {
            Ok(Some(facts)) => {
                (after, heard, said) = (facts.next, Instant::now(), false);
                if tell.send(JobEvent::History(facts)).await.is_err() {
                    return;
                }
                continue;
            }
            // Nothing new for the whole wait.
            Ok(None) if asked.elapsed() > WAIT / 2 => {
                heard = Instant::now();
                continue;
            }
            Ok(None) => None,
            Err(error) => Some(error),
        };
        // The master is ending, or gone, or cannot answer; or it has moved.
        if let Some(far) = &job.remote {
            far.nudge();
        }
        if let JobStatus::Live(place) = job.status() {
            master.point(&place.address);
        }
        let patience = match job.remote {
            Some(_) => CLUSTER_TIMEOUT,
            None => TIMEOUT,
        };
        let last = match (job.status(), error) {
            (JobStatus::Live(_) | JobStatus::Starting, Some(error))
                if heard.elapsed() > patience =>
            {
                Some(JobEvent::OutOfReach(error))
            }
            (JobStatus::Live(_) | JobStatus::Starting, Some(error))
                if heard.elapsed() > NOTICE_DELAY && !said =>
            {
                said = true;
                if tell.send(JobEvent::NoAnswer(error)).await.is_err() {
                    return;
                }
                None
            }
            (JobStatus::Live(_) | JobStatus::Starting, _) => None,
            (status, _) => Some(JobEvent::Ended(status)),
        };
        if let Some(last) = last {
            // The receiver may be gone.
            let _ = tell.send(last).await;
            return;
        }
        sleep(if job.remote.is_some() { CLUSTER_RETRY_DELAY } else { RETRY_DELAY }).await;
    }
}

/// Tells how the job looks, whenever that changes and once a second.
pub(super) async fn watch_views(master: Arc<MasterClient>, tell: mpsc::Sender<JobEvent>) {
    let mut seen = 0;
    loop {
        match master.view(seen, LOOK).await {
            Ok(Some(view)) => {
                seen = view.number;
                if tell.send(JobEvent::View(Box::new(view))).await.is_err() {
                    return;
                }
            }
            // Nothing has happened, but what the tasks use has changed.
            Ok(None) => seen = 0,
            Err(_) => {
                if tell.is_closed() {
                    return;
                }
                sleep(LOOK).await;
            }
        }
    }
}
