//! Copies of what live tasks print, as they print it; and of the rest once they have ended.

use super::{
    download::{Writer, append},
    job::Mirror,
    tail::{TAIL_BYTES_MAX, stretch, write_at},
};
use crate::client::live_logs;
use hyper::body::Bytes;
use std::{fs, io, path::Path, sync::Arc, time::Duration};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};
use ydl_core::TaskId;
use ydl_net::client::{CallError, Client};
use ydl_proto::messages::{LOG_BYTES_MAX, LogFile};

/// Streams that are waited for at once; a master lets a few hundred wait.
const WAITING_MAX: usize = 96;
/// Attempts whose rest is copied at once.
const COPYING_MAX: usize = 8;
/// Long-poll timeout of an agent's log read.
const WAIT: Duration = Duration::from_secs(15);
/// The same where more streams are followed than may wait.
const SHORT_WAIT: Duration = Duration::from_millis(200);
/// After a failure, the next try.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// So often a master may not answer, and an agent not know of a file, before HDFS is looked at.
const FAILURES_MAX: u32 = 20;
const ABSENCES_MAX: u32 = 2;
/// Maximum time for an attempt's last lines to get to HDFS once its agent has no more of them.
const CARRIED_MAX: Duration = Duration::from_secs(15);
/// Poll interval for them.
const LOOK: Duration = Duration::from_millis(300);
/// Left beside an attempt's logs when they are whole.
const RECORD: &str = "exit.json";

/// The turns of those who follow streams.
#[derive(Debug)]
pub struct FollowPermits {
    waiting: Semaphore,
    copying: Semaphore,
}

impl Default for FollowPermits {
    fn default() -> FollowPermits {
        FollowPermits { waiting: Semaphore::new(WAITING_MAX), copying: Semaphore::new(COPYING_MAX) }
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
            self.copy_remaining_logs(&task, attempt).await;
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
        // What was copied before is not copied again. Of a long stream its middle is nowhere any more.
        let mut segment = newest(&dir, stream);
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
            match live_logs::read(&client(), task, attempt, &file, offset, wait).await {
                Ok(Some(piece)) => {
                    (failures, absences) = (0, 0);
                    if append(&path, &piece.bytes).is_err() {
                        return;
                    }
                    if piece.ended && offset + piece.bytes.len() as u64 >= piece.length {
                        segment += 1;
                    }
                }
                // No agent has it, or not this file of it: HDFS has the rest. One that has just begun may come late.
                Ok(None) => match self.later(task, attempt, (stream, segment), &client()).await {
                    Some(later) => segment = later,
                    None if absences >= ABSENCES_MAX => return,
                    None => {
                        absences += 1;
                        sleep(RETRY_DELAY).await;
                    }
                },
                Err(_) => {
                    failures += 1;
                    sleep(RETRY_DELAY).await;
                }
            }
        }
    }

    /// The next segment of a stream that its agent still has, after one that it has not.
    async fn later(
        &self,
        task: &TaskId,
        attempt: u32,
        (stream, segment): (&str, u64),
        master: &Client,
    ) -> Option<u64> {
        let all = live_logs::attempts(master, task).await.ok()??;
        let found = all.into_iter().find(|it| it.attempt == attempt)?;
        let files = found.files.iter().filter_map(numbered);
        let later = files.filter(|(of, number, _)| *of == stream && *number > segment);
        later.map(|(_, number, _)| number).min()
    }

    /// Copies what a live agent has of an attempt at this moment, or the last lines of it; false where there is no such
    /// agent.
    pub(super) async fn copy_live_logs(
        &self,
        task: &TaskId,
        attempt: u32,
        master: &Client,
        tail: Option<usize>,
    ) -> Result<bool, CallError> {
        let all = live_logs::attempts(master, task).await?;
        let mut all = all.into_iter().flatten();
        let Some(found) = all.find(|it| it.attempt == attempt) else {
            return Ok(false);
        };
        let dir = self.dir.attempt_logs(task, attempt);
        let mut files: Vec<_> = found.files.iter().filter_map(numbered).collect();
        files.sort_unstable();
        for stream in files.chunk_by(|one, two| one.0 == two.0) {
            let from = LiveAttempt { mirror: self, task, attempt, master };
            let brought = match tail {
                Some(lines) => from.copy_tail(stream, &dir, lines).await,
                None => from.download(stream, &dir).await,
            };
            match brought {
                Ok(()) => {}
                Err(CopyError::Call(error)) => return Err(error),
                // What cannot be kept here is not shown; there is room for the rest perhaps.
                Err(CopyError::Disk) => {}
            }
        }
        Ok(true)
    }

    /// Copies the rest from HDFS, once it is complete there.
    async fn copy_remaining_logs(&self, task: &TaskId, attempt: u32) {
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
                let _ = self.copy_attempt(task, attempt, Writer::Gone, None).await;
                return;
            }
            drop(turn);
            sleep(LOOK).await;
        }
    }
}

