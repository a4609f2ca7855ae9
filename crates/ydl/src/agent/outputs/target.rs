//! Uploads single files to HDFS: to a temporary name that is renamed when complete.

use super::{collect::OutputFile, suspect::FileStamp};
use crate::agent::shipping::HdfsClients;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;
use ydl_os::reason;
use ydl_storage::data;
use ydl_storage::hdfs::{Entry, Hdfs, HdfsError};

/// Size of one read and write.
const PIECE_BYTES: usize = 256 << 10;
/// Age after which a temporary file counts as abandoned.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);
/// Timeout of one call or block.
const STEP_MAX: Duration = Duration::from_secs(60);

/// Error of an upload.
#[derive(Debug)]
pub(super) struct UploadError {
    /// The affected file.
    pub(super) file: Option<String>,
    pub(super) why: String,
    pub(super) is_transient: bool,
}

impl From<HdfsError> for UploadError {
    fn from(error: HdfsError) -> UploadError {
        let is_transient = error.is_transient();
        // The prefix with the temporary name means nothing to the user.
        let why = match error.what.split_once("`: ") {
            Some((_, why)) => why.to_owned(),
            None => error.what,
        };
        UploadError { file: None, why, is_transient }
    }
}

impl From<data::DataError> for UploadError {
    fn from(trouble: data::DataError) -> UploadError {
        UploadError {
            is_transient: trouble.is_transient(),
            ..UploadError::lasting(trouble.sentence())
        }
    }
}

impl UploadError {
    pub(super) fn with(self, file: &str) -> UploadError {
        UploadError { file: Some(file.to_owned()), ..self }
    }

    pub(super) fn lasting(why: impl Into<String>) -> UploadError {
        UploadError { file: None, why: why.into(), is_transient: false }
    }
}

/// Destination of one output's files, uploaded one by one. Caches lookups per directory.
#[derive(Debug)]
pub(super) struct UploadTarget {
    hdfs: Hdfs,
    base: String,
    /// Set if files go into a directory of that name.
    into: bool,
    /// Existing directories that were cleaned of temporary files.
    ready: BTreeSet<String>,
}

impl UploadTarget {
    pub(super) async fn find(
        ways: &HdfsClients,
        to: &str,
        single: bool,
        deadline: Instant,
    ) -> Result<UploadTarget, UploadError> {
        let hdfs = ways.to(to, soon(deadline)).await?;
        let base = to.trim_end_matches('/').to_owned();
        let into = !single
            || to.ends_with('/')
            || (hdfs.stat(&base, soon(deadline)).await?).is_some_and(|entry| entry.directory);
        Ok(UploadTarget { hdfs, base, into, ready: BTreeSet::new() })
    }

    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Returns the target of a file.
    pub(super) fn target(&self, item: &OutputFile) -> String {
        match self.into {
            true => format!("{}/{}", self.base, item.name),
            false => self.base.clone(),
        }
    }

    /// Uploads a file if it matches its stamp before and after. Returns false if an existing file must not be replaced.
    pub(super) async fn put(
        &mut self,
        whose: &str,
        item: &OutputFile,
        stamp: &FileStamp,
        may_replace: bool,
        deadline: Instant,
    ) -> Result<bool, UploadError> {
        let (hdfs, target) = (&self.hdfs, self.target(item));
        if !may_replace && hdfs.stat(&target, soon(deadline)).await?.is_some() {
            return Ok(false);
        }
        let (dir, _) = target.rsplit_once('/').unwrap_or((&target, ""));
        if !self.ready.contains(dir) {
            hdfs.mkdirs(dir, 0o755, soon(deadline)).await?;
            sweep(hdfs, dir, whose, deadline).await;
            self.ready.insert(dir.to_owned());
        }
        let aside = aside(dir, whose)?;
        let sent = async {
            let unreadable = |error: io::Error| UploadError::lasting(reason(&error));
            let mut file = stamp.open(&item.from).map_err(unreadable)?;
            send_open(hdfs, item, &mut file, &aside, deadline).await?;
            if !stamp.is_of(&file) {
                return Err(UploadError::lasting("it changed during the upload"));
            }
            put(hdfs, &aside, &target, deadline).await
        };
        swept(hdfs, &aside, sent.await).await?;
        Ok(true)
    }
}

