//! Copies the output of running tasks as it is printed, and the remainder after their end.

use super::{
    download::{LogWriter, append},
    job::Mirror,
    tail::{TAIL_BYTES_MAX, extend_file, write_at},
};
use crate::client::live_logs;
use hyper::body::Bytes;
use std::{fs, io, path::Path, sync::Arc, time::Duration};
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, sleep},
};
use ydl_core::TaskId;
use ydl_net::client::{CallError, Client};
use ydl_proto::messages::{LOG_BYTES_MAX, LogFile};

/// Concurrent long polls; a master accepts a few hundred.
const READS_MAX: usize = 96;
/// Number of ended attempts whose remaining output is copied concurrently.
const COPIES_MAX: usize = 8;
/// Long-poll timeout of an agent's log read.
const WAIT: Duration = Duration::from_secs(15);
/// Long-poll timeout when more streams are followed than [`READS_MAX`].
const SHORT_WAIT: Duration = Duration::from_millis(200);
/// Delay before a failed request is repeated.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Failed requests in a row after which HDFS is asked whether the attempt has ended.
const FAILURES_MAX: u32 = 20;
/// Responses without the file in a row after which HDFS is asked.
const ABSENCES_MAX: u32 = 2;
/// Maximum time until an attempt's last lines are in HDFS, once its agent no longer has them.
const SHIPPING_MAX: Duration = Duration::from_secs(15);
/// Poll interval for them.
const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// File next to an attempt's logs that marks them complete.
const RECORD: &str = "exit.json";

/// Limits on concurrent reads and copies.
#[derive(Debug)]
pub(crate) struct FollowPermits {
    reads: Semaphore,
    copies: Semaphore,
}

impl Default for FollowPermits {
    fn default() -> FollowPermits {
        FollowPermits { reads: Semaphore::new(READS_MAX), copies: Semaphore::new(COPIES_MAX) }
    }
}

