//! Removes files that no job uses.
//!
//! A cleaner creates the lock file `cleaning` exclusively and reads the list of used files of every job. Jobs that are
//! submitted meanwhile wait; see `upload`. The lock of a cleaner that died is stale after a timeout, and the next cleaner
//! replaces it.

use super::staging_dir::StagingDir;
use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{task::JoinSet, time::Instant};
use ydl_os::report::Report;
use ydl_storage::hdfs::{Entry, Hdfs, HdfsError, Kind, layout};

/// Age after which unused files are removed.
pub const AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Age after which temporary files count as abandoned; longer than any upload.
const PARTIAL_UPLOAD_AGE: Duration = Duration::from_secs(2 * 24 * 60 * 60);
/// Age after which a lock is stale. Submissions wait at most this long for a cleaner.
pub(super) const STALE: Duration = Duration::from_secs(90);
/// Maximum time for a cleanup, so that it ends before its lock is stale, even if the machine was suspended.
const CLEANUP_MAX: Duration = Duration::from_secs(60);
/// Maximum time for releasing the lock.
const RELEASE_MAX: Duration = Duration::from_secs(10);
/// Number of jobs listed concurrently.
const LISTINGS_MAX: usize = 16;
/// Minimum time between cleanups.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Length of the prefix that identifies a hash: 80 bits.
const HASH_PREFIX_LEN: usize = 20;
/// Number of hashes in one name; HDFS limits names to 255 bytes.
const HASHES_PER_NAME: usize = 12;

/// Returns the names of the directories that record which contents a job uses. Directories are used because one call to
/// the NameNode creates one atomically, without a DataNode.
pub(super) fn use_names<'a>(hashes: impl Iterator<Item = &'a str>) -> Vec<String> {
    let hashes: BTreeSet<&str> = hashes.map(hash_prefix).collect();
    let hashes: Vec<&str> = hashes.into_iter().collect();
    let names = hashes.chunks(HASHES_PER_NAME).map(|chunk| chunk.join("-"));
    names.collect()
}

/// Parses a name from [`use_names`]; `None` for other names.
fn parse_use_name(name: &str) -> Option<impl Iterator<Item = String>> {
    let is_hash = |part: &str| {
        part.len() == HASH_PREFIX_LEN && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let parts = name.split('-');
    let all = parts.clone().all(is_hash);
    all.then(|| parts.map(str::to_owned))
}

fn hash_prefix(hash: &str) -> &str {
    hash.get(..HASH_PREFIX_LEN).unwrap_or(hash)
}

/// Numbers of removed files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanupStats {
    /// Shared files, including abandoned temporary files.
    pub contents: u64,
    /// Directories of jobs.
    pub jobs: u64,
}

/// Returns whether the owner of this lock has died, by the file system's own clock.
pub(super) fn is_stale(lock: &Entry, now_ms: u64) -> bool {
    now_ms.saturating_sub(lock.modified_ms) > STALE.as_millis() as u64
}

/// Returns whether the last cleanup was more than a day ago.
pub async fn is_due(staging_dir: &StagingDir, deadline: Instant) -> Result<bool, HdfsError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = now.unwrap_or_default().as_millis() as u64;
    let last = staging_dir.hdfs.stat(&staging_dir.layout.cleaned(), deadline).await?;
    let last_ms = last.map_or(0, |entry| entry.modified_ms);
    Ok(now_ms.saturating_sub(last_ms) >= CLEANUP_INTERVAL.as_millis() as u64)
}

/// Removes directories of finished jobs and unused shared files that are older than `age`, and abandoned temporary files.
/// Returns `None` if another process is cleaning.
pub async fn clean(
    staging_dir: &StagingDir,
    age: Duration,
    is_running: impl Fn(&str) -> bool,
    deadline: Instant,
) -> Result<Option<CleanupStats>, Report> {
    let deadline = deadline.min(Instant::now() + CLEANUP_MAX);
    let Some(lock) = lock(staging_dir, deadline).await? else {
        return Ok(None);
    };
    let mut result = sweep(staging_dir, age, is_running, &lock, deadline).await;
    // Submitters wait until the lock is gone or stale, so release it after a timeout as well.
    let release = Instant::now() + RELEASE_MAX;
    if let Ok(cleaned) = result {
        let (hdfs, done) = (&staging_dir.hdfs, staging_dir.layout.cleaned());
        let recorded = hdfs.write_atomic(&done, "", layout::PRIVATE, release).await;
        result = recorded.map(|()| cleaned);
    }
    unlock(staging_dir, lock.created_ms, release).await?;
    Ok(Some(result?))
}

/// Releases the lock created at `created_ms`, unless another process holds it by now.
async fn unlock(
    staging_dir: &StagingDir,
    created_ms: u64,
    deadline: Instant,
) -> Result<(), HdfsError> {
    let name = staging_dir.layout.cleaning();
    let found = staging_dir.hdfs.stat(&name, deadline).await?;
    if found.is_some_and(|lock| lock.modified_ms == created_ms) {
        staging_dir.hdfs.delete(&name, deadline).await?;
    }
    Ok(())
}

/// Lock of a cleaner.
struct Lock {
    /// Creation time, by the file system's clock.
    created_ms: u64,
    /// Path to which the stale lock of an earlier cleaner was renamed.
    stale: Option<String>,
}

