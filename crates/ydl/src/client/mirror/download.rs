//! Copies logs of tasks from HDFS, where their agents have shipped them.

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
/// Attempts that are copied concurrently. Closing what a dead agent left open is mostly waiting.
const COPIES_MAX: usize = 64;
/// Time after a job's end in which its last agents may still write.
const FINAL_LOG_DELAY: Duration = Duration::from_secs(2);
/// Size of one read.
const PIECE_BYTES: usize = 4 << 20;
/// Maximum number of directories of roles, tasks and attempts that are listed.
const ATTEMPTS_MAX: usize = 100_000;

/// State of an attempt's log writer, its agent. Of a file that is open in HDFS, readers see little. Closing it for the
/// agent revokes the agent's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogWriter {
    /// The agent may still write: open files stay open.
    Active,
    /// The agent is gone: its open files are closed.
    Gone,
}

/// Selection of logs.
#[derive(Clone, Debug, Default)]
pub struct LogFilter {
    /// Only this role.
    pub role: Option<String>,
    /// Only tasks with this index.
    pub index: Option<u32>,
    /// Only this attempt.
    pub attempt: Option<u32>,
    /// Only the last attempt of each task, unless `attempt` is set.
    pub last_only: bool,
    /// Only this number of last lines of each stream.
    pub tail: Option<usize>,
}

impl Mirror {
    /// Returns true if there are logs of any of these attempts: each has at least an exit record.
    pub async fn has_attempts(&self, filter: &LogFilter) -> bool {
        let attempts = self.attempts(filter).await;
        attempts.is_ok_and(|attempts| !attempts.is_empty())
    }

    /// Copies the selected logs that are not here yet: from live agents through `master`, and from HDFS. Returns messages
    /// about logs that are unavailable.
    pub async fn copy_logs(
        self: &Arc<Self>,
        filter: &LogFilter,
        master: Option<Arc<Client>>,
    ) -> Vec<String> {
        let attempts = match self.attempts(filter).await {
            Ok(attempts) => attempts,
            Err(error) => return vec![error.to_string()],
        };
        let over = matches!(self.remote.state(), RemoteState::Finished(_));
        let permits = Arc::new(Semaphore::new(COPIES_MAX));
        let mut tasks = JoinSet::new();
        for (task, attempt, is_last) in attempts {
            let (mirror, permits, master) = (self.clone(), permits.clone(), master.clone());
            let tail = filter.tail;
            tasks.spawn(async move {
                let _permit = permits.acquire_owned().await;
                // While the job runs, only the last attempt of a task can have an agent.
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

    /// Every attempt in HDFS that is wanted, and whether it is the last of its task.
    async fn attempts(&self, filter: &LogFilter) -> Result<Vec<(TaskId, u32, bool)>, HdfsError> {
        let roles = match &filter.role {
            Some(role) => vec![role.clone()],
            None => self.names(&self.place.logs()).await?,
        };
        let mut found = Vec::new();
        for role in roles {
            let at = format!("{}/{role}", self.place.logs());
            let indexes = match filter.index {
                Some(index) => vec![index],
                None => numbers(&self.names(&at).await?),
            };
            for index in indexes {
                let task = TaskId { role: RoleName::from(role.as_str()), index };
                let mut attempts = numbers(&self.names(&format!("{at}/{index}")).await?);
                let last = attempts.iter().max().copied();
                match filter.attempt {
                    Some(wanted) => attempts.retain(|attempt| *attempt == wanted),
                    None if filter.last_only => attempts = last.into_iter().collect(),
                    None => attempts.sort_unstable(),
                }
                let is_last = |attempt| Some(attempt) == last;
                let attempts = attempts.into_iter();
                found.extend(attempts.map(|it| (task.clone(), it, is_last(it))));
                if found.len() > ATTEMPTS_MAX {
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }

    async fn names(&self, place: &str) -> Result<Vec<String>, HdfsError> {
        let entries = self.entries(place).await?;
        Ok(entries.iter().map(|entry| entry.name().to_owned()).collect())
    }

    /// Lists a directory; empty if it does not exist.
    async fn entries(&self, place: &str) -> Result<Vec<Entry>, HdfsError> {
        match self.hdfs.list(place, Instant::now() + CALL_MAX).await {
            Err(error) if error.kind == ydl_storage::hdfs::Kind::NotFound => Ok(Vec::new()),
            listed => listed,
        }
    }

    /// Copies the streams of one attempt, or their last lines. Copies one segment after the other, because readers expect
    /// all segments except the newest to be complete.
    pub(super) async fn copy_attempt(
        &self,
        task: &TaskId,
        attempt: u32,
        writer: LogWriter,
        tail: Option<usize>,
    ) -> Result<(), String> {
        let here = self.dir.attempt_logs(task, attempt);
        let there = self.place.attempt_logs(task, attempt);
        let mut files: Vec<(String, u64, Entry)> = self
            .entries(&there)
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
        let failed = |error: io::Error| {
            let why = ydl_os::reason(&error);
            format!("cannot keep a copy in `{}`: {why}", here.display())
        };
        fs::create_dir_all(&here).map_err(failed)?;
        if let Some(lines) = tail {
            for stream in files.chunk_by(|a, b| a.0 == b.0) {
                let segments: Vec<_> = stream.iter().map(|(_, _, entry)| entry.clone()).collect();
                self.copy_tail(&segments, &here, lines, writer).await?;
            }
            return Ok(());
        }
        for (_, _, entry) in files {
            let path = here.join(entry.name());
            let length = fs::metadata(&path).map_or(0, |about| about.len());
            self.copy_file(&entry, &path, length, writer).await?;
        }
        Ok(())
    }

    /// Opens a file to read it whole. If its agent left it open and is gone, closes it first: readers see little of an
    /// open file.
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
            // Viewers cannot close it. The NameNode does, within an hour.
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

    /// Copies a file from the end of the earlier copy.
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
            append(path, &bytes)
                .map_err(|error| format!("cannot keep a copy in `{}`: {error}", path.display()))?;
            offset += bytes.len() as u64;
        }
        if from == 0 && reader.length() == 0 {
            append(path, b"").map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

pub(super) fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(bytes)
}

fn numbers(names: &[String]) -> Vec<u32> {
    names.iter().filter_map(|name| name.parse().ok()).collect()
}
