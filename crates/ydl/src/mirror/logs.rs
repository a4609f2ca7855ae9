//! Copies of what tasks have printed, from where their agents have carried it.

use super::job::Mirror;
use crate::hdfs::{Entry, HdfsError};
use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::Path,
    sync::Arc,
    time::Duration,
};
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};
use ydl_core::{RoleName, TaskId};

/// What one call may take.
const CALL_MAX: Duration = Duration::from_secs(30);
/// Attempts that are copied side by side.
const SIDE_BY_SIDE: usize = 16;
/// Read in one call.
const PIECE_BYTES: usize = 4 << 20;
/// Directories of roles, tasks and attempts that are looked into.
const ATTEMPTS_MAX: usize = 100_000;

/// Which logs are of interest.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Of this role alone.
    pub role: Option<String>,
    /// Of this task alone.
    pub index: Option<u32>,
    /// Of this attempt alone.
    pub attempt: Option<u32>,
    /// The last attempt of each task, where none is named.
    pub last_only: bool,
    /// Only so many of the last lines of each stream.
    pub tail: Option<usize>,
}

impl Mirror {
    /// Whether an agent has lived for any of it: each leaves at least a record of how its program ended.
    pub async fn has_attempts(&self, wanted: &Wanted) -> bool {
        let attempts = self.attempts(wanted).await;
        attempts.is_ok_and(|attempts| !attempts.is_empty())
    }

    /// Copies what is wanted and lies in HDFS, as far as it is not here. What cannot be had now is left out; a
    /// sentence says so.
    pub async fn bring_logs(self: &Arc<Self>, wanted: &Wanted) -> Vec<String> {
        let attempts = match self.attempts(wanted).await {
            Ok(attempts) => attempts,
            Err(error) => return vec![error.to_string()],
        };
        let turns = Arc::new(Semaphore::new(SIDE_BY_SIDE));
        let mut copying = JoinSet::new();
        for (task, attempt) in attempts {
            let (mirror, turns, tail) = (self.clone(), turns.clone(), wanted.tail);
            copying.spawn(async move {
                let _turn = turns.acquire_owned().await;
                mirror.bring_attempt(&task, attempt, tail).await
            });
        }
        let mut failures = Vec::new();
        while let Some(copied) = copying.join_next().await {
            if let Ok(Err(why)) = copied {
                failures.push(why);
            }
        }
        failures.sort();
        failures.dedup();
        failures
    }

    /// Every attempt in HDFS that is wanted.
    async fn attempts(&self, wanted: &Wanted) -> Result<Vec<(TaskId, u32)>, HdfsError> {
        let roles = match &wanted.role {
            Some(role) => vec![role.clone()],
            None => self.names(&self.place.logs()).await?,
        };
        let mut found = Vec::new();
        for role in roles {
            let at = format!("{}/{role}", self.place.logs());
            let indexes = match wanted.index {
                Some(index) => vec![index],
                None => numbers(&self.names(&at).await?),
            };
            for index in indexes {
                let task = TaskId {
                    role: RoleName::from(role.as_str()),
                    index,
                };
                let mut attempts = match wanted.attempt {
                    Some(attempt) => vec![attempt],
                    None => numbers(&self.names(&format!("{at}/{index}")).await?),
                };
                attempts.sort_unstable();
                if wanted.last_only {
                    attempts = attempts.split_off(attempts.len().saturating_sub(1));
                }
                found.extend(attempts.into_iter().map(|attempt| (task.clone(), attempt)));
                if found.len() > ATTEMPTS_MAX {
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }

    async fn names(&self, place: &str) -> Result<Vec<String>, HdfsError> {
        let entries = self.entries(place).await?;
        Ok(entries
            .iter()
            .map(|entry| entry.name().to_owned())
            .collect())
    }

    /// What is in a directory; nothing, if it is not there.
    async fn entries(&self, place: &str) -> Result<Vec<Entry>, HdfsError> {
        match self.hdfs.list(place, Instant::now() + CALL_MAX).await {
            Err(error) if error.kind == crate::hdfs::Kind::NotFound => Ok(Vec::new()),
            listed => listed,
        }
    }

    /// Copies the streams of one attempt, each segment after the other: readers take every segment but the newest
    /// for whole. Or the last lines of each.
    pub(super) async fn bring_attempt(
        &self,
        task: &TaskId,
        attempt: u32,
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
            let why = crate::os::reason(&error);
            format!("cannot keep a copy in `{}`: {why}", here.display())
        };
        fs::create_dir_all(&here).map_err(failed)?;
        if let Some(lines) = tail {
            for stream in files.chunk_by(|a, b| a.0 == b.0) {
                let segments: Vec<_> = stream.iter().map(|(_, _, entry)| entry.clone()).collect();
                self.bring_tail(&segments, &here, lines).await?;
            }
            return Ok(());
        }
        for (_, _, entry) in files {
            let path = here.join(entry.name());
            let length = fs::metadata(&path).map_or(0, |about| about.len());
            self.bring_file(&entry.url, &path, length).await?;
        }
        Ok(())
    }

    /// Copies a file from where the copy ends.
    async fn bring_file(&self, url: &str, path: &Path, from: u64) -> Result<(), String> {
        let open = self.hdfs.open(url, Instant::now() + CALL_MAX);
        let reader = open.await.map_err(|error| error.to_string())?;
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
