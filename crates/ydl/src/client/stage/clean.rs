//! Removes files that no job uses.
//!
//! A cleaner creates the file `cleaning` exclusively and reads the files in use by every job. Jobs that are submitted
//! meanwhile wait; see `upload`. A cleaner that died leaves the file behind: after a timeout it is stale,
//! and the next one takes it over.

use super::staging_dir::Place;
use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{task::JoinSet, time::Instant};
use ydl_os::report::Report;
use ydl_storage::hdfs::{Entry, Hdfs, HdfsError, Kind, layout};

/// Age after which unused files are removed.
pub const AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// No upload takes so long; what is still aside then was given up.
const ASIDE_AGE: Duration = Duration::from_secs(2 * 24 * 60 * 60);
/// A cleaner that takes longer than this has died. Who submits waits for so long at most.
pub(super) const STALE: Duration = Duration::from_secs(90);
/// A cleaner stops by itself before it is taken for dead, also one whose machine was asleep.
const CLEANING_MAX: Duration = Duration::from_secs(60);
/// Maximum time for releasing the lock then.
const RELEASE_MAX: Duration = Duration::from_secs(10);
/// Jobs that are looked at at once.
const SIDE_BY_SIDE: usize = 16;
/// Once is enough in so long.
const EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// As much of a hash tells contents apart: 80 bits.
const LETTERS: usize = 20;
/// Hashes in one name; a NameNode takes 255 letters.
const TOGETHER: usize = 12;

/// The names of directories that say which contents a job uses. They are directories because one call makes a
/// directory, whole or not at all, and no DataNode has to be waited for.
pub(super) fn uses<'a>(hashes: impl Iterator<Item = &'a str>) -> Vec<String> {
    let hashes: BTreeSet<&str> = hashes.map(short).collect();
    let hashes: Vec<&str> = hashes.into_iter().collect();
    let names = hashes.chunks(TOGETHER).map(|some| some.join("-"));
    names.collect()
}

/// Parses a name from [`uses`]; `None` for other names.
fn used(name: &str) -> Option<impl Iterator<Item = String>> {
    let is_hash =
        |part: &str| part.len() == LETTERS && part.bytes().all(|letter| letter.is_ascii_hexdigit());
    let parts = name.split('-');
    let all = parts.clone().all(is_hash);
    all.then(|| parts.map(str::to_owned))
}

fn short(hash: &str) -> &str {
    hash.get(..LETTERS).unwrap_or(hash)
}

/// Numbers of removed files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanupStats {
    /// Shared files, given-up uploads among them.
    pub contents: u64,
    /// Directories of jobs.
    pub jobs: u64,
}

/// Returns whether the owner of this lock has died, by the file system's own clock.
pub(super) fn is_stale(lock: &Entry, now_ms: u64) -> bool {
    now_ms.saturating_sub(lock.modified_ms) > STALE.as_millis() as u64
}

/// Returns whether the last cleanup was more than a day ago.
pub async fn is_due(place: &Place, deadline: Instant) -> Result<bool, HdfsError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = now.unwrap_or_default().as_millis() as u64;
    let last = place.hdfs.stat(&place.layout.cleaned(), deadline).await?;
    let last_ms = last.map_or(0, |entry| entry.modified_ms);
    Ok(now_ms.saturating_sub(last_ms) >= EVERY.as_millis() as u64)
}

/// Removes what is older than `age` and not in use: jobs that are not running, shared files that no job uses, uploads
/// that were given up. `None` if another process is cleaning.
pub async fn clean(
    place: &Place,
    age: Duration,
    is_running: impl Fn(&str) -> bool,
    deadline: Instant,
) -> Result<Option<CleanupStats>, Report> {
    let deadline = deadline.min(Instant::now() + CLEANING_MAX);
    let Some(lock) = lock(place, deadline).await? else {
        return Ok(None);
    };
    let mut result = sweep(place, age, is_running, &lock, deadline).await;
    // Submitters wait until the lock is gone or stale, so release it after a timeout as well.
    let release = Instant::now() + RELEASE_MAX;
    if let Ok(cleaned) = result {
        let (hdfs, done) = (&place.hdfs, place.layout.cleaned());
        let noted = hdfs.write_atomic(&done, "", layout::PRIVATE, release).await;
        result = noted.map(|()| cleaned);
    }
    unlock(place, lock.made_ms, release).await?;
    Ok(Some(result?))
}

/// Gives the lock back that was made then, unless it is another's by now.
async fn unlock(place: &Place, made_ms: u64, deadline: Instant) -> Result<(), HdfsError> {
    let name = place.layout.cleaning();
    let there = place.hdfs.stat(&name, deadline).await?;
    if there.is_some_and(|lock| lock.modified_ms == made_ms) {
        place.hdfs.delete(&name, deadline).await?;
    }
    Ok(())
}

/// The right to clean.
struct Lock {
    /// Its creation time, by the file system's clock.
    made_ms: u64,
    /// Name under which the lock of a dead cleaner was put aside.
    stale: Option<String>,
}

