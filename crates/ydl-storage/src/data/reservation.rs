//! Reservations of destinations that no other job may own, checked again when something first goes there: hours may have
//! passed since submit.
//!
//! What a job has taken is written down in its own directory, for its other tasks and attempts: what they find there is
//! their own. The first record decides for all.

use super::{
    destinations::{NUMBERS_MAX, numbered},
    error::DataError,
};
use crate::store::{FileStore, LocalStore, Store};
use bytes::Bytes;
use ring::digest::{SHA256, digest};
use std::{path::Path, sync::Arc, time::Duration};
use tokio::time::Instant;
use ydl_core::spec::ExistingPolicy;

/// Maximum length of a job name read from a reservation.
const BYTES_MAX: u64 = 64 << 10;
/// Maximum size of a file of the log.
const PAGE_BYTES_MAX: u64 = 32 << 20;

/// Age after which a reservation counts as left by a killed job. It is held only during an upload.
const HELD_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Prefix of reservations: files beside the destination. They count as temporary.
pub(super) const RESERVATION_PREFIX: &str = ".aside-for-";

/// Persistent record of the destinations that a job has taken.
#[derive(Clone, Debug)]
pub struct ReservationLog {
    store: Store,
    dir: String,
}

/// The destination that an output of that job gets: `to`, if nothing is there or the job has put it there itself. `store`
/// is the file system that it is in.
///
/// Of two jobs that look at once only one makes the reservation beside a free place. It is held until something is there,
/// and then [released](release).
pub async fn reserve(
    book: &ReservationLog,
    store: &dyn FileStore,
    existing: ExistingPolicy,
    to: &str,
    job: &str,
    deadline: Instant,
) -> Result<String, DataError> {
    if existing == ExistingPolicy::Overwrite {
        return Ok(to.to_owned());
    }
    let mut free = to.to_owned();
    for number in 2..NUMBERS_MAX {
        if let Some(taken) = book.read(to, deadline).await? {
            return Ok(taken);
        }
        let is_ours =
            !is_there(store, &free, deadline).await? && hold(store, &free, job, deadline).await?;
        // The previous holder may have written the destination since the check.
        if is_ours && !is_there(store, &free, deadline).await? {
            return book.write(to, free, deadline).await;
        }
        // Another task of this job may have taken it, and put something there, meanwhile.
        if let Some(taken) = book.read(to, deadline).await? {
            return Ok(taken);
        }
        if is_ours {
            release(store, &free, deadline).await;
        }
        if existing == ExistingPolicy::Fail {
            let what = format!("`{to}` was created by another process after the job was submitted");
            let hint = "choose another destination, move it away, or set `existing: overwrite`";
            return Err(DataError::permanent(what).hint(hint));
        }
        free = numbered(to, number);
    }
    Err(DataError::permanent(format!("no free number was found for `{to}`")))
}

/// Returns the path of the reservation file beside a destination.
fn reservation_path(place: &str) -> String {
    let place = place.trim_end_matches('/');
    let (dir, name) = place.rsplit_once('/').unwrap_or((".", place));
    // Names end at 255 bytes.
    let name: String = name.chars().take(50).collect();
    format!("{dir}/{RESERVATION_PREFIX}{name}-{}", &self::name(place)[..8])
}

/// Reserves the destination. Returns true if this job holds it now.
async fn hold(
    store: &dyn FileStore,
    place: &str,
    job: &str,
    deadline: Instant,
) -> Result<bool, DataError> {
    let mark = reservation_path(place);
    if let Some((dir, _)) = mark.rsplit_once('/') {
        store.make_dirs(dir, None, deadline).await?;
    }
    for _ in 0..2 {
        let text = Bytes::copy_from_slice(job.as_bytes());
        if store.write_if_absent(&mark, text, deadline).await? {
            return Ok(true);
        }
        let held = store.read(&mark, BYTES_MAX, deadline).await?;
        if held.is_some_and(|held| held == job.as_bytes()) {
            return Ok(true);
        }
        let there = store.stat(&mark, deadline).await?;
        if there.is_some_and(|there| !there.is_older_than(HELD_MAX)) {
            return Ok(false);
        }
        store.delete(&mark, deadline).await?;
    }
    Ok(false)
}

/// Releases a reservation once the destination exists or will not be written.
pub async fn release(store: &dyn FileStore, place: &str, deadline: Instant) {
    if let Err(error) = store.delete(&reservation_path(place), deadline).await {
        tracing::warn!("something is left behind: {}", error.what);
    }
}

async fn is_there(store: &dyn FileStore, to: &str, deadline: Instant) -> Result<bool, DataError> {
    Ok(store.stat(to.trim_end_matches('/'), deadline).await?.is_some())
}

impl ReservationLog {
    /// Opens the log in a directory of a store.
    pub fn new(store: Store, dir: impl Into<String>) -> ReservationLog {
        ReservationLog { store, dir: dir.into() }
    }

    /// Opens the log in a directory of this machine.
    pub fn local(dir: &Path) -> ReservationLog {
        ReservationLog::new(Arc::new(LocalStore), dir.to_string_lossy())
    }