/// Acquires the lock; `None` if another process holds it.
async fn lock(staging_dir: &StagingDir, deadline: Instant) -> Result<Option<Lock>, HdfsError> {
    let (hdfs, name) = (&staging_dir.hdfs, staging_dir.layout.cleaning());
    let mut stale = None;
    if let Some(found) = hdfs.stat(&name, deadline).await? {
        // A new file gives the current time of the file system's clock.
        let clock = staging_dir.layout.temporary("clock")?;
        let now_ms = create_lock_file(hdfs, &clock, deadline).await?;
        hdfs.delete(&clock, deadline).await?;
        if !is_stale(&found, now_ms) {
            return Ok(None);
        }
        // One of several cleaners succeeds in renaming the stale lock. The new name contains the lock's time and exists for
        // longer than any process can be delayed, so a late cleaner cannot rename the lock of its successor.
        let old = staging_dir.layout.stale(found.modified_ms);
        match hdfs.rename(&name, &old, deadline).await {
            Ok(()) => {}
            Err(error) if matches!(error.kind, Kind::NotFound | Kind::Exists) => return Ok(None),
            Err(error) => return Err(error),
        }
        stale = Some(old);
    }
    match create_lock_file(hdfs, &name, deadline).await {
        Ok(created_ms) => Ok(Some(Lock { created_ms, stale })),
        Err(error) if error.kind == Kind::Exists => Ok(None),
        // The staging directory does not exist.
        Err(error) if error.kind == Kind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Creates an empty file exclusively; returns its time by the file system's clock.
async fn create_lock_file(hdfs: &Hdfs, name: &str, deadline: Instant) -> Result<u64, HdfsError> {
    let writer = hdfs.create(name, layout::PRIVATE, deadline).await?;
    writer.close(deadline).await?;
    let created = hdfs.stat(name, deadline).await?;
    Ok(created.map_or(0, |entry| entry.modified_ms))
}

async fn sweep(
    staging_dir: &StagingDir,
    age: Duration,
    is_running: impl Fn(&str) -> bool,
    lock: &Lock,
    deadline: Instant,
) -> Result<CleanupStats, HdfsError> {
    let (hdfs, layout) = (&staging_dir.hdfs, &staging_dir.layout);
    let older = |entry: &Entry, than: Duration| {
        lock.created_ms.saturating_sub(entry.modified_ms) > than.as_millis() as u64
    };
    let began = SystemTime::now();
    let mut cleaned = CleanupStats::default();
    let mut used_hashes = BTreeSet::new();
    let mut entries = hdfs.list(&layout.jobs(), deadline).await?.into_iter();
    let mut listings = JoinSet::new();
    loop {
        let next = entries.by_ref().take(LISTINGS_MAX - listings.len());
        for entry in next {
            let (hdfs, job) = (hdfs.clone(), layout.job(entry.name()));
            listings.spawn(async move {
                let files = hdfs.list(job.dir(), deadline).await?;
                let uses = hdfs.list(&job.uses(), deadline).await?;
                Ok::<_, HdfsError>((entry, job, files, uses))
            });
        }
        let Some(listed) = listings.join_next().await else {
            break;
        };
        let (entry, job, files, uses) = listed.map_err(|_| interrupted())??;
        let is_old = older(&entry, age) && files.iter().all(|file| older(file, age));
        if is_old && !is_running(entry.name()) {
            hdfs.delete(job.dir(), deadline).await?;
            cleaned.jobs += 1;
            continue;
        }
        for entry in uses {
            let hashes = parse_use_name(entry.name()).ok_or_else(|| HdfsError {
                kind: Kind::Other,
                what: format!("`{}` is not a list of content hashes", entry.url),
                hint: Some("delete it: nothing is cleaned up while it exists".into()),
            })?;
            used_hashes.extend(hashes);
        }
    }
    for entry in hdfs.list(&layout.contents(), deadline).await? {
        let is_temporary = layout.is_temporary(entry.name());
        let is_old = older(&entry, if is_temporary { PARTIAL_UPLOAD_AGE } else { age });
        // The system clock also advances while the machine is suspended; the lists read above may be outdated then.
        if began.elapsed().unwrap_or_default() > CLEANUP_MAX {
            return Err(interrupted());
        }
        let is_stale_lock = lock.stale.as_ref() == Some(&entry.url);
        if is_old && !is_stale_lock && !used_hashes.contains(hash_prefix(entry.name())) {
            hdfs.delete(&entry.url, deadline).await?;
            cleaned.contents += 1;
        }
    }
    Ok(cleaned)
}

fn interrupted() -> HdfsError {
    HdfsError { kind: Kind::Other, what: "the cleanup was interrupted".into(), hint: None }
}

/// Removes the partial files of an interrupted upload.
pub async fn remove_partial_uploads(
    staging_dir: &StagingDir,
    id: &str,
    deadline: Instant,
) -> Result<(), HdfsError> {
    let layout = &staging_dir.layout;
    for entry in staging_dir.hdfs.list(&layout.contents(), deadline).await? {
        if layout.is_temporary_of(entry.name(), id) {
            staging_dir.hdfs.delete(&entry.url, deadline).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_used_contents_round_trip() {
        let hash = |n: usize| format!("{n:064x}").chars().rev().collect::<String>();
        let hashes: Vec<String> = (0..30).map(hash).collect();
        let names = use_names(hashes.iter().chain(&hashes).map(String::as_str));
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(names.iter().all(|name| name.len() <= 255));
        let read: BTreeSet<String> =
            names.iter().flat_map(|name| parse_use_name(name).unwrap()).collect();
        assert_eq!(read.len(), 30);
        for hash in &hashes {
            assert!(read.contains(hash_prefix(&format!("{hash}.tar.gz"))));
        }
        for other in ["", "job.json", &"a".repeat(21), &format!("{}-", "a".repeat(20))] {
            assert!(parse_use_name(other).is_none(), "{other}");
        }
    }
}
