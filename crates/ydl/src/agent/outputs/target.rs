//! One file on its way to HDFS: written aside, and given its name when all of it is there.

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

/// What is read and sent at once.
const PIECE_BYTES: usize = 256 << 10;
/// What is half-sent for longer is nobody's any more.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);
/// How long one call or piece may take.
const STEP_MAX: Duration = Duration::from_secs(60);

/// Why an output is not in its place.
#[derive(Debug)]
pub(super) struct UploadError {
    /// The file it happened to.
    pub(super) file: Option<String>,
    pub(super) why: String,
    pub(super) may_pass: bool,
}

impl From<HdfsError> for UploadError {
    fn from(error: HdfsError) -> UploadError {
        let may_pass = error.may_pass();
        // The sentence begins with the name a file has while it is written, which helps nobody.
        let why = match error.what.split_once("`: ") {
            Some((_, why)) => why.to_owned(),
            None => error.what,
        };
        UploadError { file: None, why, may_pass }
    }
}

impl From<data::Trouble> for UploadError {
    fn from(trouble: data::Trouble) -> UploadError {
        UploadError { may_pass: trouble.may_pass(), ..UploadError::lasting(trouble.sentence()) }
    }
}

impl UploadError {
    pub(super) fn with(self, file: &str) -> UploadError {
        UploadError { file: Some(file.to_owned()), ..self }
    }

    pub(super) fn lasting(why: impl Into<String>) -> UploadError {
        UploadError { file: None, why: why.into(), may_pass: false }
    }
}

/// Where the files of one output go, one by one: found out once, and looked at once for each directory.
#[derive(Debug)]
pub(super) struct UploadTarget {
    hdfs: Hdfs,
    base: String,
    /// Whether files go into a directory of that name.
    into: bool,
    /// Directories that are there, without what was left half-sent in them.
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

    /// Where a file goes.
    pub(super) fn target(&self, item: &OutputFile) -> String {
        match self.into {
            true => format!("{}/{}", self.base, item.name),
            false => self.base.clone(),
        }
    }

    /// Sends a file to its name, if it is as it was looked at, and still is when all of it was sent. False if something is
    /// there that it may not replace.
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
                return Err(UploadError::lasting("it changed while it was sent"));
            }
            put(hdfs, &aside, &target, deadline).await
        };
        swept(hdfs, &aside, sent.await).await?;
        Ok(true)
    }
}

/// A name for what is not whole yet.
pub(super) fn aside(dir: &str, whose: &str) -> Result<String, UploadError> {
    let random = ydl_net::secret::Secret::random()
        .ok_or_else(|| UploadError::lasting("the system gives no random bytes"))?;
    Ok(format!("{dir}/.aside-{whose}-{}", &random.to_hex()[..16]))
}

/// Whether something half-sent is of a job that has been killed: sending never takes so long.
fn is_abandoned(entry: &Entry) -> bool {
    let since = UNIX_EPOCH + Duration::from_millis(entry.modified_ms);
    let age = SystemTime::now().duration_since(since);
    data::is_aside(entry.name()) && age.is_ok_and(|age| age > ABANDONED)
}

/// Removes what has such a name already: it is of an agent that was killed before it was done, or of one that has been
/// replaced.
pub(super) async fn sweep(hdfs: &Hdfs, dir: &str, whose: &str, deadline: Instant) {
    let name = format!(".aside-{whose}-");
    // A directory that cannot be listed may still be written to.
    let there = hdfs.list(dir, soon(deadline)).await.unwrap_or_default();
    let of_the_dead = |entry: &&Entry| entry.name().starts_with(&name) || is_abandoned(entry);
    for left in there.iter().filter(of_the_dead) {
        if let Err(error) = hdfs.delete(&left.url, soon(deadline)).await {
            tracing::warn!("something is left behind: {error}");
        }
    }
}

/// Whatever came of it, nothing is left aside.
pub(super) async fn swept<T>(
    hdfs: &Hdfs,
    aside: &str,
    sent: Result<T, UploadError>,
) -> Result<T, UploadError> {
    let deleted = hdfs.delete(aside, Instant::now() + STEP_MAX).await;
    if let (Err(error), Err(_)) = (deleted, &sent) {
        tracing::warn!("something is left behind: {error}");
    }
    sent
}

/// Gives a file its name; the file that had it is gone in the same moment.
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
        // A piece of a local file: it is read faster than another thread would be told to.
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
