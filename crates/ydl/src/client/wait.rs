//! Waits for a job to finish without printing anything.

use crate::client::{
    cluster::ClusterClient,
    jobs::{JobHandle, JobStatus},
    master_client::{MasterClient, wait_for_master_exit},
    mirror::Mirror,
};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, timeout};
use yarn_native::types::ApplicationReport;

/// No event ever has this number: a master that is asked for it answers when the wait is over, or is gone before.
const NEVER: u64 = u64::MAX;
/// Long-poll timeout of one request.
const WAIT: Duration = Duration::from_secs(20);
/// The pause before a master that does not answer is looked at again.
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// The same on a cluster, and how often its ResourceManager is asked for what only it knows.
const CLUSTER_RETRY_DELAY: (Duration, Duration) =
    (Duration::from_millis(200), Duration::from_secs(3));

/// Waits until the job is over and none of its processes is left on this machine, at most for `wait`.
pub async fn wait_until_finished(job: &JobHandle, mirror: Option<&Arc<Mirror>>, wait: Duration) {
    let watching = mirror.map(Mirror::watch);
    if timeout(wait, until_finished(job)).await.is_ok() && job.remote.is_none() {
        wait_for_master_exit(job).await;
    }
    if let Some(watching) = watching {
        watching.abort();
    }
}

async fn until_finished(job: &JobHandle) {
    loop {
        match job.status() {
            JobStatus::Finished(_) | JobStatus::Lost | JobStatus::NoResult(_) => return,
            JobStatus::Starting => {}
            JobStatus::Running(place) => {
                let asked = Instant::now();
                // A viewer without a token for the master sees its end in YARN.
                if let Ok(master) = MasterClient::to(&job.dir, &place)
                    && master.history(NEVER, WAIT).await.is_ok()
                    && asked.elapsed() > WAIT / 2
                {
                    continue;
                }
                // It is ending, or gone, or has moved.
                if let Some(remote) = &job.remote {
                    remote.request_poll();
                }
            }
        }
        sleep(if job.remote.is_some() { CLUSTER_RETRY_DELAY.0 } else { RETRY_DELAY }).await;
    }
}

/// Waits likewise for a job of which only the application report is available; returns the last report.
pub async fn wait_until_reported_finished(
    cluster: &ClusterClient,
    mut report: ApplicationReport,
    wait: Duration,
) -> ApplicationReport {
    let end = Instant::now() + wait;
    while !report.state.is_over() && Instant::now() < end {
        sleep(CLUSTER_RETRY_DELAY.1.min(end - Instant::now())).await;
        // A ResourceManager that does not answer now may do so later.
        if let Ok(newer) = cluster.rm.application(report.id, cluster.deadline()).await {
            report = newer;
        }
    }
    report
}
