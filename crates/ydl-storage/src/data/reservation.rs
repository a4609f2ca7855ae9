//! Reservations of destinations that no other job may own, checked again when something first goes there: hours may have
//! passed since submit.
//!
//! What a job has taken is written down in its own directory, for its other tasks and attempts: what they find there is
//! their own. The first record decides for all.

use super::{
    destinations::{NUMBERS_MAX, numbered},
    error::DataError,
};
use crate::hdfs::{Hdfs, url_path};
use ring::digest::{SHA256, digest};
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::Instant;
use ydl_core::spec::ExistingPolicy;
use ydl_os::reason;

/// Maximum length of a job name read from a reservation.
const BYTES_MAX: u64 = 64 << 10;
/// Maximum size of a file of the log.
const PAGE_BYTES_MAX: u64 = 32 << 20;

/// Age after which a reservation counts as left by a killed job. It is held only during an upload.
const HELD_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Persistent record of the destinations that a job has taken.
#[derive(Clone, Debug)]
pub enum ReservationLog {
    /// A directory of this machine.
    Local(PathBuf),
    /// One in HDFS.
    Hdfs(Hdfs, String),
}

/// The destination that an output of that job gets: `to`, if nothing is there or the job has put it there itself. `ground`
/// is the file system that it is in, if it is not on this machine.
///
/// Of two jobs that look at once only one makes the reservation beside a free place. It is held until something is there,
/// and then [released](release).
pub async fn reserve(
    book: &ReservationLog,
    ground: Option<&Hdfs>,
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
            !is_there(ground, &free, deadline).await? && hold(ground, &free, job, deadline).await?;
        // The previous holder may have written the destination since the check.
        if is_ours && !is_there(ground, &free, deadline).await? {
            return book.write(to, free, deadline).await;
        }
        // Another task of this job may have taken it, and put something there, meanwhile.
        if let Some(taken) = book.read(to, deadline).await? {
            return Ok(taken);
        }
        if is_ours {
            release(ground, &free, deadline).await;
        }
        if existing == ExistingPolicy::Fail {
            let what = format!("`{to}` was created by another process after the job was submitted");
            let hint = "name another place, move it away, or say `existing: overwrite`";
            return Err(DataError::permanent(what).hint(hint));
        }
        free = numbered(to, number);
    }
    Err(DataError::permanent(format!("no free number was found for `{to}`")))
}

/// Returns the path of the reservation file beside a destination.
fn reservation_path(ground: Option<&Hdfs>, place: &str) -> String {
    let place = place.trim_end_matches('/');
    let (dir, name) = place.rsplit_once('/').unwrap_or((".", place));
    // Names end at 255 bytes.
    let name: String = name.chars().take(50).collect();
    match ground {
        Some(_) => format!("{dir}/.aside-for-{name}-{}", &self::name(place)[..8]),
        None => {
            let own = u32::from_str_radix(&self::name(place)[..8], 16).unwrap_or_default();
            format!("{dir}/.{name}.ydl-{own}")
        }
    }
}

/// Reserves the destination. Returns true if this job holds it now.
async fn hold(
    ground: Option<&Hdfs>,
    place: &str,
    job: &str,
    deadline: Instant,
) -> Result<bool, DataError> {
    let mark = reservation_path(ground, place);
    let Some(hdfs) = ground else {
        return hold_local(Path::new(&mark), job)
            .map_err(|error| DataError::local_write(Path::new(&mark), &error));
    };
    if let Some((dir, _)) = mark.rsplit_once('/') {
        hdfs.mkdirs(dir, 0o755, deadline).await?;
    }
    for _ in 0..2 {
        let text = job.to_owned().into_bytes();
        if hdfs.write_if_absent(&mark, text, 0o644, deadline).await? {
            return Ok(true);
        }
        let held = hdfs.read_if_exists(&mark, BYTES_MAX, deadline).await?;
        if held.is_some_and(|held| held.as_ref() == job.as_bytes()) {
            return Ok(true);
        }
        let since = hdfs.stat(&mark, deadline).await?;
        let since = since.map(|entry| UNIX_EPOCH + Duration::from_millis(entry.modified_ms));
        if since.is_some_and(|since| !is_old(since)) {
            return Ok(false);
        }
        hdfs.delete(&mark, deadline).await?;
    }
    Ok(false)
}

