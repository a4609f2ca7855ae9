//! Schedule of updates to a tracking server: periodically while the job runs, and at its end.

use super::{
    kept::{self, Logs},
    tracker::{RETRY, Tracker, late},
};
use crate::master::inbox::{Answer, Kept, Letter, Question};
use std::time::Duration;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout, timeout_at},
};
use ydl_core::Outcome;
use ydl_proto::{files::JobDir, messages::JobSnapshot};

/// Poll interval for metrics, and the number of polls between resource usage samples.
const LOOK: Duration = Duration::from_secs(2);
const USE_EVERY: u32 = 5;
/// Timeout of a poll.
const VIEW_MAX: Duration = Duration::from_secs(10);
/// Time limit of the final update if the server was unavailable before.
const LAST_MAX: Duration = Duration::from_secs(5);

impl Tracker {
    /// Starts to report the job's progress.
    pub(in crate::master) fn follow(self, letters: mpsc::Sender<Letter>) -> Following {
        let (end, ended) = oneshot::channel();
        let following = tokio::spawn(self.tell(letters, ended));
        Following { following, end }
    }

    async fn tell(
        mut self,
        letters: mpsc::Sender<Letter>,
        mut ended: oneshot::Receiver<()>,
    ) -> Tracker {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looks = 0_u32;
        loop {
            tokio::select! {
                _ = &mut ended => return self,
                _ = look.tick() => {}
            }
            let viewed = tokio::select! {
                _ = &mut ended => return self,
                viewed = view(&letters) => viewed,
            };
            if let Some(viewed) = viewed {
                self.look(&viewed, looks.is_multiple_of(USE_EVERY));
                looks = looks.wrapping_add(1);
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
pub(in crate::master) struct Following {
    following: JoinHandle<Tracker>,
    end: oneshot::Sender<()>,
}

impl Following {
    /// Reports the end of the job. `last` is its last view, `logs` the end of its output. Takes at most
    /// `patience`.
    pub(in crate::master) async fn end(
        self,
        outcome: &Outcome,
        last: Option<&JobSnapshot>,
        logs: Logs,
        dir: &JobDir,
        patience: Duration,
    ) {
        let deadline = Instant::now() + patience;
        // Sent or dropped, it has the same meaning.
        let _ = self.end.send(());
        let Ok(Ok(mut tracker)) = timeout_at(deadline, self.following).await else {
            return;
        };
        if let Some(last) = last {
            tracker.look(last, false);
        }
        // The last item is sent first.
        let mut left = logs;
        left.extend(kept::about(&tracker.spec, dir));
        // Do not wait long for a server that was unavailable before.
        let was_away = tracker.away;
        let patience = if was_away { LAST_MAX } else { patience };
        let told = async {
            let Err(failure) = tracker.finish(outcome, &mut left).await else {
                return;
            };
            tracker.failed(&failure);
            if was_away {
                return;
            }
            // It may be a short outage, which is worth one retry.
            sleep_until(tracker.not_before.min(Instant::now() + RETRY.0)).await;
            if let Err(failure) = tracker.finish(outcome, &mut left).await {
                tracker.complain(&failure);
            }
        };
        let end = deadline.min(Instant::now() + patience);
        if timeout_at(end, told).await.is_err() {
            tracker.complain(&late(patience));
        }
    }
}

/// Reads the view of the job, including metrics of attempts that have just ended.
async fn view(letters: &mpsc::Sender<Letter>) -> Option<JobSnapshot> {
    let (answer, answered) = oneshot::channel();
    let letter = Letter { question: Question::Everything, answer, kept: Kept::default() };
    let asking = async {
        letters.send(letter).await.ok()?;
        answered.await.ok()
    };
    match timeout(VIEW_MAX, asking).await {
        Ok(Some(Answer::Reply(reply))) => serde_json::from_slice(&reply.body).ok(),
        _ => None,
    }
}