/// A live agent's attempt, and the way there.
struct LiveAttempt<'a> {
    mirror: &'a Mirror,
    task: &'a TaskId,
    attempt: u32,
    master: &'a Client,
}

enum CopyError {
    Call(CallError),
    Disk,
}

impl From<io::Error> for CopyError {
    fn from(_: io::Error) -> CopyError {
        CopyError::Disk
    }
}

/// A segment of a stream: whose, the how manieth, and how long.
type Segment = (&'static str, u64, u64);

impl LiveAttempt<'_> {
    /// All of a stream, as far as it is not there.
    async fn download(&self, stream: &[Segment], dir: &Path) -> Result<(), CopyError> {
        fs::create_dir_all(dir)?;
        for (name, number, bytes) in stream {
            let file = format!("{name}.{number}");
            let path = dir.join(&file);
            append(&path, b"")?;
            let mut offset = fs::metadata(&path)?.len();
            while offset < *bytes {
                let piece = self.read(&file, offset).await?;
                if piece.is_empty() {
                    break;
                }
                append(&path, &piece)?;
                offset += piece.len() as u64;
            }
        }
        Ok(())
    }

    /// Its last lines, and a hole before them.
    async fn copy_tail(
        &self,
        stream: &[Segment],
        dir: &Path,
        lines: usize,
    ) -> Result<(), CopyError> {
        fs::create_dir_all(dir)?;
        let file = |(name, number, _): &Segment| format!("{name}.{number}");
        for segment in stream {
            stretch(&dir.join(file(segment)), segment.2)?;
        }
        let (mut ends, mut fetched) = (0, 0);
        for segment in stream.iter().rev() {
            let (file, mut until) = (file(segment), segment.2);
            while until > 0 {
                let from = until.saturating_sub(LOG_BYTES_MAX);
                let mut piece = self.read(&file, from).await?;
                piece.truncate((until - from) as usize);
                write_at(&dir.join(&file), &piece, from)?;
                ends += piece.iter().filter(|byte| **byte == b'\n').count();
                fetched += until - from;
                if ends > lines || fetched > TAIL_BYTES_MAX {
                    return Ok(());
                }
                until = from;
            }
        }
        Ok(())
    }

    /// A piece of a file; nothing of one that was rotated away meanwhile.
    async fn read(&self, file: &str, offset: u64) -> Result<Bytes, CopyError> {
        let _turn = self.mirror.turns.waiting.acquire().await;
        let (task, wait) = (self.task, Duration::ZERO);
        let piece = live_logs::read(self.master, task, self.attempt, file, offset, wait).await;
        let piece = piece.map_err(CopyError::Call)?;
        Ok(piece.map(|piece| piece.bytes).unwrap_or_default())
    }
}

/// The newest segment of a stream in a directory.
fn newest(dir: &Path, stream: &str) -> u64 {
    let names = fs::read_dir(dir).into_iter().flatten().flatten();
    let numbers = names.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let (of, number) = name.rsplit_once('.')?;
        (of == stream).then(|| number.parse().ok())?
    });
    numbers.max().unwrap_or(0)
}

/// Parses a file name into its stream and segment number.
fn numbered(file: &LogFile) -> Option<Segment> {
    let (stream, number) = file.name.rsplit_once('.')?;
    let streams = ["stdout", "stderr"].into_iter();
    let stream = streams.into_iter().find(|known| *known == stream)?;
    Some((stream, number.parse().ok()?, file.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_goes_on_after_its_newest_segment_whatever_is_missing_before() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(newest(&dir.path().join("none"), "stdout"), 0);
        for name in ["stdout.0", "stdout.9", "stdout.10", "stderr.11", "exit.json"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(newest(dir.path(), "stdout"), 10);
        let segment = |name: &str| {
            let (name, bytes) = (name.to_owned(), 7);
            numbered(&LogFile { name, bytes })
        };
        assert_eq!(segment("stderr.12"), Some(("stderr", 12, 7)));
        assert_eq!(segment("exit.json"), None);
        assert_eq!(segment("stdout.x"), None);
    }
}
