//! Waits for the master of a job that a cluster has accepted.

use super::{follow::InterruptSignals, renderer::Renderer};
use crate::{
    client::{
        jobs::{JobHandle, RemoteState},
        mirror::Mirror,
    },
    terminal::clean,
};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use yarn_native::{
    client::ApplicationFilter,
    types::{ApplicationReport, ApplicationState},
};
use ydl_core::Span;
use ydl_os::report::{Exit, Report};

/// Poll interval of the recorded state.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Interval at which the applications ahead in the queue are counted.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);
/// YARN's diagnostics of an application whose master was launched and has not registered yet. From then on the cluster's
/// own timeout applies.
const LAUNCHED: &str = "AM container is launched";
/// Delay of the notice that explains why nothing happens.
const NOTICE_DELAY: Duration = Duration::from_secs(2);

/// Outcome of the wait.
#[derive(Debug)]
pub(crate) enum WaitOutcome {
    /// The master listens at this address.
    Running(String),
    /// The job is over.
    Finished,
    /// The user interrupted.
    Interrupted,
}

/// Waits until the master runs, and prints the reason for the wait. Kills a job that waits longer than its timeout
/// `allocation`.
pub(crate) async fn wait_for_master(
    job: &JobHandle,
    mirror: &Mirror,
    renderer: &mut Renderer,
    signals: &mut InterruptSignals,
) -> Result<WaitOutcome, Report> {
    let Span(limit) = job.submitted.spec.timeouts.allocation;
    let mut reporter = WaitReporter::new();
    let end = Instant::now() + Duration::from_millis(limit);
    let (mut stopping, mut has_container) = (false, false);
    loop {
        match mirror.remote.state() {
            RemoteState::Running(address) => return Ok(WaitOutcome::Running(address)),
            RemoteState::Finished(_) => return Ok(WaitOutcome::Finished),
            RemoteState::Unknown => {}
            RemoteState::Waiting(why) => {
                reporter.report(&why, mirror, renderer).await;
                has_container = why.contains(LAUNCHED);
            }
        }
        if Instant::now() > end && !stopping && !has_container {
            let by = format!("its timeout `allocation` of {}", Span(limit));
            mirror.kill(&by).await?;
            let why = match mirror.remote.state() {
                RemoteState::Waiting(why) => one_line(&why),
                _ => String::new(),
            };
            let what = format!(
                "{} had no container for its master after {}: {why}",
                job.id(),
                Span(limit)
            );
            return Err(Report::new(Exit::JobFailed, what)
                .hint("raise `timeouts.allocation`, or choose another queue: `ydl queues`"));
        }
        let by = tokio::select! {
            () = sleep(POLL_INTERVAL) => continue,
            by = signals.next() => by,
        };
        if stopping {
            return Ok(WaitOutcome::Interrupted);
        }
        stopping = true;
        renderer.note(&format!("{by}: stopping the job ({by} again to detach)"));
        let (cluster, id) = (mirror.cluster.clone(), mirror.id);
        tokio::spawn(async move {
            let why = format!("ended by {by}");
            // The poller of the application sees the result.
            let _ = cluster.rm.kill_and_wait(id, &why, cluster.deadline()).await;
        });
    }
}

/// Waits as an observer: never kills the job, neither after a timeout nor on an interrupt.
pub(crate) async fn wait_as_observer(
    mirror: &Mirror,
    renderer: &mut Renderer,
    signals: &mut InterruptSignals,
) -> WaitOutcome {
    let mut reporter = WaitReporter::new();
    loop {
        match mirror.remote.state() {
            RemoteState::Running(address) => return WaitOutcome::Running(address),
            RemoteState::Finished(_) => return WaitOutcome::Finished,
            RemoteState::Unknown => {}
            RemoteState::Waiting(why) => reporter.report(&why, mirror, renderer).await,
        }
        tokio::select! {
            () = sleep(POLL_INTERVAL) => {}
            _ = signals.next() => return WaitOutcome::Interrupted,
        }
    }
}

/// Prints the reason for waiting.
struct WaitReporter {
    began: Instant,
    reported: String,
    counted: Option<Instant>,
    position: Option<usize>,
}

impl WaitReporter {
    fn new() -> WaitReporter {
        WaitReporter {
            began: Instant::now(),
            reported: String::new(),
            counted: None,
            position: None,
        }
    }

    /// Prints the reason once, and again when it has changed.
    async fn report(&mut self, why: &str, mirror: &Mirror, renderer: &mut Renderer) {
        if self.began.elapsed() <= NOTICE_DELAY {
            return;
        }
        if self.counted.is_none_or(|at| at.elapsed() > COUNT_INTERVAL) {
            self.counted = Some(Instant::now());
            self.position = applications_ahead(mirror).await;
        }
        let text = wait_text(why, self.position);
        if text != self.reported {
            renderer.note(&text);
            self.reported = text;
        }
    }
}

fn wait_text(why: &str, position: Option<usize>) -> String {
    let position = match position {
        Some(0) | None => String::new(),
        Some(1) => ", behind 1 other job of its queue".to_owned(),
        Some(n) => format!(", behind {n} other jobs of its queue"),
    };
    match one_line(why) {
        why if why.contains(LAUNCHED) => "waiting for the job's master to start".to_owned(),
        why if why.is_empty() => format!("waiting for the master's container{position}"),
        why => format!("waiting{position}: {why}"),
    }
}

/// Returns the first sentence of YARN's diagnostics, without the time before it and the details after it.
fn one_line(why: &str) -> String {
    let text = why.trim();
    let text = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((_, after)) => after.trim_start(),
        None => text,
    };
    let end = [". ", "  ", "\n", " Details :"].iter();
    let end = end.filter_map(|mark| text.find(mark)).min();
    let text = &text[..end.unwrap_or(text.len())];
    clean(text).trim_end_matches('.').chars().take(300).collect()
}

/// Counts the applications ahead in the same queue; `None` if that is unknown.
async fn applications_ahead(mirror: &Mirror) -> Option<usize> {
    let own = mirror.last_report()?;
    let filter = ApplicationFilter {
        states: vec![ApplicationState::Accepted],
        queues: vec![own.queue.clone()],
        ..ApplicationFilter::default()
    };
    let cluster = &mirror.cluster;
    let all = cluster.rm.applications(&filter, cluster.deadline());
    let first = |other: &&ApplicationReport| {
        let order =
            |app: &ApplicationReport| (std::cmp::Reverse(app.priority), app.start_time, app.id);
        other.id != own.id && order(other) < order(&own)
    };
    Some(all.await.ok()?.iter().filter(first).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_for_waiting_is_one_sentence() {
        let why = "[Sun Nov 15 21:36:55 +0000 2026] Application is Activated, waiting for resources to be assigned \
                   for AM.  Last Node which was processed : 127.0.0.11:21084 ( Partition : [] ). Details : AM = 1";
        assert_eq!(
            wait_text(why, Some(2)),
            "waiting, behind 2 other jobs of its queue: Application is Activated, waiting for resources to be assigned for AM"
        );
        assert_eq!(wait_text("", None), "waiting for the master's container");
        let launched = "AM container is launched, waiting for AM container to Register with RM";
        assert_eq!(wait_text(launched, None), "waiting for the job's master to start");
    }
}
