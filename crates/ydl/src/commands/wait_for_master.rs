//! The time between a cluster's taking a job and its master's first word.

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
const LOOK: Duration = Duration::from_millis(50);
/// Interval at which the applications ahead in the queue are counted.
const COUNT: Duration = Duration::from_secs(5);
/// YARN's diagnostics of an application whose master was launched and has not registered yet. The cluster's own timeout
/// applies then.
const LAUNCHED: &str = "AM container is launched";
/// After so long a person is told why nothing comes.
const NOTICE_DELAY: Duration = Duration::from_secs(2);

/// Outcome of the wait.
#[derive(Debug)]
pub enum WaitOutcome {
    /// The master listens there.
    Live(String),
    /// The job is over.
    Over,
    /// The person left.
    Interrupted,
}

/// Waits until the master runs, and says what for. A job that waits for longer than it wants to is ended.
pub async fn wait_for_master(
    job: &JobHandle,
    mirror: &Mirror,
    renderer: &mut Renderer,
    signals: &mut InterruptSignals,
) -> Result<WaitOutcome, Report> {
    let Span(patience) = job.submitted.spec.timeouts.allocation;
    let mut reporter = WaitReporter::new();
    let end = Instant::now() + Duration::from_millis(patience);
    let (mut asked, mut has_container) = (false, false);
    loop {
        match mirror.remote.seen() {
            RemoteState::Live(address) => return Ok(WaitOutcome::Live(address)),
            RemoteState::Ended(_) => return Ok(WaitOutcome::Over),
            RemoteState::Nothing => {}
            RemoteState::Waiting(why) => {
                reporter.tell(&why, mirror, renderer).await;
                has_container = why.contains(LAUNCHED);
            }
        }
        if Instant::now() > end && !asked && !has_container {
            let by = format!("its deadline `allocation` of {}", Span(patience));
            mirror.kill(&by).await?;
            let why = match mirror.remote.seen() {
                RemoteState::Waiting(why) => one_line(&why),
                _ => String::new(),
            };
            let what = format!(
                "{} had no container for its master after {}: {why}",
                job.id(),
                Span(patience)
            );
            return Err(Report::new(Exit::JobFailed, what)
                .hint("raise `timeouts.allocation`, or choose another queue: `ydl queues`"));
        }
        let by = tokio::select! {
            () = sleep(LOOK) => continue,
            by = signals.next() => by,
        };
        if asked {
            return Ok(WaitOutcome::Interrupted);
        }
        asked = true;
        renderer.note(&format!("{by}: stopping the job ({by} again to leave at once)"));
        let (cluster, id) = (mirror.cluster.clone(), mirror.id);
        tokio::spawn(async move {
            let why = format!("ended by {by}");
            // What became of it is seen by those who watch.
            let _ = cluster.rm.kill_and_wait(id, &why, cluster.deadline()).await;
        });
    }
}

/// Waits likewise as an observer: the job is left alone, however long it waits and even if the observer leaves.
pub async fn wait_to_look(
    mirror: &Mirror,
    renderer: &mut Renderer,
    signals: &mut InterruptSignals,
) -> WaitOutcome {
    let mut reporter = WaitReporter::new();
    loop {
        match mirror.remote.seen() {
            RemoteState::Live(address) => return WaitOutcome::Live(address),
            RemoteState::Ended(_) => return WaitOutcome::Over,
            RemoteState::Nothing => {}
            RemoteState::Waiting(why) => reporter.tell(&why, mirror, renderer).await,
        }
        tokio::select! {
            () = sleep(LOOK) => {}
            _ = signals.next() => return WaitOutcome::Interrupted,
        }
    }
}

/// Prints the reason for waiting.
struct WaitReporter {
    began: Instant,
    said: String,
    counted: Option<Instant>,
    position: Option<usize>,
}

impl WaitReporter {
    fn new() -> WaitReporter {
        WaitReporter { began: Instant::now(), said: String::new(), counted: None, position: None }
    }

    /// Says it once, and again when it has changed.
    async fn tell(&mut self, why: &str, mirror: &Mirror, renderer: &mut Renderer) {
        if self.began.elapsed() <= NOTICE_DELAY {
            return;
        }
        if self.counted.is_none_or(|at| at.elapsed() > COUNT) {
            self.counted = Some(Instant::now());
            self.position = before_us(mirror).await;
        }
        let text = words(why, self.position);
        if text != self.said {
            renderer.note(&text);
            self.said = text;
        }
    }
}

fn words(why: &str, position: Option<usize>) -> String {
    let position = match position {
        Some(0) | None => String::new(),
        Some(1) => ", behind 1 other job of its queue".to_owned(),
        Some(n) => format!(", behind {n} other jobs of its queue"),
    };
    match one_line(why) {
        why if why.is_empty() => format!("waiting for its master's container{position}"),
        why => format!("waiting{position}: {why}"),
    }
}

/// YARN's diagnostics begin with the time and go on for lines about its own bookkeeping; the first sentence says it.
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

/// Counts the applications ahead in the same queue; `None` where that is unknown.
async fn before_us(mirror: &Mirror) -> Option<usize> {
    let own = mirror.last()?;
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
    fn a_cluster_says_in_one_sentence_what_it_waits_for() {
        let why = "[Sun Nov 15 21:36:55 +0000 2026] Application is Activated, waiting for resources to be assigned \
                   for AM.  Last Node which was processed : 127.0.0.11:21084 ( Partition : [] ). Details : AM = 1";
        assert_eq!(
            words(why, Some(2)),
            "waiting, behind 2 other jobs of its queue: Application is Activated, waiting for resources to be assigned for AM"
        );
        assert_eq!(words("", None), "waiting for its master's container");
    }
}
