//! What is heard of a job while it is followed: its facts, how it looks, and how it ends.

use super::{super::reach::Reach, LOOK, SILENCE};
use crate::jobs::{Known, Standing};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use ydl_net::client::CallError;
use ydl_proto::messages::{HistoryPage, JobSnapshot};

/// How long a question may wait for news.
const WAIT: Duration = Duration::from_secs(20);
/// How long a master that runs may be out of reach, and how long one that ends may take to be gone.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same on a cluster, which may need long to see that a node is lost and to start a master elsewhere.
const FAR_PATIENCE: Duration = Duration::from_secs(30 * 60);
/// The pause before a question is asked again.
const AGAIN: Duration = Duration::from_millis(20);
/// The same for a master that may have to be started on another node first.
const FAR_AGAIN: Duration = Duration::from_millis(200);

/// What is heard of a job.
#[derive(Debug)]
pub(super) enum News {
    History(HistoryPage),
    View(Box<JobSnapshot>),
    Ended(Standing),
    NoAnswer(CallError),
    OutOfReach(CallError),
}

/// Tells the facts, and at last how the job ended.
pub(super) async fn watch_facts(job: Arc<Known>, reach: Arc<Reach>, tell: mpsc::Sender<News>) {
    let mut after = 0;
    let mut heard = Instant::now();
    let mut said = false;
    loop {
        let asked = Instant::now();
        let error = match reach.facts(after, WAIT).await {
            Ok(Some(facts)) => {
                (after, heard, said) = (facts.next, Instant::now(), false);
                if tell.send(News::History(facts)).await.is_err() {
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
        if let Some(far) = &job.far {
            far.nudge();
        }
        if let Standing::Live(place) = job.standing() {
            reach.point(&place.address);
        }
        let patience = match job.far {
            Some(_) => FAR_PATIENCE,
            None => PATIENCE,
        };
        let last = match (job.standing(), error) {
            (Standing::Live(_) | Standing::Starting, Some(error)) if heard.elapsed() > patience => {
                Some(News::OutOfReach(error))
            }
            (Standing::Live(_) | Standing::Starting, Some(error))
                if heard.elapsed() > SILENCE && !said =>
            {
                said = true;
                if tell.send(News::NoAnswer(error)).await.is_err() {
                    return;
                }
                None
            }
            (Standing::Live(_) | Standing::Starting, _) => None,
            (standing, _) => Some(News::Ended(standing)),
        };
        if let Some(last) = last {
            // Nobody may be listening any more.
            let _ = tell.send(last).await;
            return;
        }
        sleep(if job.far.is_some() { FAR_AGAIN } else { AGAIN }).await;
    }
}

/// Tells how the job looks, whenever that changes and once a second.
pub(super) async fn watch_views(reach: Arc<Reach>, tell: mpsc::Sender<News>) {
    let mut seen = 0;
    loop {
        match reach.view(seen, LOOK).await {
            Ok(Some(view)) => {
                seen = view.number;
                if tell.send(News::View(Box::new(view))).await.is_err() {
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
