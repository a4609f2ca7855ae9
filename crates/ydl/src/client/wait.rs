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

/// Number that no event has. A request for it returns when the long poll times out, or fails when the master exits.
const NEVER: u64 = u64::MAX;
/// Long-poll timeout of one request.
const WAIT: Duration = Duration::from_secs(20);
/// Delay before the status of a local job is checked again.
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// Same delay on a cluster.
const CLUSTER_RETRY_DELAY: Duration = Duration::from_millis(200);
/// Poll interval of the ResourceManager for a job of which only its report is available.
const REPORT_INTERVAL: Duration = Duration::from_secs(3);

/// Waits up to `wait` until the job is over and none of its processes is left on this machine.
pub(crate) async fn wait_until_finished(
    job: &JobHandle,
    mirror: Option<&Arc<Mirror>>,
    wait: Duration,
) {
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
            JobStatus::Running(address) => {
                let requested_at = Instant::now();
                // Viewers without a token for the master see its end in YARN.
                if let Ok(master) = MasterClient::to(&job.dir, &address)
                    && master.history(NEVER, WAIT).await.is_ok()
                    && requested_at.elapsed() > WAIT / 2
                {
                    continue;
                }
                // The master is exiting, has exited or has moved.
                if let Some(remote) = &job.remote {
                    remote.request_poll();
                }
            }
        }
        sleep(if job.remote.is_some() { CLUSTER_RETRY_DELAY } else { RETRY_DELAY }).await;
    }
}

/// Waits up to `wait` for the end of a job of which only the application report is available. Returns the last report.
pub(crate) async fn wait_until_reported_finished(
    cluster: &ClusterClient,
    mut report: ApplicationReport,
    wait: Duration,
) -> ApplicationReport {
    let end = Instant::now() + wait;
    while !report.state.is_over() && Instant::now() < end {
        sleep(REPORT_INTERVAL.min(end - Instant::now())).await;
        // Errors may be temporary.
        if let Ok(newer) = cluster.rm.application(report.id, cluster.deadline()).await {
            report = newer;
        }
    }
    report
}