/// Makes the lock; `None` if another process holds it.
async fn lock(place: &Place, deadline: Instant) -> Result<Option<Lock>, HdfsError> {
    let (hdfs, name) = (&place.hdfs, place.layout.cleaning());
    let mut stale = None;
    if let Some(there) = hdfs.stat(&name, deadline).await? {
        // The file system's clock is read from a file that it writes now.
        let clock = place.layout.temporary("clock")?;
        let now_ms = make(hdfs, &clock, deadline).await?;
        hdfs.delete(&clock, deadline).await?;
        if !is_stale(&there, now_ms) {
            return Ok(None);
        }
        // Of several that find it stale one gives it another name. That name is this very lock's, and stays taken for
        // longer than any process can be delayed: a late one cannot take the lock away from the first.
        let old = place.layout.stale(there.modified_ms);
        match hdfs.rename(&name, &old, deadline).await {
            Ok(()) => {}
            Err(error) if matches!(error.kind, Kind::NotFound | Kind::Exists) => return Ok(None),
            Err(error) => return Err(error),
        }
        stale = Some(old);
    }
    match make(hdfs, &name, deadline).await {
        Ok(made_ms) => Ok(Some(Lock { made_ms, stale })),
        Err(error) if error.kind == Kind::Exists => Ok(None),
        // The directory is not there: nothing was ever kept here.
        Err(error) if error.kind == Kind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Creates an empty file exclusively; returns its time by the file system's clock.
async fn make(hdfs: &Hdfs, name: &str, deadline: Instant) -> Result<u64, HdfsError> {
    let writer = hdfs.create(name, layout::PRIVATE, deadline).await?;
    writer.close(deadline).await?;
    let made = hdfs.stat(name, deadline).await?;
    Ok(made.map_or(0, |entry| entry.modified_ms))
}

async fn sweep(
    place: &Place,
    age: Duration,
    is_running: impl Fn(&str) -> bool,
    lock: &Lock,
    deadline: Instant,
) -> Result<CleanupStats, HdfsError> {
    let (hdfs, layout) = (&place.hdfs, &place.layout);
    let older = |entry: &Entry, than: Duration| {
        lock.made_ms.saturating_sub(entry.modified_ms) > than.as_millis() as u64
    };
    let began = SystemTime::now();
    let mut cleaned = CleanupStats::default();
    let mut used = BTreeSet::new();
    let mut entries = hdfs.list(&layout.jobs(), deadline).await?.into_iter();
    let mut looking = JoinSet::new();
    loop {
        let next = entries.by_ref().take(SIDE_BY_SIDE - looking.len());
        for entry in next {
            let (hdfs, job) = (hdfs.clone(), layout.job(entry.name()));
            looking.spawn(async move {
                let inside = hdfs.list(job.dir(), deadline).await?;
                let named = hdfs.list(&job.uses(), deadline).await?;
                Ok::<_, HdfsError>((entry, job, inside, named))
            });
        }
        let Some(looked) = looking.join_next().await else {
            break;
        };
        let (entry, job, inside, named) = looked.map_err(|_| broken())??;
        let old = older(&entry, age) && inside.iter().all(|one| older(one, age));
        if old && !is_running(entry.name()) {
            hdfs.delete(job.dir(), deadline).await?;
            cleaned.jobs += 1;
            continue;
        }
        for one in named {
            let hashes = self::used(one.name()).ok_or_else(|| HdfsError {
                kind: Kind::Other,
                what: format!("`{}` says nothing of what its job uses", one.url),
                hint: Some("nothing is cleaned up until it is gone".into()),
            })?;
            used.extend(hashes);
        }
    }
    for entry in hdfs.list(&layout.contents(), deadline).await? {
        let aside = layout.is_temporary(entry.name());
        let old = older(&entry, if aside { ASIDE_AGE } else { age });
        // A clock that goes on while this machine sleeps: what was read before may be out of date by now.
        if began.elapsed().unwrap_or_default() > CLEANING_MAX {
            return Err(broken());
        }
        let kept = lock.stale.as_ref() == Some(&entry.url);
        if old && !kept && !used.contains(short(entry.name())) {
            hdfs.delete(&entry.url, deadline).await?;
            cleaned.contents += 1;
        }
    }
    Ok(cleaned)
}

fn broken() -> HdfsError {
    HdfsError { kind: Kind::Other, what: "cleaning was broken off".into(), hint: None }
}

/// Removes what the upload of a job has left half-sent: it was broken off.
pub async fn give_up(place: &Place, id: &str, deadline: Instant) -> Result<(), HdfsError> {
    let layout = &place.layout;
    for entry in place.hdfs.list(&layout.contents(), deadline).await? {
        if layout.is_temporary_of(entry.name(), id) {
            place.hdfs.delete(&entry.url, deadline).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_job_uses_is_read_as_it_was_written() {
        let hash = |n: usize| format!("{n:064x}").chars().rev().collect::<String>();
        let hashes: Vec<String> = (0..30).map(hash).collect();
        let names = uses(hashes.iter().chain(&hashes).map(String::as_str));
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(names.iter().all(|name| name.len() <= 255));
        let read: BTreeSet<String> = names.iter().flat_map(|name| used(name).unwrap()).collect();
        assert_eq!(read.len(), 30);
        for hash in &hashes {
            assert!(read.contains(short(&format!("{hash}.tar.gz"))));
        }
        for odd in ["", "job.json", &"a".repeat(21), &format!("{}-", "a".repeat(20))] {
            assert!(used(odd).is_none(), "{odd}");
        }
    }
}
