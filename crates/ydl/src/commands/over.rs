//! Waiting until a job is over, for somebody who wants to see nothing of it meanwhile.

use super::reach::{Reach, left};
use crate::{
    jobs::{Known, Standing},
    mirror::{Gateway, Mirror},
};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, timeout};
use yarn_native::types::ApplicationReport;

/// No fact ever has this number: a master that is asked for it answers when the wait is over, or is gone before.
const NEVER: u64 = u64::MAX;
/// How long one question waits.
const WAIT: Duration = Duration::from_secs(20);
/// The pause before a master that does not answer is looked at again.
const AGAIN: Duration = Duration::from_millis(50);
/// The same on a cluster, and how often its ResourceManager is asked for what only it knows.
const FAR_AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(3));

/// Returns when the job is over, and nothing of it is left on this machine; or when so much time is.
pub async fn until_over(job: &Known, mirror: Option<&Arc<Mirror>>, wait: Duration) {
    let watching = mirror.map(Mirror::watch);
    if timeout(wait, over(job)).await.is_ok() && job.far.is_none() {
        left(job).await;
    }
    if let Some(watching) = watching {
        watching.abort();
    }
}

async fn over(job: &Known) {
    loop {
        match job.standing() {
            Standing::Over(_) | Standing::Lost | Standing::Ended(_) => return,
            Standing::Starting => {}
            Standing::Live(place) => {
                let asked = Instant::now();
                // Whoever may only look at it in YARN has no token for its master, and sees there that it is over.
                if let Ok(reach) = Reach::to(&job.dir, &place)
                    && reach.facts(NEVER, WAIT).await.is_ok()
                    && asked.elapsed() > WAIT / 2
                {
                    continue;
                }
                // It is ending, or gone, or has moved.
                if let Some(far) = &job.far {
                    far.nudge();
                }
            }
        }
        sleep(if job.far.is_some() { FAR_AGAIN.0 } else { AGAIN }).await;
    }
}

/// The same for a job of which only its cluster tells; what it told last.
pub async fn until_told_over(
    gateway: &Gateway,
    mut report: ApplicationReport,
    wait: Duration,
) -> ApplicationReport {
    let end = Instant::now() + wait;
    while !report.state.is_over() && Instant::now() < end {
        sleep(FAR_AGAIN.1.min(end - Instant::now())).await;
        // A ResourceManager that does not answer now may do so later.
        if let Ok(newer) = gateway.client.application(report.id, gateway.deadline()).await {
            report = newer;
        }
    }
    report
}
