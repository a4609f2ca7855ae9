//! Copies of what live tasks print, as they print it; and of the rest once they have ended.

use super::job::Mirror;
use crate::{logs::live, wire::client::Client};
use std::{fs, sync::Arc, time::Duration};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};
use ydl_core::TaskId;

/// Streams that are waited for at once; a master lets a few hundred wait.
const WAITING_MAX: usize = 96;
/// Attempts whose rest is copied at once.
const COPYING_MAX: usize = 8;
/// How long an agent waits for something to be printed.
const WAIT: Duration = Duration::from_secs(15);
/// The same where more streams are followed than may wait.
const SHORT_WAIT: Duration = Duration::from_millis(200);
/// After a failure, the next try.
const AGAIN: Duration = Duration::from_millis(500);
/// So often a master may not answer, and an agent not know of a file, before HDFS is looked at.
const FAILURES_MAX: u32 = 20;
const ABSENCES_MAX: u32 = 2;
/// How long an attempt's last lines may take to get to HDFS once its agent has no more of them.
const CARRIED_MAX: Duration = Duration::from_secs(15);
/// How often it is looked whether they have.
const LOOK: Duration = Duration::from_millis(300);
/// Left beside an attempt's logs when they are whole.
const RECORD: &str = "exit.json";

/// The turns of those who follow streams.
#[derive(Debug)]
pub struct Turns {
    waiting: Semaphore,
    copying: Semaphore,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns {
            waiting: Semaphore::new(WAITING_MAX),
            copying: Semaphore::new(COPYING_MAX),
        }
    }
}

impl Mirror {
    /// Follows the streams of an attempt until its end, and copies what is left of them. `client` says which master to
    /// ask, which may move.
    pub async fn follow_attempt(
        self: Arc<Self>,
        task: TaskId,
        attempt: u32,
        streams: Vec<&'static str>,
        client: impl Fn() -> Arc<Client> + Send + Sync,
    ) -> (TaskId, u32) {
        let dir = self.dir.attempt_logs(&task, attempt);
        // Readers watch the directory from the beginning.
        if fs::create_dir_all(&dir).is_ok() {
            let follow = |stream| self.follow_stream(&task, attempt, stream, &client);
            match streams.as_slice() {
                [one] => follow(one).await,
                _ => drop(tokio::join!(follow("stdout"), follow("stderr"))),
            }
            self.bring_rest(&task, attempt).await;
        }
        (task, attempt)
    }

    async fn follow_stream(
        &self,
        task: &TaskId,
        attempt: u32,
        stream: &str,
        client: &(impl Fn() -> Arc<Client> + Send + Sync),
    ) {
        let dir = self.dir.attempt_logs(task, attempt);
        let mut segment = 0u64;
        // What was copied before is not copied again.
        while dir.join(format!("{stream}.{}", segment + 1)).exists() {
            segment += 1;
        }
        let (mut failures, mut absences) = (0, 0);
        while failures < FAILURES_MAX {
            let file = format!("{stream}.{segment}");
            let path = dir.join(&file);
            let offset = fs::metadata(&path).map_or(0, |about| about.len());
            let wait = match self.turns.waiting.available_permits() {
                0 => SHORT_WAIT,
                _ => WAIT,
            };
            let Ok(_turn) = self.turns.waiting.acquire().await else {
                return;
            };
            match live::read(&client(), task, attempt, &file, offset, wait).await {
                Ok(Some(piece)) => {
                    (failures, absences) = (0, 0);
                    if super::logs::append(&path, &piece.bytes).is_err() {
                        return;
                    }
                    if piece.ended && offset + piece.bytes.len() as u64 >= piece.length {
                        segment += 1;
                    }
                }
                // No agent has it, or not this file of it: HDFS has the rest. One that has just begun may come late.
                Ok(None) if absences >= ABSENCES_MAX => return,
                Ok(None) => {
                    absences += 1;
                    sleep(AGAIN).await;
                }
                Err(_) => {
                    failures += 1;
                    sleep(AGAIN).await;
                }
            }
        }
    }

    /// What HDFS has beyond what was seen, once it has everything.
    async fn bring_rest(&self, task: &TaskId, attempt: u32) {
        let record = format!("{}/{RECORD}", self.place.attempt_logs(task, attempt));
        let end = Instant::now() + CARRIED_MAX;
        loop {
            let Ok(turn) = self.turns.copying.acquire().await else {
                return;
            };
            let there = self.hdfs.stat(&record, Instant::now() + CARRIED_MAX).await;
            let whole = matches!(there, Ok(Some(_)));
            if whole || Instant::now() > end {
                // What could not be had now is had when the job is over.
                let _ = self.bring_attempt(task, attempt, None).await;
                return;
            }
            drop(turn);
            sleep(LOOK).await;
        }
    }
}