fn hold_local(mark: &Path, job: &str) -> io::Result<bool> {
    let dir = mark.parent().unwrap_or(Path::new("/"));
    let name = mark.file_name().unwrap_or_default().to_string_lossy();
    for _ in 0..2 {
        if write(dir, &name, job)? {
            return Ok(true);
        }
        match fs::read(mark) {
            Ok(held) if held == job.as_bytes() => return Ok(true),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        }
        if mark.metadata().and_then(|about| about.modified()).is_ok_and(|since| !is_old(since)) {
            return Ok(false);
        }
        // Another process may have removed it already.
        let _ = fs::remove_file(mark);
    }
    Ok(false)
}

fn is_old(since: SystemTime) -> bool {
    SystemTime::now().duration_since(since).is_ok_and(|age| age > HELD_MAX)
}

/// Releases a reservation once the destination exists or will not be written.
pub async fn release(ground: Option<&Hdfs>, place: &str, deadline: Instant) {
    let mark = reservation_path(ground, place);
    match ground {
        Some(hdfs) => {
            if let Err(error) = hdfs.delete(&mark, deadline).await {
                tracing::warn!("something is left behind: {error}");
            }
        }
        // Another task of the job may have done it.
        None => drop(fs::remove_file(mark)),
    }
}

async fn is_there(ground: Option<&Hdfs>, to: &str, deadline: Instant) -> Result<bool, DataError> {
    match ground {
        Some(hdfs) => {
            let place = hdfs.url(url_path(to.trim_end_matches('/')));
            Ok(hdfs.stat(&place, deadline).await?.is_some())
        }
        None => Ok(Path::new(to.trim_end_matches('/')).symlink_metadata().is_ok()),
    }
}

impl ReservationLog {
    /// Returns the path that the job has taken for a destination.
    pub async fn read(&self, to: &str, deadline: Instant) -> Result<Option<String>, DataError> {
        let Some(bytes) = self.page(&name(to), deadline).await? else {
            return Ok(None);
        };
        let text = String::from_utf8(bytes);
        let odd = |_| DataError::permanent(format!("what was taken for `{to}` is not text"));
        text.map(Some).map_err(odd)
    }

    /// Reads one file of the log, if it exists.
    pub(super) async fn page(
        &self,
        name: &str,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, DataError> {
        Ok(match self {
            ReservationLog::Local(dir) => match fs::read(dir.join(name)) {
                Ok(bytes) => Some(bytes),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(unread(dir, &error)),
            },
            ReservationLog::Hdfs(hdfs, dir) => {
                let place = format!("{dir}/{name}");
                let bytes = hdfs.read_if_exists(&place, PAGE_BYTES_MAX, deadline).await?;
                bytes.map(|bytes| bytes.to_vec())
            }
        })
    }

    /// Writes one file of the log, replacing its content.
    pub(super) async fn set_page(
        &self,
        name: &str,
        bytes: Vec<u8>,
        deadline: Instant,
    ) -> Result<(), DataError> {
        match self {
            ReservationLog::Local(dir) => {
                let set = || {
                    fs::create_dir_all(dir)?;
                    let (aside, mut file) = tempfile_in(dir)?;
                    io::Write::write_all(&mut file, &bytes)?;
                    fs::rename(aside, dir.join(name))
                };
                set().map_err(|error| unread(dir, &error))
            }
            ReservationLog::Hdfs(hdfs, dir) => {
                hdfs.mkdirs(dir, 0o755, deadline).await?;
                let place = format!("{dir}/{name}");
                Ok(hdfs.write_atomic(&place, bytes, 0o644, deadline).await?)
            }
        }
    }

    /// Removes one file of the log, if it exists.
    pub(super) async fn remove_page(&self, name: &str, deadline: Instant) -> Result<(), DataError> {
        match self {
            ReservationLog::Local(dir) => match fs::remove_file(dir.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unread(dir, &error)),
                _ => Ok(()),
            },
            ReservationLog::Hdfs(hdfs, dir) => {
                hdfs.delete(&format!("{dir}/{name}"), deadline).await?;
                Ok(())
            }
        }
    }

