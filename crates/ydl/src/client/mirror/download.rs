//! Copies logs of tasks from HDFS, to which their agents ship them.

use super::job::Mirror;
use crate::client::jobs::RemoteState;
use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep},
};
use ydl_core::{RoleName, TaskId};
use ydl_net::client::Client;
use ydl_storage::hdfs::{Entry, HdfsError, Reader};

/// Maximum time for one call.
const CALL_MAX: Duration = Duration::from_secs(30);
/// Number of attempts copied concurrently. Closing the files of dead agents is mostly waiting.
const COPIES_MAX: usize = 64;
/// Time after a job's end in which its last agents may still write.
const FINAL_LOG_DELAY: Duration = Duration::from_secs(2);
/// Maximum size of one read.
const PIECE_BYTES: usize = 4 << 20;
/// Maximum number of attempts of one job.
const ATTEMPTS_MAX: usize = 100_000;

/// State of the agent that writes the logs of an attempt. An open file in HDFS shows little of its content, and closing it
/// stops its writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogWriter {
    /// The agent may still write: its files stay open.
    Active,
    /// The attempt has ended: files that its agent left open are closed.
    Gone,
}

/// Selection of the logs that a mirror copies.
#[derive(Clone, Debug, Default)]
pub struct CopySelection {
    /// Role; all if `None`.
    pub role: Option<String>,
    /// Index of the task; all if `None`.
    pub index: Option<u32>,
    /// Attempt; all if `None`.
    pub attempt: Option<u32>,
    /// Without `attempt`: only the last attempt of each task.
    pub last_only: bool,
    /// Number of lines from the end of each stream; all if `None`.
    pub tail: Option<usize>,
}

impl Mirror {
    /// Returns whether HDFS has logs of a selected attempt. Each agent writes at least its program's exit status.
    pub(crate) async fn has_attempts(&self, selection: &CopySelection) -> bool {
        let attempts = self.attempts(selection).await;
        attempts.is_ok_and(|attempts| !attempts.is_empty())
    }

    /// Copies the selected logs as far as they are not copied yet: from live agents through `master`, and from HDFS.
    /// Skips unavailable logs and returns a message about each failure.
    pub async fn copy_logs(
        self: &Arc<Self>,
        selection: &CopySelection,
        master: Option<Arc<Client>>,
    ) -> Vec<String> {
        let attempts = match self.attempts(selection).await {
            Ok(attempts) => attempts,
            Err(error) => return vec![error.to_string()],
        };
        let over = matches!(self.remote.state(), RemoteState::Finished(_));
        let permits = Arc::new(Semaphore::new(COPIES_MAX));
        let mut tasks = JoinSet::new();
        for (task, attempt, is_last) in attempts {
            let (mirror, permits, master) = (self.clone(), permits.clone(), master.clone());
            let tail = selection.tail;
            tasks.spawn(async move {
                let _permit = permits.acquire_owned().await;
                // Only the last attempt of a running task can have a live agent.
                let mut writer = match over || !is_last {
                    true => LogWriter::Gone,
                    false => LogWriter::Active,
                };
                if let (Some(master), LogWriter::Active) = (master, writer) {
                    match mirror.copy_live_logs(&task, attempt, &master, tail).await {
                        Ok(true) => return Ok(()),
                        Ok(false) => writer = LogWriter::Gone,
                        // HDFS may have a part.
                        Err(_) => {}
                    }
                }
                mirror.copy_attempt(&task, attempt, writer, tail).await
            });
        }
        let mut failures = Vec::new();
        while let Some(copied) = tasks.join_next().await {
            if let Ok(Err(why)) = copied {
                failures.push(why);
            }
        }
        failures.sort();
        failures.dedup();
        failures
    }