    /// Returns the path that the job has taken for a destination.
    pub async fn read(&self, to: &str, deadline: Instant) -> Result<Option<String>, DataError> {
        let Some(bytes) = self.page(&name(to), deadline).await? else {
            return Ok(None);
        };
        let text = String::from_utf8(bytes.to_vec());
        let odd = |_| DataError::permanent(format!("what was taken for `{to}` is not text"));
        text.map(Some).map_err(odd)
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.dir)
    }

    /// Reads one file of the log, if it exists.
    pub(super) async fn page(
        &self,
        name: &str,
        deadline: Instant,
    ) -> Result<Option<Bytes>, DataError> {
        self.store.read(&self.path(name), PAGE_BYTES_MAX, deadline).await
    }

    /// Writes one file of the log, replacing its content.
    pub(super) async fn set_page(
        &self,
        name: &str,
        bytes: Vec<u8>,
        deadline: Instant,
    ) -> Result<(), DataError> {
        self.store.make_dirs(&self.dir, None, deadline).await?;
        self.store.write(&self.path(name), bytes.into(), deadline).await
    }

    /// Removes one file of the log, if it exists.
    pub(super) async fn remove_page(&self, name: &str, deadline: Instant) -> Result<(), DataError> {
        self.store.delete(&self.path(name), deadline).await.map(drop)
    }

    /// Lists the files of the log with that prefix.
    pub(super) async fn pages(
        &self,
        begin: &str,
        deadline: Instant,
    ) -> Result<Vec<String>, DataError> {
        let all = self.store.list(&self.dir, deadline).await?;
        let names = all.iter().map(|entry| entry.name().to_owned());
        let mut names: Vec<String> = names.filter(|name| name.starts_with(begin)).collect();
        names.sort();
        Ok(names)
    }

    /// Records the path taken, unless another task did so first. Returns the recorded path.
    async fn write(&self, to: &str, taken: String, deadline: Instant) -> Result<String, DataError> {
        self.store.make_dirs(&self.dir, None, deadline).await?;
        let (path, bytes) = (self.path(&name(to)), taken.clone().into());
        if self.store.write_if_absent(&path, bytes, deadline).await? {
            return Ok(taken);
        }
        let gone = || DataError::permanent(format!("what was taken for `{to}` is gone"));
        self.read(to, deadline).await?.ok_or_else(gone)
    }
}

pub(super) fn name(to: &str) -> String {
    hex::encode(&digest(&SHA256, to.as_bytes()).as_ref()[..16])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_somebody_else_made_is_refused_or_avoided_and_ones_own_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let book = ReservationLog::local(&dir.path().join("reservations"));
        let to = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.unwrap();
        let take = |existing, to: &str| {
            let deadline = Instant::now() + Duration::from_secs(10);
            runtime.block_on(reserve(&book, &LocalStore, existing, to, "job", deadline))
        };
        assert_eq!(take(ExistingPolicy::Fail, &to("free")), Ok(to("free")));
        for name in ["free", "theirs", "theirs-2"] {
            fs::write(to(name), "").unwrap();
        }
        assert_eq!(take(ExistingPolicy::Fail, &to("free")), Ok(to("free")));
        let refused = take(ExistingPolicy::Fail, &to("theirs")).unwrap_err();
        let sentence = "theirs` was created by another process after the job was submitted";
        assert!(refused.what.ends_with(sentence), "{refused:?}");
        assert_eq!(take(ExistingPolicy::Overwrite, &to("theirs")), Ok(to("theirs")));
        assert_eq!(take(ExistingPolicy::Number, &to("theirs")), Ok(to("theirs-3")));
        fs::write(to("theirs-3"), "").unwrap();
        assert_eq!(take(ExistingPolicy::Number, &to("theirs")), Ok(to("theirs-3")));
        // Of two that write at once the first decides.
        let theirs = to("theirs");
        let late = book.write(&theirs, "x".into(), Instant::now());
        assert_eq!(runtime.block_on(late), Ok(to("theirs-3")));
        let left = fs::read_dir(dir.path().join("reservations")).unwrap();
        assert_eq!(left.count(), 2);
    }

    #[test]
    fn of_two_jobs_that_look_at_once_each_gets_a_place_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("two").to_string_lossy().into_owned();
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let take = |job: &str, existing| {
            let book = ReservationLog::local(&dir.path().join(job));
            runtime.block_on(reserve(&book, &LocalStore, existing, &to, job, deadline))
        };
        // Nothing is put there in between.
        assert_eq!(take("one", ExistingPolicy::Number), Ok(to.clone()));
        assert_eq!(take("other", ExistingPolicy::Number), Ok(format!("{to}-2")));
        assert_eq!(take("one", ExistingPolicy::Number), Ok(to.clone()));
        assert!(take("third", ExistingPolicy::Fail).is_err());
        fs::write(&to, "").unwrap();
        runtime.block_on(release(&LocalStore, &to, deadline));
        assert_eq!(take("fourth", ExistingPolicy::Number), Ok(format!("{to}-3")));
        for number in 2..4 {
            runtime.block_on(release(&LocalStore, &format!("{to}-{number}"), deadline));
        }
        let names = fs::read_dir(dir.path()).unwrap().flatten();
        let names: Vec<_> = names.map(|entry| entry.file_name()).collect();
        let held = |name: &std::ffi::OsString| name.to_string_lossy().starts_with('.');
        assert!(!names.iter().any(held), "{names:?}");
    }
}