    /// Lists the files of the log with that prefix.
    pub(super) async fn pages(
        &self,
        begin: &str,
        deadline: Instant,
    ) -> Result<Vec<String>, DataError> {
        let mut names: Vec<String> = match self {
            ReservationLog::Local(dir) => match fs::read_dir(dir) {
                Ok(all) => {
                    let names = all.flatten().map(|entry| entry.file_name());
                    names.filter_map(|name| name.into_string().ok()).collect()
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
                Err(error) => return Err(unread(dir, &error)),
            },
            ReservationLog::Hdfs(hdfs, dir) => {
                let all = hdfs.list(dir, deadline).await?;
                all.iter().map(|entry| entry.name().to_owned()).collect()
            }
        };
        names.retain(|name| name.starts_with(begin));
        names.sort();
        Ok(names)
    }

    /// Records the path taken, unless another task did so first. Returns the recorded path.
    async fn write(&self, to: &str, taken: String, deadline: Instant) -> Result<String, DataError> {
        let name = name(to);
        let written = match self {
            ReservationLog::Local(dir) => {
                write(dir, &name, &taken).map_err(|error| unread(dir, &error))?
            }
            ReservationLog::Hdfs(hdfs, dir) => {
                hdfs.mkdirs(dir, 0o755, deadline).await?;
                let (place, bytes) = (format!("{dir}/{name}"), taken.clone().into_bytes());
                hdfs.write_if_absent(&place, bytes, 0o644, deadline).await?
            }
        };
        if written {
            return Ok(taken);
        }
        let gone = || DataError::permanent(format!("what was taken for `{to}` is gone"));
        self.read(to, deadline).await?.ok_or_else(gone)
    }
}

/// Writes a file unless it exists. Returns true if it was written.
fn write(dir: &Path, name: &str, text: &str) -> io::Result<bool> {
    fs::create_dir_all(dir)?;
    let mut aside = tempfile_in(dir)?;
    io::Write::write_all(&mut aside.1, text.as_bytes())?;
    let linked = fs::hard_link(&aside.0, dir.join(name));
    // It has its name, or is not needed.
    let _ = fs::remove_file(&aside.0);
    match linked {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Creates a file with a name unique to this process and thread.
fn tempfile_in(dir: &Path) -> io::Result<(PathBuf, fs::File)> {
    let pid = std::process::id();
    for number in 0..1000 {
        let path = dir.join(format!(".{pid}-{number}"));
        match fs::File::create_new(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) => {}
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

pub(super) fn name(to: &str) -> String {
    hex::encode(&digest(&SHA256, to.as_bytes()).as_ref()[..16])
}

fn unread(dir: &Path, error: &io::Error) -> DataError {
    let what =
        format!("cannot write down in `{}` where outputs go: {}", dir.display(), reason(error));
    DataError::permanent(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_else_made_is_refused_or_avoided_and_ones_own_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let book = ReservationLog::Local(dir.path().join("reservations"));
        let to = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.unwrap();
        let take = |existing, to: &str| {
            let deadline = Instant::now() + Duration::from_secs(10);
            runtime.block_on(reserve(&book, None, existing, to, "job", deadline))
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
        assert!(!write(&dir.path().join("reservations"), &name(&to("theirs")), "x").unwrap());
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
            let book = ReservationLog::Local(dir.path().join(job));
            runtime.block_on(reserve(&book, None, existing, &to, job, deadline))
        };
        // Nothing is put there in between.
        assert_eq!(take("one", ExistingPolicy::Number), Ok(to.clone()));
        assert_eq!(take("other", ExistingPolicy::Number), Ok(format!("{to}-2")));
        assert_eq!(take("one", ExistingPolicy::Number), Ok(to.clone()));
        assert!(take("third", ExistingPolicy::Fail).is_err());
        fs::write(&to, "").unwrap();
        runtime.block_on(release(None, &to, deadline));
        assert_eq!(take("fourth", ExistingPolicy::Number), Ok(format!("{to}-3")));
        for number in 2..4 {
            runtime.block_on(release(None, &format!("{to}-{number}"), deadline));
        }
        let names = fs::read_dir(dir.path()).unwrap().flatten();
        let names: Vec<_> = names.map(|entry| entry.file_name()).collect();
        let held = |name: &std::ffi::OsString| name.to_string_lossy().starts_with('.');
        assert!(!names.iter().any(held), "{names:?}");
    }
}