    /// Lists the selected attempts in HDFS. The flag is true for the last attempt of a task.
    async fn attempts(
        &self,
        selection: &CopySelection,
    ) -> Result<Vec<(TaskId, u32, bool)>, HdfsError> {
        let roles = match &selection.role {
            Some(role) => vec![role.clone()],
            None => self.names(&self.layout.logs()).await?,
        };
        let mut found = Vec::new();
        for role in roles {
            let role_dir = format!("{}/{role}", self.layout.logs());
            let indexes = match selection.index {
                Some(index) => vec![index],
                None => numbers(&self.names(&role_dir).await?),
            };
            for index in indexes {
                let task = TaskId { role: RoleName::from(role.as_str()), index };
                let mut attempts = numbers(&self.names(&format!("{role_dir}/{index}")).await?);
                let last = attempts.iter().max().copied();
                match selection.attempt {
                    Some(wanted) => attempts.retain(|attempt| *attempt == wanted),
                    None if selection.last_only => attempts = last.into_iter().collect(),
                    None => attempts.sort_unstable(),
                }
                let is_last = |attempt| Some(attempt) == last;
                let attempts = attempts.into_iter();
                found.extend(attempts.map(|attempt| (task.clone(), attempt, is_last(attempt))));
                if found.len() > ATTEMPTS_MAX {
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }

    async fn names(&self, dir: &str) -> Result<Vec<String>, HdfsError> {
        let entries = self.entries(dir).await?;
        Ok(entries.iter().map(|entry| entry.name().to_owned()).collect())
    }

    /// Lists a directory; empty if it does not exist.
    async fn entries(&self, dir: &str) -> Result<Vec<Entry>, HdfsError> {
        match self.hdfs.list(dir, Instant::now() + CALL_MAX).await {
            Err(error) if error.kind == ydl_storage::hdfs::Kind::NotFound => Ok(Vec::new()),
            result => result,
        }
    }

    /// Copies the streams of one attempt, or their last lines. Segments are copied in order, because readers expect every
    /// segment but the newest to be complete.
    pub(super) async fn copy_attempt(
        &self,
        task: &TaskId,
        attempt: u32,
        writer: LogWriter,
        tail: Option<usize>,
    ) -> Result<(), String> {
        let dir = self.dir.attempt_logs(task, attempt);
        let source = self.layout.attempt_logs(task, attempt);
        let mut files: Vec<(String, u64, Entry)> = self
            .entries(&source)
            .await
            .map_err(|error| error.to_string())?
            .into_iter()
            .filter_map(|entry| {
                let (stream, number) = entry.name().rsplit_once('.')?;
                let number = number.parse().ok()?;
                matches!(stream, "stdout" | "stderr")
                    .then(|| (stream.to_owned(), number, entry.clone()))
            })
            .collect();
        files.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
        fs::create_dir_all(&dir).map_err(|error| copy_error(&dir, &error))?;
        if let Some(lines) = tail {
            for stream in files.chunk_by(|a, b| a.0 == b.0) {
                let segments: Vec<_> = stream.iter().map(|(_, _, entry)| entry.clone()).collect();
                self.copy_tail(&segments, &dir, lines, writer).await?;
            }
            return Ok(());
        }
        for (_, _, entry) in files {
            let path = dir.join(entry.name());
            let length = fs::metadata(&path).map_or(0, |copy| copy.len());
            self.copy_file(&entry, &path, length, writer).await?;
        }
        Ok(())
    }

    /// Opens a log file. If its agent has exited without closing it, closes it first: the length of an open file in HDFS
    /// does not include all synced bytes.
    pub(super) async fn open_log(
        &self,
        entry: &Entry,
        writer: LogWriter,
    ) -> Result<Reader, HdfsError> {
        let open = || self.hdfs.open(&entry.url, Instant::now() + CALL_MAX);
        let reader = open().await?;
        if writer == LogWriter::Active || reader.length() >= entry.bytes {
            return Ok(reader);
        }
        sleep(self.final_log_delay()).await;
        let deadline = Instant::now() + CALL_MAX;
        match self.hdfs.recover(&entry.url, deadline).await {
            Ok(()) => open().await,
            // A viewer may not close it. The NameNode does so within an hour.
            Err(_) => Ok(reader),
        }
    }

    /// Returns the remaining time in which agents of a finished job may still write.
    fn final_log_delay(&self) -> Duration {
        let ended = self.last_report().map_or(0, |report| report.finish_time);
        let ended = Duration::from_millis(u64::try_from(ended).unwrap_or(0));
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let until = (ended + FINAL_LOG_DELAY).saturating_sub(now.unwrap_or_default());
        until.min(FINAL_LOG_DELAY)
    }

    /// Copies a file from offset `from` on.
    async fn copy_file(
        &self,
        entry: &Entry,
        path: &Path,
        from: u64,
        writer: LogWriter,
    ) -> Result<(), String> {
        if from > 0 && from >= entry.bytes {
            return Ok(());
        }
        let open = self.open_log(entry, writer).await;
        let reader = open.map_err(|error| error.to_string())?;
        let mut offset = from;
        while offset < reader.length() {
            let bytes = reader
                .read_at(offset, PIECE_BYTES, Instant::now() + CALL_MAX)
                .await
                .map_err(|error| error.to_string())?;
            if bytes.is_empty() {
                break;
            }
            append(path, &bytes).map_err(|error| copy_error(path, &error))?;
            offset += bytes.len() as u64;
        }
        if from == 0 && reader.length() == 0 {
            append(path, b"").map_err(|error| copy_error(path, &error))?;
        }
        Ok(())
    }
}

/// Formats an error of writing a copy.
pub(super) fn copy_error(path: &Path, error: &io::Error) -> String {
    format!("cannot write `{}`: {}", path.display(), ydl_os::reason(error))
}

pub(super) fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(bytes)
}

fn numbers(names: &[String]) -> Vec<u32> {
    names.iter().filter_map(|name| name.parse().ok()).collect()
}
