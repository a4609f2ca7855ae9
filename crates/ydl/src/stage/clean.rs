//! What no job uses any more goes.
//!
//! Whoever cleans makes the file `cleaning`, which only one can, and reads what every job uses. Jobs that are submitted
//! meanwhile wait; see `send`. A cleaner that died leaves the file behind: after a while the next one takes it over.

use super::place::Place;
use crate::{
    hdfs::{Entry, Hdfs, HdfsError, Kind, layout},
    report::Report,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::Instant;

/// What was not used for so long is old.
pub const AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// No upload takes so long; what is still aside then was given up.
const ASIDE_AGE: Duration = Duration::from_secs(2 * 24 * 60 * 60);
/// A cleaner that takes longer than this has died.
const STALE: Duration = Duration::from_secs(10 * 60);
/// A cleaner stops by itself long before it is taken for dead.
const CLEANING_MAX: Duration = Duration::from_secs(4 * 60);
/// Once is enough in so long.
const EVERY: Duration = Duration::from_secs(24 * 60 * 60);
/// The names of all files of a job that is not out of all proportion.
const USES_BYTES_MAX: u64 = 16 << 20;

/// What a job uses of what is shared.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Uses {
    pub content: BTreeSet<String>,
}

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Shared files, given-up uploads among them.
    pub contents: u64,
    /// Directories of jobs.
    pub jobs: u64,
}

/// Whether whoever made this lock has died, by the file system's own clock.
pub(super) fn is_stale(lock: &Entry, now_ms: u64) -> bool {
    now_ms.saturating_sub(lock.modified_ms) > STALE.as_millis() as u64
}

/// [`clean`]s if nobody has for a day. `None` if it was not yet time, or somebody else is at it.
pub async fn clean_if_due(
    place: &Place,
    age: Duration,
    is_running: impl Fn(&str) -> bool,
    deadline: Instant,
) -> Result<Option<Cleaned>, Report> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = now.unwrap_or_default().as_millis() as u64;
    let last = place.hdfs.stat(&place.layout.cleaned(), deadline).await?;
    let last_ms = last.map_or(0, |entry| entry.modified_ms);
    if now_ms.saturating_sub(last_ms) < EVERY.as_millis() as u64 {
        return Ok(None);
    }
    clean(place, age, is_running, deadline).await
}

/// Removes what is older than `age` and not in use: jobs that are not running, shared files that no job uses, uploads
/// that were given up. `None` if somebody else is at it.
pub async fn clean(
    place: &Place,
    age: Duration,
    is_running: impl Fn(&str) -> bool,
    deadline: Instant,
) -> Result<Option<Cleaned>, Report> {
    let deadline = deadline.min(Instant::now() + CLEANING_MAX);
    let Some(now_ms) = lock(place, deadline).await? else {
        return Ok(None);
    };
    let result = sweep(place, age, is_running, now_ms, deadline).await;
    if result.is_ok() {
        let done = place.layout.cleaned();
        place
            .hdfs
            .write_whole(&done, "", layout::PRIVATE, deadline)
            .await?;
    }
    // Whoever waits for it waits until it is gone, or stale.
    place
        .hdfs
        .delete(&place.layout.cleaning(), deadline)
        .await?;
    Ok(Some(result?))
}

/// Makes the lock; the file system's time, or `None` if somebody else has it.
async fn lock(place: &Place, deadline: Instant) -> Result<Option<u64>, HdfsError> {
    let (hdfs, name) = (&place.hdfs, place.layout.cleaning());
    if let Some(there) = hdfs.stat(&name, deadline).await? {
        // The file system's clock is read from a file that it writes now.
        let clock = format!("{}-clock", place.layout.aside()?);
        let now_ms = make(hdfs, &clock, deadline).await?;
        hdfs.delete(&clock, deadline).await?;
        if !is_stale(&there, now_ms) {
            return Ok(None);
        }
        // Of several that find it stale one gives it another name; the others find nothing to rename.
        let old = place.layout.aside()?;
        match hdfs.rename(&name, &old, deadline).await {
            Ok(()) => drop(hdfs.delete(&old, deadline).await?),
            Err(error) if error.kind == Kind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    match make(hdfs, &name, deadline).await {
        Ok(now_ms) => Ok(Some(now_ms)),
        Err(error) if error.kind == Kind::Exists => Ok(None),
        // The directory is not there: nothing was ever kept here.
        Err(error) if error.kind == Kind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes an empty file that nobody else has made; when, by the file system's clock.
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
    now_ms: u64,
    deadline: Instant,
) -> Result<Cleaned, HdfsError> {
    let (hdfs, layout) = (&place.hdfs, &place.layout);
    let older = |entry: &Entry, than: Duration| {
        now_ms.saturating_sub(entry.modified_ms) > than.as_millis() as u64
    };
    let mut cleaned = Cleaned::default();
    let mut used = BTreeSet::new();
    for entry in hdfs.list(&layout.jobs(), deadline).await? {
        let job = layout.job(entry.name());
        let inside = hdfs.list(job.dir(), deadline).await?;
        let old = older(&entry, age) && inside.iter().all(|one| older(one, age));
        if old && !is_running(entry.name()) {
            hdfs.delete(job.dir(), deadline).await?;
            cleaned.jobs += 1;
            continue;
        }
        if let Some(bytes) = hdfs
            .read_if_there(&job.uses(), USES_BYTES_MAX, deadline)
            .await?
        {
            let uses: Uses = serde_json::from_slice(&bytes).map_err(|error| HdfsError {
                kind: Kind::Other,
                what: format!("cannot read `{}`: {error}", job.uses()),
                hint: Some("nothing is cleaned up until it is whole or gone".into()),
            })?;
            used.extend(uses.content);
        }
    }
    for entry in hdfs.list(&layout.contents(), deadline).await? {
        let aside = layout.is_aside(entry.name());
        let old = older(&entry, if aside { ASIDE_AGE } else { age });
        if old && !used.contains(entry.name()) {
            hdfs.delete(&entry.url, deadline).await?;
            cleaned.contents += 1;
        }
    }
    Ok(cleaned)
}