/// Creates a temporary name.
pub(super) fn aside(dir: &str, whose: &str) -> Result<String, UploadError> {
    let random = ydl_net::secret::Secret::random()
        .ok_or_else(|| UploadError::lasting("cannot read random bytes from the system"))?;
    Ok(format!("{dir}/.aside-{whose}-{}", &random.to_hex()[..16]))
}

/// Returns true for a temporary file of a killed job: no upload takes that long.
fn is_abandoned(entry: &Entry) -> bool {
    let since = UNIX_EPOCH + Duration::from_millis(entry.modified_ms);
    let age = SystemTime::now().duration_since(since);
    data::is_temporary(entry.name()) && age.is_ok_and(|age| age > ABANDONED)
}

/// Removes the task's earlier temporary files: left by an agent that was killed or replaced.
pub(super) async fn sweep(hdfs: &Hdfs, dir: &str, whose: &str, deadline: Instant) {
    let name = format!(".aside-{whose}-");
    // A directory that cannot be listed may still be writable.
    let there = hdfs.list(dir, soon(deadline)).await.unwrap_or_default();
    let of_the_dead = |entry: &&Entry| entry.name().starts_with(&name) || is_abandoned(entry);
    for left in there.iter().filter(of_the_dead) {
        if let Err(error) = hdfs.delete(&left.url, soon(deadline)).await {
            tracing::warn!("cannot remove a temporary file: {error}");
        }
    }
}

/// Deletes the temporary file, whatever the result.
pub(super) async fn swept<T>(
    hdfs: &Hdfs,
    aside: &str,
    sent: Result<T, UploadError>,
) -> Result<T, UploadError> {
    let deleted = hdfs.delete(aside, Instant::now() + STEP_MAX).await;
    if let (Err(error), Err(_)) = (deleted, &sent) {
        tracing::warn!("cannot remove a temporary file: {error}");
    }
    sent
}

/// Renames a temporary file, atomically replacing an existing target.
pub(super) async fn put(
    hdfs: &Hdfs,
    aside: &str,
    target: &str,
    deadline: Instant,
) -> Result<(), UploadError> {
    let Err(error) = hdfs.replace(aside, target, soon(deadline)).await else {
        return Ok(());
    };
    match hdfs.stat(target, soon(deadline)).await {
        Ok(Some(entry)) if entry.directory => Err(UploadError::lasting("a directory is there")),
        _ => Err(error.into()),
    }
}

pub(super) async fn send_file(
    hdfs: &Hdfs,
    item: &OutputFile,
    place: &str,
    deadline: Instant,
) -> Result<u64, UploadError> {
    let unreadable = |error: io::Error| UploadError::lasting(reason(&error)).with(&item.name);
    let mut file = File::open(&item.from).map_err(unreadable)?;
    send_open(hdfs, item, &mut file, place, deadline).await
}

async fn send_open(
    hdfs: &Hdfs,
    item: &OutputFile,
    file: &mut File,
    place: &str,
    deadline: Instant,
) -> Result<u64, UploadError> {
    let unreadable = |error: io::Error| UploadError::lasting(reason(&error)).with(&item.name);
    let failed = |error: HdfsError| UploadError::from(error).with(&item.name);
    let mut writer = hdfs.create(place, item.mode, soon(deadline)).await.map_err(failed)?;
    loop {
        // A small local read: faster than a switch to another thread.
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        let read = file.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece);
        if read.map_err(unreadable)? == 0 {
            break;
        }
        let wrote = writer.write(Bytes::from(piece), soon(deadline)).await;
        wrote.map_err(failed)?;
    }
    let bytes = writer.written();
    writer.close(soon(deadline)).await.map_err(failed)?;
    Ok(bytes)
}

pub(super) fn soon(deadline: Instant) -> Instant {
    deadline.min(Instant::now() + STEP_MAX)
}