impl Mirror {
    /// Follows the streams of an attempt until its end, and then copies the remainder. `client` returns a client for the
    /// current master, which may move. `ended` becomes true when the history has the attempt's end: an unreachable master
    /// or agent alone does not mean that the attempt has ended.
    pub(crate) async fn follow_attempt(
        self: Arc<Self>,
        task: TaskId,
        attempt: u32,
        streams: Vec<&'static str>,
        client: impl Fn() -> Arc<Client> + Send + Sync,
        ended: watch::Receiver<bool>,
    ) -> (TaskId, u32) {
        let dir = self.dir.attempt_logs(&task, attempt);
        // Readers watch the directory before it has files.
        if fs::create_dir_all(&dir).is_ok() {
            let follow = |stream| self.follow_stream(&task, attempt, stream, &client);
            loop {
                match streams.as_slice() {
                    [one] => follow(one).await,
                    _ => drop(tokio::join!(follow("stdout"), follow("stderr"))),
                }
                if *ended.borrow() || self.is_recorded(&task, attempt).await {
                    break;
                }
                sleep(RETRY_DELAY).await;
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
        // Continue after the existing copy. Middle segments of a long stream may have been deleted.
        let mut segment = newest_segment(&dir, stream);
        let (mut failures, mut absences) = (0, 0);
        while failures < FAILURES_MAX {
            let file = format!("{stream}.{segment}");
            let path = dir.join(&file);
            let offset = fs::metadata(&path).map_or(0, |copy| copy.len());
            let wait = match self.permits.reads.available_permits() {
                0 => SHORT_WAIT,
                _ => WAIT,
            };
            let Ok(_permit) = self.permits.reads.acquire().await else {
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
                // No agent has the file: HDFS has the rest. An attempt that has just started may be late.
                Ok(None) => {
                    match self.next_segment(task, attempt, (stream, segment), &client()).await {
                        Some(next_segment) => segment = next_segment,
                        None if absences >= ABSENCES_MAX => return,
                        None => {
                            absences += 1;
                            sleep(RETRY_DELAY).await;
                        }
                    }
                }
                Err(_) => {
                    failures += 1;
                    sleep(RETRY_DELAY).await;
                }
            }
        }
    }

    /// Returns the next segment of a stream that its agent still has.
    async fn next_segment(
        &self,
        task: &TaskId,
        attempt: u32,
        (stream, segment): (&str, u64),
        master: &Client,
    ) -> Option<u64> {
        let all = live_logs::attempts(master, task).await.ok()??;
        let logs = all.into_iter().find(|logs| logs.attempt == attempt)?;
        let files = logs.files.iter().filter_map(parse_segment);
        let next_segment = files.filter(|(name, number, _)| *name == stream && *number > segment);
        next_segment.map(|(_, number, _)| number).min()
    }

    /// Copies the current logs of a live agent's attempt, or their last lines. Returns false if there is no such agent.
    pub(super) async fn copy_live_logs(
        &self,
        task: &TaskId,
        attempt: u32,
        master: &Client,
        tail: Option<usize>,
    ) -> Result<bool, CallError> {
        let all = live_logs::attempts(master, task).await?;
        let mut all = all.into_iter().flatten();
        let Some(logs) = all.find(|logs| logs.attempt == attempt) else {
            return Ok(false);
        };
        let dir = self.dir.attempt_logs(task, attempt);
        let mut files: Vec<_> = logs.files.iter().filter_map(parse_segment).collect();
        files.sort_unstable();
        for stream in files.chunk_by(|a, b| a.0 == b.0) {
            let live = LiveAttempt { mirror: self, task, attempt, master };
            let copied = match tail {
                Some(lines) => live.copy_tail(stream, &dir, lines).await,
                None => live.download(stream, &dir).await,
            };
            match copied {
                Ok(()) => {}
                Err(CopyError::Call(error)) => return Err(error),
                // Skips a stream that does not fit on the local disk; a shorter one may fit.
                Err(CopyError::Disk) => {}
            }
        }
        Ok(true)
    }

    /// Returns true if an attempt's logs are complete in HDFS.
    async fn is_recorded(&self, task: &TaskId, attempt: u32) -> bool {
        let record = format!("{}/{RECORD}", self.layout.attempt_logs(task, attempt));
        let entry = self.hdfs.stat(&record, Instant::now() + SHIPPING_MAX).await;
        matches!(entry, Ok(Some(_)))
    }

    /// Copies the remaining output of an ended attempt from HDFS, once it is complete there.
    async fn copy_remaining_logs(&self, task: &TaskId, attempt: u32) {
        let end = Instant::now() + SHIPPING_MAX;
        loop {
            let Ok(permit) = self.permits.copies.acquire().await else {
                return;
            };
            if self.is_recorded(task, attempt).await || Instant::now() > end {
                // After a failure, the logs are copied when the job has ended.
                let _ = self.copy_attempt(task, attempt, LogWriter::Gone, None).await;
                return;
            }
            drop(permit);
            sleep(POLL_INTERVAL).await;
        }
    }
}

/// Attempt of a live agent, read through the master.
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

/// A segment of a stream: stream name, number and length.
type Segment = (&'static str, u64, u64);

impl LiveAttempt<'_> {
    /// Downloads a stream, continuing after an existing copy.
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

    /// Downloads the last lines of a stream, with a hole in the file before them.
    async fn copy_tail(
        &self,
        stream: &[Segment],
        dir: &Path,
        lines: usize,
    ) -> Result<(), CopyError> {
        fs::create_dir_all(dir)?;
        let file = |(name, number, _): &Segment| format!("{name}.{number}");
        for segment in stream {
            extend_file(&dir.join(file(segment)), segment.2)?;
        }
        let (mut newlines, mut fetched) = (0, 0);
        for segment in stream.iter().rev() {
            let (file, mut until) = (file(segment), segment.2);
            while until > 0 {
                let from = until.saturating_sub(LOG_BYTES_MAX);
                let mut piece = self.read(&file, from).await?;
                piece.truncate((until - from) as usize);
                write_at(&dir.join(&file), &piece, from)?;
                newlines += piece.iter().filter(|byte| **byte == b'\n').count();
                fetched += until - from;
                if newlines > lines || fetched > TAIL_BYTES_MAX {
                    return Ok(());
                }
                until = from;
            }
        }
        Ok(())
    }

    /// Reads a piece of a file. Returns no bytes if the file was rotated away meanwhile.
    async fn read(&self, file: &str, offset: u64) -> Result<Bytes, CopyError> {
        let _permit = self.mirror.permits.reads.acquire().await;
        let (task, wait) = (self.task, Duration::ZERO);
        let piece = live_logs::read(self.master, task, self.attempt, file, offset, wait).await;
        let piece = piece.map_err(CopyError::Call)?;
        Ok(piece.map(|piece| piece.bytes).unwrap_or_default())
    }
}

/// Returns the number of a stream's newest segment in a directory.
fn newest_segment(dir: &Path, stream: &str) -> u64 {
    let names = fs::read_dir(dir).into_iter().flatten().flatten();
    let numbers = names.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let (name, number) = name.rsplit_once('.')?;
        (name == stream).then(|| number.parse().ok())?
    });
    numbers.max().unwrap_or(0)
}

/// Parses a file name into its stream and segment number.
fn parse_segment(file: &LogFile) -> Option<Segment> {
    let (stream, number) = file.name.rsplit_once('.')?;
    let streams = ["stdout", "stderr"].into_iter();
    let stream = streams.into_iter().find(|name| *name == stream)?;
    Some((stream, number.parse().ok()?, file.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_continues_after_its_newest_segment_despite_missing_ones() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(newest_segment(&dir.path().join("none"), "stdout"), 0);
        for name in ["stdout.0", "stdout.9", "stdout.10", "stderr.11", "exit.json"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(newest_segment(dir.path(), "stdout"), 10);
        let segment = |name: &str| {
            let (name, bytes) = (name.to_owned(), 7);
            parse_segment(&LogFile { name, bytes })
        };
        assert_eq!(segment("stderr.12"), Some(("stderr", 12, 7)));
        assert_eq!(segment("exit.json"), None);
        assert_eq!(segment("stdout.x"), None);
    }
}
